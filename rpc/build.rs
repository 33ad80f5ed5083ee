//! Compiles the protocol definitions in `proto/` without an installed `protoc`, and finds out which commit is built.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    println!("cargo::rustc-env=TIDEGATE_COMMIT={}", commit());
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure()
        // Keys are sliced out of the received frame; `proto::convert` copies what is to outlive it.
        .bytes(".")
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}

/// The commit's first twelve digits. Whoever builds from something else than a clone may give them in TIDEGATE_COMMIT.
fn commit() -> String {
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let given = std::env::var("TIDEGATE_COMMIT").ok();
    let commit = given.or_else(|| cloned(&root()?));
    let commit = commit.map(|commit| commit.chars().take(12).collect::<String>());
    commit
        .filter(|commit| {
            !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
        .unwrap_or_else(|| "unknown".to_owned())
}

/// The directory of all packages.
fn root() -> Option<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")?;
    Path::new(&own).parent()?.canonicalize().ok()
}

/// The commit that is checked out in `root`, if that is a clone by itself and not a directory in another one.
fn cloned(root: &Path) -> Option<String> {
    let git = |question: &[&str]| {
        let asked = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(question)
            .output()
            .ok()?;
        let answer = String::from_utf8(asked.stdout).ok()?;
        asked.status.success().then(|| answer.trim().to_owned())
    };
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    // The log has a line for each commit that was ever checked out. A file that is not there would mean: always.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]).map(|path| root.join(path));
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "HEAD"])
}
