//! Rust from the proto; `protox` compiles it, so that no `protoc` is needed.

use std::error::Error;
use std::{env, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let protos = Path::new("proto");
    let file = protos.join("pubfault.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let descriptors = protox::compile([file], [protos])?;
    // The server's side is for the stand-in of the tests.
    let server = env::var_os("CARGO_FEATURE_SERVER").is_some();
    // Comments of a proto aren't rustdoc: they name things without links, and doctests would be made of blocks.
    tonic_prost_build::configure()
        .build_transport(false)
        .build_server(server)
        .disable_comments(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
