//! How the process logs: to stderr, through `tracing`, at PD's levels.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;

use super::ConfigError;

/// `[log]` of the file and `-L`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// What is logged.
    pub level: LogLevel,
    /// How it looks.
    pub format: LogFormat,
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

/// Starts logging to stderr; does nothing where a subscriber is set already.
///
/// Our own events go by the level asked for, those of the libraries below by `warn` at most.
pub fn init(config: LogConfig) {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::prelude::*;

    let level = config.level.filter();
    let targets = Targets::new()
        .with_target("tidegate", level)
        .with_target("tidegate_core", level)
        .with_default(level.min(LevelFilter::WARN));
    let registry = tracing_subscriber::registry().with(targets);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // An error says that somebody else's subscriber is in place, which is what an embedder wants.
    let _ = match config.format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
}
