//! Compiles the protocol buffers with protox, so that nobody installs protoc.

use prost::Message;
use std::path::PathBuf;

const FILES: [&str; 4] =
    ["flovyn/v1/agent.proto", "flovyn/v1/flovyn.proto", "flovyn/v2/agents.proto", "flovyn/v2/worker.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=flovyn");
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("flovyn.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
