//! Tells of answers that do not fit their questions, at most so often.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::Moment;

use crate::lookup::fit::Misfit;

/// The least time between two warnings: any lookup may bring about an answer.
const EVERY: Duration = Duration::from_secs(10);

/// What has been said, and what has not.
#[derive(Debug, Default)]
pub(super) struct Warned(Mutex<Since>);

#[derive(Debug, Default)]
struct Since {
    warned_at: Option<Moment>,
    untold: u64,
}

impl Warned {
    /// Logs it, unless that was done lately; what was left out is counted in the next one.
    pub(super) fn note(&self, url: &str, misfit: Misfit, now: Moment) {
        let Some(untold) = self.due(now) else { return };
        tracing::warn!(
            url,
            %misfit,
            untold,
            "the PD leader's answer does not fit the question and is not passed on; look for a proxy between the two, \
             or a leader that has just begun"
        );
    }

    /// Counts one; how many have not been told of before it, if it is to be told.
    fn due(&self, now: Moment) -> Option<u64> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = |at: Moment| now.saturating_since(at) < EVERY;
        if since.warned_at.is_some_and(lately) {
            since.untold += 1;
            return None;
        }
        since.warned_at = Some(now);
        Some(std::mem::take(&mut since.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_in_ten_seconds_tells_of_those_before_it() {
        let warned = Warned::default();
        let due = |seconds: u64| warned.due(Moment::from_nanos(1 + seconds * 1_000_000_000));
        let told = [0, 1, 9, 10, 15, 30].map(due);
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
