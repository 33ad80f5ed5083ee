//! The thread that writes log lines, so that none holds up who has something to say.
//!
//! A disk that stands still, or a pipe behind stderr that nobody reads, would otherwise stop every thread that logs, and
//! with them the answers, the probes and the end of the process. Lines wait here, up to [`WAITING`] of them; beyond that
//! they are lost, and the next one that is written says how many were. A line that the file does not take goes to
//! stderr.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use super::rotate::RotatingFile;

/// Lines that may wait.
const WAITING: usize = 4_096;
/// Between two looks at a queue that is full.
const LOOK: Duration = Duration::from_millis(5);

/// The way to the thread.
#[derive(Clone, Debug)]
pub(super) struct LogWriter {
    work: SyncSender<Work>,
    lost: Arc<Lost>,
}

/// Lines that found no room.
#[derive(Debug, Default)]
struct Lost {
    /// All of them.
    ever: AtomicU64,
    /// Those that no line tells of yet.
    untold: AtomicU64,
}

#[derive(Debug)]
enum Work {
    Line(Vec<u8>),
    /// Opens the file by its name again.
    Reopen(SyncSender<io::Result<()>>),
    /// Says when all before it is written.
    Flush(SyncSender<()>),
}

/// Where lines go.
#[derive(Debug)]
pub(super) enum Outlet {
    Stderr,
    File(RotatingFile),
}

impl LogWriter {
    /// Starts the thread.
    pub(super) fn start(outlet: Outlet) -> io::Result<Self> {
        Self::with_room(outlet, WAITING)
    }

    fn with_room(mut outlet: Outlet, room: usize) -> io::Result<Self> {
        let (work, queue) = sync_channel(room);
        let lost = Arc::<Lost>::default();
        let of_thread = Arc::clone(&lost);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || outlet.keep_writing(&queue, &of_thread))?;
        Ok(Self { work, lost })
    }

    /// Leaves a line to be written; never waits.
    pub(super) fn line(&self, line: &[u8]) {
        if self.work.try_send(Work::Line(line.to_vec())).is_err() {
            // Relaxed: each is a count by itself.
            self.lost.ever.fetch_add(1, Relaxed);
            self.lost.untold.fetch_add(1, Relaxed);
        }
    }

    /// How many lines were lost since the start.
    pub(super) fn lost(&self) -> u64 {
        // Relaxed: see `line`.
        self.lost.ever.load(Relaxed)
    }

    /// Opens the file by its name again. Waits for the disk, `patience` at most.
    pub(super) fn reopen(&self, patience: Duration) -> io::Result<()> {
        let (answer, answered) = sync_channel(1);
        self.ask(Work::Reopen(answer), &answered, patience)?
    }

    /// Returns when everything before has been written, or after `patience`.
    pub(super) fn flush(&self, patience: Duration) {
        let (answer, answered) = sync_channel(1);
        // What is not written by then will not be.
        let _ = self.ask(Work::Flush(answer), &answered, patience);
    }

    fn ask<T>(&self, work: Work, answered: &Receiver<T>, patience: Duration) -> io::Result<T> {
        let (mut work, mut left) = (work, patience);
        loop {
            work = match self.work.try_send(work) {
                Ok(()) => break,
                Err(TrySendError::Full(work)) if !left.is_zero() => work,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            };
            thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
        }
        answered
            .recv_timeout(left)
            .map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

impl Outlet {
    fn keep_writing(&mut self, queue: &Receiver<Work>, lost: &Lost) {
        let mut failing = false;
        for work in queue {
            match work {
                Work::Line(line) => {
                    // Relaxed: see `line`.
                    let lost = lost.untold.swap(0, Relaxed);
                    if lost > 0 {
                        let note = format!(
                            "{lost} log lines were lost: they came faster than they could be written\n"
                        );
                        failing = !self.write(note.as_bytes(), failing);
                    }
                    failing = !self.write(&line, failing);
                }
                // Who asked may have lost patience.
                Work::Reopen(answer) => {
                    let _ = answer.try_send(match self {
                        Self::Stderr => Ok(()),
                        Self::File(file) => file.reopen(),
                    });
                }
                Work::Flush(answer) => {
                    let _ = answer.try_send(());
                }
            }
        }
    }

    /// Writes a line where it belongs, or to stderr; whether it could be written where it belongs.
    fn write(&mut self, line: &[u8], failing: bool) -> bool {
        let error = match self {
            // There is no other place to tell it.
            Self::Stderr => return io::stderr().write_all(line).is_ok(),
            Self::File(file) => match file.write_all(line) {
                Ok(()) => return true,
                Err(error) => error,
            },
        };
        let mut stderr = io::stderr();
        if !failing {
            let name = match self {
                Self::File(file) => file.name().display().to_string(),
                Self::Stderr => String::new(),
            };
            let _ = writeln!(
                stderr,
                "tidegate: the log file {name} cannot be written: {error}; its lines come here until it can"
            );
        }
        let _ = stderr.write_all(line);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::LogFile;
    use super::*;

    fn file(dir: &tempfile::TempDir) -> (std::path::PathBuf, RotatingFile) {
        let path = dir.path().join("tidegate.log");
        let file = RotatingFile::open(LogFile {
            filename: path.clone(),
            ..LogFile::default()
        });
        (path, file.expect("opened"))
    }

    #[test]
    fn what_was_said_before_a_flush_is_written_in_its_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, file) = file(&dir);
        let writer = LogWriter::start(Outlet::File(file)).expect("a thread");
        let lines: Vec<String> = (0..500).map(|at| format!("line {at}\n")).collect();
        for line in &lines {
            writer.line(line.as_bytes());
        }
        writer.flush(Duration::from_secs(60));
        assert_eq!(std::fs::read_to_string(path).expect("text"), lines.concat());
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_nobody_waits() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, file) = file(&dir);
        // Not started: nothing is taken from the queue.
        let (work, queue) = sync_channel(2);
        let writer = LogWriter {
            work,
            lost: Arc::default(),
        };
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            writer.line(line.as_bytes());
        }
        let late = writer.reopen(Duration::ZERO).expect_err("no room");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        writer.flush(Duration::ZERO);
        assert_eq!(writer.lost(), 2);
        let lost = Arc::clone(&writer.lost);
        drop(writer);
        Outlet::File(file).keep_writing(&queue, &lost);
        assert_eq!(lost.ever.load(Relaxed), 2, "told, and counted still");
        let text = std::fs::read_to_string(path).expect("text");
        assert!(text.starts_with("2 log lines were lost"), "{text}");
        assert!(text.ends_with("\none\ntwo\n"), "{text}");
    }
}
