//! Compiles the vendored protocol files (protox parses them, so no `protoc` is needed), and notes
//! what the build is made from.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

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
        .codec_path("crate::codec::SmallCodec")
        .include_file("protocol.rs")
        .compile_fds(descriptors)?;
    println!("cargo:rustc-env=GABION_BUILD={}", build());
    Ok(())
}

/// Commit and target; a build outside a git tree names its commit in GABION_COMMIT, or none.
fn build() -> String {
    println!("cargo:rerun-if-env-changed=GABION_COMMIT");
    // The log grows with each commit; a path that is not there would mean a build each time.
    let log = "../../.git/logs/HEAD";
    if std::path::Path::new(log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = std::env::var("GABION_COMMIT").ok();
    let commit = given.or_else(|| {
        let mut git = Command::new("git");
        let output = git
            .args(["rev-parse", "--short=12", "HEAD"])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    });
    let commit = commit.unwrap_or_else(|| "unknown commit".to_owned());
    let target = std::env::var("TARGET").unwrap_or_default();
    let profile = std::env::var("PROFILE").unwrap_or_default();
    format!("{commit}, {target}, {profile}")
}
