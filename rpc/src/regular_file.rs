//! Files that an operator names.
//!
//! A path may lead to something that is no file: a pipe whose other end nobody opens, a terminal, a device that never
//! ends. Opening or reading one of those waits for ever, or does something. So only regular files are opened; what is
//! there is looked at before the open, and again after it, since it may be another thing by then. The open itself does
//! not wait either.
//!
//! A disk can still stand still, as one behind a network does. Whoever reads while clients are served does it on a
//! thread of its own and within [`PATIENCE`].

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long a file may take to be read while clients are served.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The most that settings or certificates may be: more is some other file.
const LARGEST: u64 = 16 << 20;

/// What stands at a path is no regular file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is {0} and not a file")]
pub(crate) struct NotAFile(&'static str);

/// The file is larger than any of its kind.
#[derive(Debug, thiserror::Error)]
#[error("it is larger than {} MiB, so it is some other file", LARGEST >> 20)]
struct TooLarge;

/// Opens the regular file at `path`.
///
/// # Errors
/// Those of the open; one that carries [`NotAFile`] when something else is there.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // What is not there is the open's to tell, or to make.
    if let Ok(there) = fs::metadata(path) {
        check(&there)?;
    }
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// All of the regular file at `path`.
///
/// # Errors
/// As [`open`]; and a file larger than any that holds settings or certificates.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    // The length may be another one while it is read.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, TooLarge));
    }
    Ok(bytes)
}

/// What `work` with files comes to, done on a thread that may wait; `None` when that takes longer than [`PATIENCE`].
/// Then the thread goes on by itself.
pub(crate) async fn patiently<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    timeout(PATIENCE, spawn_blocking(work)).await.ok()?.ok()
}

/// What stands in the way, if the error says that something other than a file does.
pub(crate) fn not_a_file(error: &io::Error) -> Option<NotAFile> {
    error.get_ref()?.downcast_ref().copied()
}

fn check(there: &Metadata) -> io::Result<()> {
    match kind(there.file_type()) {
        None => Ok(()),
        Some(kind) => Err(io::Error::other(NotAFile(kind))),
    }
}

/// What it is instead of a file.
fn kind(there: FileType) -> Option<&'static str> {
    if there.is_file() {
        None
    } else if there.is_dir() {
        Some("a directory")
    } else if there.is_fifo() {
        Some("a pipe (FIFO)")
    } else if there.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_none_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, pipe) = (dir.path().join("file"), dir.path().join("pipe"));
        fs::write(&file, "text").expect("written");
        assert_eq!(read(&file).expect("read"), b"text");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let socket = dir.path().join("socket");
        let _held = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        for (path, kind) in [
            (pipe.as_path(), "a pipe (FIFO)"),
            (dir.path(), "a directory"),
            (Path::new("/dev/null"), "a device"),
            (socket.as_path(), "a socket"),
        ] {
            for options in [
                OpenOptions::new().read(true),
                OpenOptions::new().append(true).create(true),
            ] {
                let error = open(path, options).expect_err(kind);
                assert_eq!(not_a_file(&error), Some(NotAFile(kind)));
                assert_eq!(error.to_string(), format!("it is {kind} and not a file"));
            }
        }
        let missing = read(&dir.path().join("none")).expect_err("none");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_without_end_is_not_read_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("large");
        let file = File::create(&path).expect("made");
        file.set_len(LARGEST).expect("stretched");
        assert_eq!(read(&path).expect("read").len() as u64, LARGEST);
        file.set_len(1 << 40).expect("stretched");
        let error = read(&path).expect_err("too large").to_string();
        assert!(error.contains("larger than 16 MiB"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_stands_still_is_not_waited_for() {
        assert_eq!(patiently(|| 7).await, Some(7));
        let (release, stands) = std::sync::mpsc::channel::<()>();
        let waiting = tokio::spawn(patiently(move || stands.recv().is_ok()));
        tokio::task::yield_now().await;
        tokio::time::advance(PATIENCE - Duration::from_millis(1)).await;
        assert!(!waiting.is_finished());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(waiting.await.expect("it ends"), None);
        drop(release);
    }
}
