//! Compiles the protocol buffers with protox, so that nobody installs protoc.

use prost::Message;
use std::path::{Path, PathBuf};

const V1: [&str; 2] = ["flovyn/v1/agent.proto", "flovyn/v1/flovyn.proto"];
const V2: [&str; 3] = ["flovyn/v2/agents.proto", "flovyn/v2/machines.proto", "flovyn/v2/worker.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=flovyn");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    compile(&V2, &out.join("v2.bin"))?;
    if std::env::var_os("CARGO_FEATURE_V1").is_some() {
        compile(&V1, &out.join("v1.bin"))?;
    }
    Ok(())
}

/// Generates the types of a version, and writes its descriptors to a file.
fn compile(files: &[&str], to: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(files, ["."])?;
    std::fs::write(to, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
