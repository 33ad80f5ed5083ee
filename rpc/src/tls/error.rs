//! What can be wrong with the files.

use std::io;
use std::path::PathBuf;

/// A file that cannot be used. One line: which setting, which file, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// It cannot be read.
    #[error("{setting} {}: cannot be read: {source}; check the path", path.display())]
    Unreadable {
        /// The key of the config file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is not what it has to be.
    #[error("{setting} {}: {problem}; give {expected}", path.display())]
    Unusable {
        /// The key of the config file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// What is needed instead.
        expected: &'static str,
    },
}
