//! How the process logs: to stderr or a file, through `tracing`, at PD's levels.
//!
//! No line has a key of a region in it, redacted or not: regions are named by their ids.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use super::ConfigError;
use super::log_writer::{LogWriter, Outlet};
use super::rotate::RotatingFile;
use crate::regular_file;

/// `[log]` of the file, `-L` and `--log-file`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// What is logged.
    pub level: LogLevel,
    /// How it looks.
    pub format: LogFormat,
    /// Where it goes; to stderr when nothing is said.
    pub file: Option<LogFile>,
}

/// `[log.file]`: a file that is begun anew when it is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The file (`filename`).
    pub filename: PathBuf,
    /// Its size in MiB at most (`max-size`); 0 for no end.
    pub max_size: u64,
    /// For how many days old files are kept (`max-days`); 0 for ever.
    pub max_days: u32,
    /// How many old files are kept (`max-backups`); 0 for all.
    pub max_backups: u32,
}

impl Default for LogFile {
    fn default() -> Self {
        Self {
            filename: PathBuf::new(),
            max_size: 300,
            max_days: 0,
            max_backups: 0,
        }
    }
}

/// PD's levels; `fatal` is what we call `error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// What helps to find a fault.
    Debug,
    /// State changes.
    #[default]
    Info,
    /// What an operator may want to look into.
    Warn,
    /// What an operator has to look into.
    Error,
}

/// PD's log formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text an event.
    #[default]
    Text,
    /// A JSON object an event.
    Json,
}

impl LogLevel {
    /// Reads a level by PD's name for it. `setting` is the flag or key it came from.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for any other name.
    pub fn parse(setting: &str, text: &str) -> Result<Self, ConfigError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "trace" => Ok(Self::Trace),
            "debug" => Ok(Self::Debug),
            "info" | "" => Ok(Self::Info),
            "warn" | "warning" => Ok(Self::Warn),
            "error" | "fatal" => Ok(Self::Error),
            _ => Err(ConfigError::value(
                setting,
                text,
                "one of trace, debug, info, warn, error, fatal",
            )),
        }
    }

    /// PD's name for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    fn filter(self) -> LevelFilter {
        match self {
            Self::Trace => LevelFilter::TRACE,
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warn => LevelFilter::WARN,
            Self::Error => LevelFilter::ERROR,
        }
    }
}

impl LogFormat {
    /// PD's name for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// Reads a format by PD's name for it. `setting` is the key it came from.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for any other name.
    pub fn parse(setting: &str, text: &str) -> Result<Self, ConfigError> {
        match text.trim() {
            "text" | "console" | "" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(ConfigError::value(
                setting,
                text,
                "one of text, json, console",
            )),
        }
    }
}

/// Where log lines go.
#[derive(Clone, Debug)]
pub struct LogSink {
    writer: LogWriter,
    /// Whether that is stderr.
    is_stderr: bool,
}

/// What of the logging can be changed while it goes on.
#[derive(Clone, Debug)]
pub struct LogHandle {
    /// `None` where somebody else's subscriber is in place.
    filter: Option<reload::Handle<Targets, Registry>>,
    /// `None` where nothing of ours is written.
    sink: Option<LogSink>,
}

impl LogSink {
    /// Opens the log file, if there is to be one, and starts the thread that writes.
    ///
    /// # Errors
    /// [`ConfigError::LogFile`]: it cannot be opened. [`ConfigError::LogThread`].
    pub fn open(config: &LogConfig) -> Result<Self, ConfigError> {
        let outlet = match &config.file {
            None => Outlet::Stderr,
            Some(file) => RotatingFile::open(file.clone())
                .map(Outlet::File)
                .map_err(|source| ConfigError::LogFile {
                    path: file.filename.clone(),
                    source,
                })?,
        };
        let is_stderr = matches!(outlet, Outlet::Stderr);
        let writer = LogWriter::start(outlet);
        let writer = writer.map_err(|source| ConfigError::LogThread { source })?;
        Ok(Self { writer, is_stderr })
    }
}

/// One line on its way.
#[derive(Debug)]
pub struct Line<'s>(&'s LogSink);

impl io::Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.writer.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'s> MakeWriter<'s> for LogSink {
    type Writer = Line<'s>;

    fn make_writer(&'s self) -> Line<'s> {
        Line(self)
    }
}

impl LogHandle {
    /// Of a process whose logging is not ours.
    #[must_use]
    pub fn detached() -> Self {
        Self {
            filter: None,
            sink: None,
        }
    }

    /// Logs at another level from now on.
    pub fn set_level(&self, level: LogLevel) {
        if let Some(filter) = &self.filter {
            // It fails when the subscriber is gone, and then nothing is logged at any level.
            let _ = filter.reload(targets(level));
        }
    }

    /// Opens the log file by its name again, after somebody has moved it away. Waits for the disk, for a bounded time.
    ///
    /// # Errors
    /// It cannot be opened; what was open stays.
    pub fn reopen(&self) -> io::Result<()> {
        match &self.sink {
            Some(sink) => sink.writer.reopen(regular_file::PATIENCE),
            None => Ok(()),
        }
    }

    /// How many lines were lost since the start, because they came faster than they could be written; `None` where
    /// nothing of ours is written.
    #[must_use]
    pub fn lost_lines(&self) -> Option<u64> {
        self.sink.as_ref().map(|sink| sink.writer.lost())
    }

    /// Returns when all that was logged has been written, or after `patience`.
    pub fn flush(&self, patience: Duration) {
        if let Some(sink) = &self.sink {
            sink.writer.flush(patience);
        }
    }
}

/// Our own events go by the level asked for, those of the libraries below by `warn` at most. What HTTP/2 warns of is what
/// some client did, and clients are not to fill a log.
fn targets(level: LogLevel) -> Targets {
    let level = level.filter();
    Targets::new()
        .with_target("tidegate", level)
        .with_target("tidegate_core", level)
        .with_target("h2", LevelFilter::ERROR)
        .with_default(level.min(LevelFilter::WARN))
}

/// Starts logging; does nothing where a subscriber is set already.
pub fn init(config: &LogConfig, sink: LogSink) -> LogHandle {
    let (filter, handle) = reload::Layer::new(targets(config.level));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(sink.is_stderr && io::stderr().is_terminal())
        .with_writer(sink.clone())
        .with_target(false);
    // An error says that somebody else's subscriber is in place, which is what an embedder wants.
    let set = match config.format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
    LogHandle {
        filter: set.is_ok().then_some(handle),
        sink: Some(sink),
    }
}
