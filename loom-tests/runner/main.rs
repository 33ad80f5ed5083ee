//! Runs the models against each weakening; `loom-tests/weaken --help` explains.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

use tidegate_loom_tests::sources;
use tidegate_loom_tests::weakening::{Expected, Weakening};

/// How one model took it.
#[derive(Debug, Eq, PartialEq)]
enum Verdict {
    Red,
    Green,
    /// It did not come to a verdict; why, and where the log is.
    None(String),
}

fn main() -> ExitCode {
    let filters: Vec<String> = env::args().skip(1).collect();
    let result = if filters.first().is_some_and(|first| first == "--table") {
        sources::weakenings(&sources::root()).map(|all| {
            for (_, weakening) in all {
                println!("{}", weakening.row());
            }
            true
        })
    } else {
        run(&filters)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("loom-tests/weaken: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was as the weakenings say.
fn run(filters: &[String]) -> io::Result<bool> {
    let root = sources::root();
    let copy = root.join("target/weaken");
    copy_sources(&root, &copy)?;
    let mut all = sources::weakenings(&root)?;
    all.retain(|(file, weakening)| {
        let name = format!("{file}/{}", weakening.name);
        filters.is_empty() || filters.iter().any(|part| name.contains(part))
    });
    if all.is_empty() {
        eprintln!("loom-tests/weaken: no weakening has such a name; see loom-tests/weakened");
        return Ok(false);
    }
    let mut failed = 0;
    for (file, weakening) in &all {
        let name = format!("{file}/{}", weakening.name);
        let wrong = try_one(&copy, &name, weakening)?;
        if wrong.is_empty() {
            println!("{}", weakening.row());
        } else {
            failed += 1;
            for wrong in wrong {
                println!("FAILS: {name}: {wrong}");
            }
        }
    }
    println!("{} weakenings, {failed} of them not as they say", all.len());
    Ok(failed == 0)
}

fn try_one(copy: &Path, name: &str, weakening: &Weakening) -> io::Result<Vec<String>> {
    // From the copy, so that the sources may change while this runs.
    let mut before = BTreeMap::new();
    let mut texts = BTreeMap::new();
    for edit in &weakening.edits {
        let text = match texts.get(&edit.path) {
            Some(text) => String::clone(text),
            None => {
                let text = fs::read_to_string(copy.join(&edit.path))?;
                before.insert(edit.path.clone(), text.clone());
                text
            }
        };
        match edit.apply(&text) {
            Ok(new) => texts.insert(edit.path.clone(), new),
            Err(broken) => return Ok(vec![broken.to_string()]),
        };
    }
    for (path, text) in &texts {
        fs::write(copy.join(path), text)?;
    }
    let mut wrong = Vec::new();
    for model in &weakening.models {
        match (model_takes_it(copy, name, model)?, &weakening.expected) {
            (Verdict::Red, Expected::Red) | (Verdict::Green, Expected::Green(_)) => {}
            (Verdict::Green, _) => wrong.push(format!("{model} stays green")),
            (Verdict::Red, _) => wrong.push(format!("{model} goes red")),
            (Verdict::None(why), _) => wrong.push(format!("{model}: {why}")),
        }
    }
    for (path, text) in &before {
        fs::write(copy.join(path), text)?;
    }
    Ok(wrong)
}

fn model_takes_it(copy: &Path, name: &str, model: &str) -> io::Result<Verdict> {
    let Some((file, test)) = model.split_once("::") else {
        return Ok(Verdict::None("is no model's name".to_owned()));
    };
    let log = copy.join(format!("{}.{test}.log", name.replace('/', "-")));
    let out = fs::File::create(&log)?;
    // As `loom-tests/run quick` does, but quick to build again rather than quick to run.
    let status = Command::new("timeout")
        .args(["600", "cargo", "test", "--profile", "loom"])
        .args(["--config", "profile.loom.opt-level=0"])
        .args(["--config", "profile.loom.incremental=true"])
        .args(["--config", "profile.loom.package.\"*\".opt-level=3"])
        .args(["-p", "tidegate-loom-tests", "--test", file])
        .args(["--", "--test-threads", "1", "--exact", test])
        .current_dir(copy)
        .env("RUSTFLAGS", "--cfg tidegate_loom -A warnings")
        .env("CARGO_TARGET_DIR", "target/loom")
        .env("LOOM_MAX_PREEMPTIONS", "2")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stderr(out.try_clone()?)
        .stdout(out)
        .status()?;
    let text = fs::read_to_string(&log)?;
    // A weakened structure may well break down so hard that the process ends.
    let is_killed = text.contains("(signal: ");
    let verdict = if text.contains("could not compile") {
        Verdict::None(format!("does not compile, see {}", log.display()))
    } else if status.success() && text.contains("test result: ok. 1 passed") {
        Verdict::Green
    } else if text.contains("test result: FAILED") || is_killed {
        Verdict::Red
    } else {
        Verdict::None(format!("comes to no end, see {}", log.display()))
    };
    Ok(verdict)
}

/// Brings the copy up to date, touching only what differs, so that little is built again.
fn copy_sources(root: &Path, copy: &Path) -> io::Result<()> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr).into_owned();
        return Err(io::Error::other(format!("git ls-files: {why}")));
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        let Ok(new) = fs::read(&from) else {
            // Deleted, and not yet committed.
            continue;
        };
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&from, &to)?;
    }
    Ok(())
}
