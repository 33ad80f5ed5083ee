//! How fast a comparison goes: by what the leader needs for its answers.
//!
//! The time from a question to its answer is at least the time that the leader worked on it, so a pause of `1/share - 1`
//! times that keeps the leader's part below `share` of one core, whatever the leader is busy with besides. The longer
//! it takes, because it is loaded or far away, the slower the comparison goes.

use std::time::Duration;

/// No answer is so slow that the next question waits longer than this.
const LONGEST: Duration = Duration::from_secs(30);

/// The bounds of a comparison's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The share of a core of the leader, above 0 and at most 1.
    pub share: f64,
    /// Regions a second at most.
    pub rate: u32,
}

impl Pace {
    /// How long to wait after an answer that took `took` and had `regions` regions. Half a minute at most.
    #[must_use]
    pub fn pause(self, took: Duration, regions: usize) -> Duration {
        let by_share = took.as_secs_f64() * (1.0 / self.share.clamp(1e-3, 1.0) - 1.0);
        // A question costs something even if nothing is found.
        let by_rate = regions.max(1) as f64 / f64::from(self.rate.max(1)) - took.as_secs_f64();
        Duration::try_from_secs_f64(by_share.max(by_rate).max(0.0))
            .map_or(LONGEST, |pause| pause.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_works_for_no_more_than_its_share() {
        let pace = Pace {
            share: 0.01,
            rate: 1_000_000,
        };
        assert_eq!(
            pace.pause(Duration::from_millis(1), 512),
            Duration::from_millis(99)
        );
        assert_eq!(pace.pause(Duration::from_secs(2), 512), LONGEST);
    }

    #[test]
    fn a_leader_that_answers_at_once_is_asked_no_faster_than_the_rate() {
        let pace = Pace {
            share: 1.0,
            rate: 1_000,
        };
        assert_eq!(pace.pause(Duration::ZERO, 500), Duration::from_millis(500));
        assert_eq!(
            pace.pause(Duration::from_millis(200), 500),
            Duration::from_millis(300)
        );
        assert_eq!(pace.pause(Duration::from_secs(1), 500), Duration::ZERO);
        assert_eq!(pace.pause(Duration::ZERO, 0), Duration::from_millis(1));
    }
}
