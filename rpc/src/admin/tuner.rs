//! The settings of a running replica, and what puts them into effect.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tracing::{info, warn};

use crate::config::log::LogHandle;
use crate::config::tune::{Change, Unchanged, patch, take_over};
use crate::config::{self, Overrides, Parsed, shown};
use crate::regular_file::{PATIENCE, patiently};
use crate::replica::state::Shared;

/// Shows and changes the settings of one replica.
#[derive(Debug)]
pub struct Tuner {
    current: Mutex<Parsed>,
    shared: Arc<Shared>,
    log: LogHandle,
    /// Where the settings came from.
    overrides: Overrides,
    path: Option<PathBuf>,
    /// A read of the file has not come back yet.
    reading: AtomicBool,
}

impl Tuner {
    /// For a replica that was started with `parsed`, which came from `overrides` and the file at `path`.
    #[must_use]
    pub fn new(
        parsed: Parsed,
        overrides: Overrides,
        path: Option<PathBuf>,
        shared: Arc<Shared>,
        log: LogHandle,
    ) -> Self {
        shared.note_unwise(parsed.unwise());
        Self {
            current: Mutex::new(parsed),
            shared,
            log,
            overrides,
            path,
            reading: AtomicBool::new(false),
        }
    }

    /// Whether anything may be changed over HTTP.
    pub fn is_writable(&self) -> bool {
        self.current().admin.writable
    }

    /// All settings.
    pub fn page(&self) -> Value {
        shown::page(&self.current())
    }

    /// Changes what `wanted` says, all or nothing. What was changed, and what is unwise about it, comes back.
    ///
    /// # Errors
    /// [`Unchanged`] names each thing that is wrong.
    pub fn change(&self, wanted: &Value) -> Result<Change, Unchanged> {
        let mut current = self.current();
        let change = patch(&mut current, wanted)?;
        if !change.changed.is_empty() {
            // Before the level may be another. Nobody at the file sees it, so that it is no matter of every day.
            warn!(
                changed = change.changed.join(", "),
                "settings were changed over HTTP"
            );
        }
        for warning in &change.warnings {
            warn!("{warning}");
        }
        self.apply(&current);
        Ok(change)
    }

    /// Reads the file again and takes over what can be; opens the log file again. What is wrong goes to the log, and
    /// then nothing is changed. Files are waited for on a thread of its own, and not for ever.
    pub async fn reload(self: Arc<Self>) {
        // Relaxed: nothing is read on the strength of it.
        if self.reading.swap(true, Relaxed) {
            warn!("the settings are still being read; the disk does not answer");
            return;
        }
        let this = Arc::clone(&self);
        let read = patiently(move || {
            let reopened = this.log.reopen();
            let read = config::load(&this.overrides, this.path.as_deref());
            this.reading.store(false, Relaxed);
            (reopened, read)
        });
        let Some((reopened, read)) = read.await else {
            warn!(within = ?PATIENCE, "the settings cannot be read in time and stay as they are");
            return;
        };
        if let Err(error) = reopened {
            warn!(%error, "the log file cannot be opened again; what was open stays");
        }
        match read {
            Ok(new) => self.take(&new),
            Err(error) => warn!(%error, "the settings cannot be reloaded and stay as they are"),
        }
    }

    fn take(&self, new: &Parsed) {
        let mut current = self.current();
        let (change, fixed) = match take_over(&mut current, new) {
            Ok(taken) => taken,
            Err(error) => {
                warn!(%error, "the settings cannot be reloaded and stay as they are");
                return;
            }
        };
        self.apply(&current);
        drop(current);
        for warning in &change.warnings {
            warn!("{warning}");
        }
        match &change.changed[..] {
            [] => info!("the settings were reloaded; none has changed"),
            keys => info!(changed = keys.join(", "), "the settings were reloaded"),
        }
        if !fixed.is_empty() {
            warn!(
                unchanged = fixed.join(", "),
                "settings that need a start stay as they are"
            );
        }
    }

    fn current(&self) -> MutexGuard<'_, Parsed> {
        // Changes are put together aside, so that what a panic leaves is whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, parsed: &Parsed) {
        self.shared.thresholds.set(parsed.serve.thresholds());
        self.shared
            .thresholds
            .set_broadcast_max_age(Some(parsed.serve.broadcast_max_age()));
        self.shared
            .thresholds
            .set_max_outage(parsed.serve.max_outage);
        self.shared.audit.set_knobs(parsed.serve.audit);
        self.shared.note_unwise(parsed.unwise());
        self.log.set_level(parsed.log.level);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tidegate_core::clock::{Clock, ManualClock};
    use tidegate_core::{Moment, RegionMap};

    use super::*;

    #[tokio::test]
    async fn a_changed_threshold_shuts_the_gate_that_was_open_before() {
        let parsed = config::load(&Overrides::default(), None).expect("defaults");
        let clock = ManualClock::new(Moment::from_nanos(1_000_000_000));
        let shared = Arc::new(Shared::new(
            Arc::new(clock.clone()),
            parsed.serve.thresholds(),
        ));
        let now = clock.now();
        shared.gate.begin(1);
        shared.gate.head_received(1, 10);
        shared.gate.apply_started(1, now);
        shared.gate.apply_finished(1, 10, now);
        shared.gate.probe_answered(1, now, 10);
        shared.map.replace_with(RegionMap::new(), 1);
        shared.gate.publish(1);
        clock.advance(Duration::from_secs(6));
        let serves = || {
            shared
                .gate
                .decide(1, clock.now(), &shared.thresholds.get().into())
                .is_serve()
        };
        let log = LogHandle::detached();
        let tuner = Tuner::new(parsed, Overrides::default(), None, Arc::clone(&shared), log);
        let tuner = Arc::new(tuner);
        assert!(serves());
        assert!(
            tuner.change(&json!({"max-age": "1s"})).is_err(),
            "below the interval of probes"
        );
        assert!(serves());
        tuner
            .change(&json!({"max-age": "5s", "audit-grace": "1m"}))
            .expect("good");
        assert!(!serves());
        assert_eq!(shared.audit.knobs().grace, Duration::from_secs(60));
        Arc::clone(&tuner).reload().await;
        assert!(serves(), "back to what the file and the flags say");
    }
}
