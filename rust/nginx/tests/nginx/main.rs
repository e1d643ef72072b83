//! Behaviour of the module in real nginx: each test starts its own, in a folder of its own, on
//! ports from the kernel. `tools/nginx-module test` builds what they need and runs them.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod cost;
mod exact;
mod failures;
mod gossip;
mod guide;
mod http;
mod http2;
mod inside;
mod kubernetes;
mod life;
mod limits;
mod lua;
mod orders;
mod pacing;
mod peer;
mod policy;
mod protocol;
mod realip;
mod redirects;
mod refusals;
mod reloads;
mod server;
mod shown;
mod upgrade;
mod windows;
mod words;
