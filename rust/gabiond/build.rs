//! Compiles the vendored protocol files: protox parses them, so no `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

const ROOT: &str = "proto";
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    println!("cargo:rerun-if-changed=build.rs");
    let descriptors = protox::compile([SERVICE], [ROOT])?;
    // The same descriptors answer gRPC reflection.
    let path = PathBuf::from(std::env::var("OUT_DIR")?).join("protocol.descriptors");
    std::fs::write(path, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Keys and values are slices of the received message, not copies of it.
        .bytes(".")
        .include_file("protocol.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
