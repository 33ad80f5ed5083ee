//! What the repository says of itself: the orderings in the crate, the models that its comments
//! name, the models that there are, and the weakenings.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::weakening::{Weakening, parse};

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// All weakenings under `root`, each with the file that it is from, without the ending.
///
/// # Errors
///
/// If a file cannot be read, or is none of weakenings.
pub fn weakenings(root: &Path) -> io::Result<Vec<(String, Weakening)>> {
    let mut all = Vec::new();
    for path in files(&root.join("loom-tests/weakened"), "edits")? {
        let stem = stem(&path);
        let read = parse(&fs::read_to_string(&path)?);
        let read = read.map_err(|broken| io::Error::other(format!("{stem}: {broken}")))?;
        all.extend(read.into_iter().map(|weakening| (stem.clone(), weakening)));
    }
    Ok(all)
}

/// The models under `root`, as `file::name`.
///
/// # Errors
///
/// If a file cannot be read.
pub fn models(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut models = BTreeSet::new();
    for path in files(&root.join("loom-tests/tests"), "rs")? {
        let text = fs::read_to_string(&path)?;
        if !text.contains("\n#![cfg(tidegate_loom)]\n") {
            continue;
        }
        let mut is_test = false;
        for line in text.lines() {
            let name = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once('('));
            if let Some((name, _)) = name
                && is_test
            {
                models.insert(format!("{}::{name}", stem(&path)));
            }
            is_test = line == "#[test]" || (is_test && line.starts_with("#["));
        }
    }
    Ok(models)
}

/// A file of the crate whose protocols are modelled.
#[derive(Debug)]
pub struct Source {
    /// From the root of the repository.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// The lines, from 0, that order: an ordering stronger than Relaxed, or a fence.
    #[must_use]
    pub fn ordering_lines(&self) -> Vec<usize> {
        let orders = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            let is_import =
                code.trim_start().starts_with("use ") || code.trim_end().ends_with("},");
            let words = ["Acquire", "Release", "AcqRel", "fence(Ordering"];
            !is_import && words.iter().any(|word| code.contains(word)) && code.contains('(')
        };
        let lines = self.text.lines().enumerate();
        lines
            .filter(|(_, line)| orders(line))
            .map(|(at, _)| at)
            .collect()
    }

    /// The models that comments name.
    #[must_use]
    pub fn named_models(&self, files: &BTreeSet<&str>) -> BTreeSet<String> {
        let comments = self.text.lines().filter_map(|line| line.split_once("//"));
        let words = comments.flat_map(|(_, comment)| {
            comment.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        });
        let models = words.filter(|word| {
            let parts = word.split_once("::");
            parts.is_some_and(|(file, name)| {
                // A capital begins a type of that module.
                files.contains(file) && name.starts_with(|c: char| c.is_ascii_lowercase())
            })
        });
        models
            .map(|model| model.trim_end_matches(':').to_owned())
            .collect()
    }
}

/// The files whose orderings the models defend: all of the crate but for its tests, the sequential
/// models, and the door to the atomics.
///
/// # Errors
///
/// If a file cannot be read.
pub fn modelled(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.join("core/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                let is_other = ["sync", "tests"].contains(&&*stem(&path));
                if !is_other {
                    folders.push(path);
                }
            } else if !["tests", "oracle"].contains(&&*stem(&path)) {
                let text = fs::read_to_string(&path)?;
                // Unit tests come last in a file.
                let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
                let path = path.strip_prefix(root).unwrap_or(&path);
                sources.push(Source {
                    path: path.to_string_lossy().into_owned(),
                    text: text[..end].to_owned(),
                });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn files(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = entries.collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|found| found == ending));
    files.sort();
    Ok(files)
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}
