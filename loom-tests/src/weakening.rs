//! Weakenings: edits of the sources that weaken one ordering, or leave one step out.
//!
//! They lie in `loom-tests/weakened`, a file for each part of the crate. One of them reads
//!
//! ```text
//! == next-loaded-relaxed
//! `next` loaded Relaxed
//! red: ring::a_reader_beside_the_writer_sees_whole_records
//! core/src/history/ring.rs
//! -self.next.load(Ordering::Acquire)
//! +self.next.load(Ordering::Relaxed)
//! ```
//!
//! a name, a title, the models that must fail, a file, and what takes the place of what. Lines
//! with `-` must be found in the file exactly once; without lines with `+` they are cut out. More
//! edits may follow, and more files. A form that is as good as the one in force names the models
//! that stay `green:`, and says why in a line `because:`.

use std::fmt;
use std::ops::Range;

/// What the models named must do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expected {
    /// Every one of them fails.
    Red,
    /// None of them fails, for this reason.
    Green(String),
}

/// One weakening.
#[derive(Clone, Debug)]
pub struct Weakening {
    /// Unique within its file of weakenings.
    pub name: String,
    /// What it weakens, in Markdown.
    pub title: String,
    /// What the models do.
    pub expected: Expected,
    /// `file::model` each; never empty.
    pub models: Vec<String>,
    /// Never empty.
    pub edits: Vec<Edit>,
}

/// One replacement in one file.
#[derive(Clone, Debug)]
pub struct Edit {
    /// From the root of the repository.
    pub path: String,
    /// What is replaced.
    pub old: String,
    /// What takes its place.
    pub new: String,
}

/// Why a text is no list of weakenings, or an edit does not apply.
#[derive(Debug)]
pub struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

impl Edit {
    /// Where in `source` the old text is.
    ///
    /// # Errors
    ///
    /// It must be there once.
    pub fn place(&self, source: &str) -> Result<Range<usize>, Broken> {
        let mut found = source.match_indices(&self.old);
        let Some((at, _)) = found.next() else {
            return Err(Broken(format!("{}: not there: {}", self.path, self.old)));
        };
        if found.next().is_some() {
            let more = format!("{}: there more than once: {}", self.path, self.old);
            return Err(Broken(more));
        }
        Ok(at..at + self.old.len())
    }

    /// `source` with the new text in the place of the old one.
    ///
    /// # Errors
    ///
    /// As for [`place`](Self::place).
    pub fn apply(&self, source: &str) -> Result<String, Broken> {
        let place = self.place(source)?;
        Ok([&source[..place.start], &self.new, &source[place.end..]].concat())
    }
}

impl Weakening {
    /// A row of README's table.
    #[must_use]
    pub fn row(&self) -> String {
        let mut paths: Vec<&str> = self.edits.iter().map(|edit| &*edit.path).collect();
        paths.dedup();
        let file = paths[paths.len() - 1].trim_start_matches("core/src/");
        let models: Vec<String> = self.models.iter().map(|name| format!("`{name}`")).collect();
        let models = models.join(", ");
        match &self.expected {
            Expected::Red => format!("| `{file}` | {} | {models} |", self.title),
            Expected::Green(why) => {
                format!("| `{file}` | {} | none of {models}: {why} |", self.title)
            }
        }
    }
}

/// Reads the weakenings of one file.
///
/// # Errors
///
/// Says which weakening lacks what.
pub fn parse(text: &str) -> Result<Vec<Weakening>, Broken> {
    let mut all = Vec::new();
    let mut parts = text.split("\n== ");
    // What comes before the first one is a comment.
    parts.next();
    for part in parts {
        all.push(parse_one(part)?);
    }
    Ok(all)
}

fn parse_one(part: &str) -> Result<Weakening, Broken> {
    let mut lines = part.lines();
    let mut line = |what: &str| {
        let name = part.lines().next().unwrap_or_default();
        let line = lines.next().filter(|line| !line.is_empty());
        line.ok_or_else(|| Broken(format!("{name}: no {what}")))
    };
    let name = line("name")?.to_owned();
    let title = line("title")?.to_owned();
    let models = line("models")?;
    let lacks = |what: &str| Broken(format!("{name}: no {what}"));
    let (models, expected) = if let Some(models) = models.strip_prefix("red: ") {
        (models, Expected::Red)
    } else {
        let models = models
            .strip_prefix("green: ")
            .ok_or_else(|| lacks("red or green"))?;
        let why = line("reason")?.strip_prefix("because: ");
        let why = why.ok_or_else(|| lacks("because"))?;
        (models, Expected::Green(why.to_owned()))
    };
    let models = models.split(", ").map(str::to_owned).collect();

    let mut edits: Vec<Edit> = Vec::new();
    let mut path = None;
    // Whether the next `-` belongs to the edit before.
    let mut is_open = false;
    for line in lines {
        if let Some(old) = line.strip_prefix('-') {
            if is_open && let Some(edit) = edits.last_mut() {
                edit.old = [&edit.old, "\n", old].concat();
                continue;
            }
            let path: Option<&str> = path;
            edits.push(Edit {
                path: path.ok_or_else(|| lacks("path"))?.to_owned(),
                old: old.to_owned(),
                new: String::new(),
            });
            is_open = true;
        } else if let Some(new) = line.strip_prefix('+') {
            let edit = edits.last_mut().ok_or_else(|| lacks("old text"))?;
            if is_open {
                edit.new = new.to_owned();
            } else {
                edit.new = [&edit.new, "\n", new].concat();
            }
            is_open = false;
        } else {
            is_open = false;
            if !line.is_empty() {
                path = Some(line);
            }
        }
    }
    if edits.is_empty() {
        return Err(lacks("edit"));
    }
    Ok(Weakening {
        name,
        title,
        expected,
        models,
        edits,
    })
}
