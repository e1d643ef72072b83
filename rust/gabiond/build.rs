//! Compiles the vendored protocol files: protox parses them, so no `protoc` is needed.

use std::error::Error;

const ROOT: &str = "proto";
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    println!("cargo:rerun-if-changed=build.rs");
    let descriptors = protox::compile([SERVICE], [ROOT])?;
    tonic_prost_build::configure()
        // Keys and values are slices of the received message, not copies of it.
        .bytes(".")
        .include_file("protocol.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
