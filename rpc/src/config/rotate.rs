//! A log file that is begun anew when it is full, with PD's rules for what is kept of the old ones.
//!
//! PD bounds the old files by number and by age at once. The libraries that rotate by size know one of the two and
//! bring a calendar and a compressor with them; this is what is left without.
//!
//! An old file is named as PD names it: the time of its end between the name and its extension, in UTC.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::Moment;
use tidegate_core::clock::{BootClock, Clock};

use super::log::LogFile;
use crate::leader::{SystemWall, WallClock};
use crate::regular_file;

const MIB: u64 = 1 << 20;
/// How often the file is looked for at its name.
const LOOK: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(86_400);

/// The file that is written to.
#[derive(Debug)]
pub(super) struct RotatingFile {
    settings: LogFile,
    file: File,
    size: u64,
    /// When the file was last looked for at its name.
    looked: Moment,
}

impl RotatingFile {
    /// Opens the file and goes on at its end.
    pub(super) fn open(settings: LogFile) -> io::Result<Self> {
        let file = append(&settings.filename)?;
        let size = file.metadata()?.len();
        Ok(Self {
            settings,
            file,
            size,
            looked: BootClock.now(),
        })
    }

    /// The file's name.
    pub(super) fn name(&self) -> &Path {
        &self.settings.filename
    }

    /// Opens the file by its name again: somebody else may have moved it away.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = append(&self.settings.filename)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    /// Every now and then: a file that nobody can find any more, because it was removed or its directory was, is begun
    /// anew.
    fn look(&mut self, now: Moment) {
        if now.saturating_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let gone = fs::symlink_metadata(&self.settings.filename)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if gone {
            // What is open takes lines as before; the next look tries again.
            let _ = self.reopen();
        }
    }

    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        fs::rename(&self.settings.filename, self.old_name(now))?;
        self.reopen()?;
        self.prune(now)
    }

    fn old_name(&self, now: SystemTime) -> PathBuf {
        let (stem, extension) = self.parts();
        self.settings
            .filename
            .with_file_name(format!("{stem}-{}{extension}", stamp(now)))
    }

    /// The name in two, around the time.
    fn parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let extension = part(self.settings.filename.extension());
        let dot = if extension.is_empty() { "" } else { "." };
        (
            part(self.settings.filename.file_stem()),
            format!("{dot}{extension}"),
        )
    }

    /// Removes old files beyond the number, and beyond the age.
    fn prune(&self, now: SystemTime) -> io::Result<()> {
        let dir = self
            .settings
            .filename
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let (stem, extension) = self.parts();
        let mut old: Vec<(String, PathBuf)> = fs::read_dir(dir)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().into_string().ok()?;
                let stamp = name
                    .strip_prefix(&stem)?
                    .strip_prefix('-')?
                    .strip_suffix(&extension)?;
                is_stamp(stamp).then(|| (stamp.to_owned(), entry.path()))
            })
            .collect();
        old.sort();
        old.reverse();
        let most = match self.settings.max_backups {
            0 => usize::MAX,
            most => most as usize,
        };
        let oldest = match self.settings.max_days {
            0 => None,
            days => now.checked_sub(DAY * days).map(stamp),
        };
        for (at, (stamp, path)) in old.iter().enumerate() {
            if at >= most || oldest.as_ref().is_some_and(|oldest| stamp < oldest) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn write_at(&mut self, line: &[u8], now: SystemTime) -> io::Result<usize> {
        let most = self.settings.max_size.saturating_mul(MIB);
        if most > 0 && self.size > 0 && self.size + line.len() as u64 > most {
            // A file that cannot be moved is still one that can be written to; the next line tries again.
            let _ = self.rotate(now);
        }
        let written = self.file.write(line)?;
        self.size += written as u64;
        Ok(written)
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let nanos = u64::try_from(SystemWall.unix_nanos()).unwrap_or_default();
        let now = UNIX_EPOCH + Duration::from_nanos(nanos);
        self.look(BootClock.now());
        self.write_at(line, now)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens the file for what comes next, with its directory if that is not there.
fn append(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir)?;
    }
    regular_file::open(path, OpenOptions::new().create(true).append(true))
}

/// A time as `2026-08-21T00-57-58.123`: as text in the order of time.
fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}.{millis:03}")
}

fn is_stamp(text: &str) -> bool {
    let shape = b"0000-00-00T00-00-00.000";
    text.len() == shape.len()
        && text.bytes().zip(shape).all(|(byte, shape)| {
            if *shape == b'0' {
                byte.is_ascii_digit()
            } else {
                byte == *shape
            }
        })
}

/// The date of a day since 1970, by the proleptic calendar's 400-year cycles, which begin on 1 March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests;
