//! Compiles the protocol definitions in `proto/` without an installed `protoc`.

use std::error::Error;

const FILES: [&str; 7] = [
    "metapb.proto",
    "pdpb.proto",
    "routerpb.proto",
    "kv.proto",
    "etcd.proto",
    "health.proto",
    "meta_storage.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure()
        // Keys are sliced out of the received frame; `proto::convert` copies what is to outlive it.
        .bytes(".")
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
