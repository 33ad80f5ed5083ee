//! How long a client's entry lives, and how seldom that is written down.
//!
//! An entry of a client carries a deadline. Each access moves it on, so that
//! what is in use stays and what is not goes. Written naively that is a shared
//! write for each lookup; entries loaded together would also expire together,
//! and all be loaded again at once. Both are answered by a band above the base:
//!
//! ```text
//!   access        earliest         deadline, drawn in
//!     now         next write     this part of the line
//!      |---- band ----|              |------ band ------|
//!      |------------- base + band ---|
//! ```
//!
//! - A deadline is `now + base + band + jitter`, the jitter drawn from one more
//!   band, so that deadlines of one moment spread over a band.
//! - An access moves the deadline on only once less than `base` is left of it.
//!   That takes at least a band from the write before, whatever was drawn: **a
//!   renewal writes at most once per band**. All accesses in between read.
//! - An entry that nobody asks for any more lives at least `base` after the last
//!   access and less than `base` plus two bands.
//!
//! Nothing in here reads a clock, draws a number or writes: see
//! [`StateWord::renew`](super::StateWord::renew).

use std::time::Duration;

use crate::clock::Moment;

/// The time to live of a client's entries.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ttl {
    base: u64,
    band: u64,
}

/// How a deadline stands at a moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
pub enum Standing {
    /// It has passed.
    Expired,
    /// An access moves it on.
    Due,
    /// It is far enough off for an access to leave it.
    InBand,
}

impl Ttl {
    /// What TiKV's clients use: ten minutes, spread over one.
    pub const DEFAULT: Self = Self::new(Duration::from_secs(600), Duration::from_secs(60));

    /// Entries live for `base` after the last access at least, and less than two
    /// bands longer; a renewal writes at most once per `band`. A band of zero
    /// spreads nothing and writes whenever time has moved on. Longer times than
    /// 584 years are cut down to that.
    #[must_use]
    pub const fn new(base: Duration, band: Duration) -> Self {
        Self {
            base: nanos(base),
            band: nanos(band),
        }
    }

    /// How long an entry lives after the last access, at least.
    #[must_use]
    pub const fn base(self) -> Duration {
        Duration::from_nanos(self.base)
    }

    /// The time over which deadlines spread, and between two writes at least.
    #[must_use]
    pub const fn band(self) -> Duration {
        Duration::from_nanos(self.band)
    }

    /// The deadline of an entry that is loaded or renewed at `now`. `jitter` is
    /// drawn evenly from all of `u32`.
    #[must_use]
    pub const fn deadline(self, now: Moment, jitter: u32) -> Moment {
        // Less than a band: the product is shifted by what `jitter` is short of.
        let drawn = ((self.band as u128 * jitter as u128) >> u32::BITS) as u64;
        let nanos = now
            .as_nanos()
            .saturating_add(self.base)
            .saturating_add(self.band)
            .saturating_add(drawn);
        Moment::from_nanos(nanos)
    }

    /// How `deadline` stands at `now`.
    #[inline]
    pub const fn standing(self, deadline: Moment, now: Moment) -> Standing {
        if has_passed(deadline, now) {
            Standing::Expired
        } else if deadline.as_nanos() < now.as_nanos().saturating_add(self.base) {
            Standing::Due
        } else {
            Standing::InBand
        }
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Whether `deadline` has passed; at the very deadline it has not.
#[inline]
pub(crate) const fn has_passed(deadline: Moment, now: Moment) -> bool {
    now.as_nanos() > deadline.as_nanos()
}

const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Standing, Ttl};
    use crate::clock::Moment;
    use std::time::Duration;

    const TTL: Ttl = Ttl::new(Duration::from_secs(600), Duration::from_secs(60));

    fn secs(secs: u64) -> Moment {
        Moment::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn a_deadline_lies_between_one_and_two_bands_above_the_base() {
        assert_eq!(TTL.deadline(secs(5), 0), secs(5 + 660));
        assert_eq!(TTL.deadline(secs(5), 1 << 31), secs(5 + 690));
        let last = TTL.deadline(secs(5), u32::MAX);
        assert!(last < secs(5 + 720) && last > secs(5 + 719));
    }

    #[test]
    fn a_deadline_is_left_alone_until_less_than_the_base_remains() {
        let deadline = secs(1000);
        let standing = |now| TTL.standing(deadline, now);
        assert_eq!(standing(secs(340)), Standing::InBand);
        assert_eq!(standing(secs(400)), Standing::InBand);
        assert_eq!(standing(Moment::from_nanos(400_000_000_001)), Standing::Due);
        assert_eq!(standing(secs(1000)), Standing::Due);
        assert_eq!(
            standing(Moment::from_nanos(1_000_000_000_001)),
            Standing::Expired
        );
    }

    #[test]
    fn without_a_band_every_later_access_is_due() {
        let ttl = Ttl::new(Duration::from_secs(2), Duration::ZERO);
        let deadline = ttl.deadline(secs(1), u32::MAX);
        assert_eq!(deadline, secs(3));
        assert_eq!(ttl.standing(deadline, secs(1)), Standing::InBand);
        let later = Moment::from_nanos(1_000_000_001);
        assert_eq!(ttl.standing(deadline, later), Standing::Due);
    }

    #[test]
    fn the_end_of_time_does_not_wrap() {
        let end = Moment::from_nanos(u64::MAX);
        let ttl = Ttl::new(Duration::MAX, Duration::MAX);
        assert_eq!(ttl.deadline(secs(1), u32::MAX), end);
        assert_eq!(ttl.standing(end, end), Standing::InBand);
    }

    proptest! {
        #[test]
        fn a_renewal_is_due_at_most_once_per_band(
            now in 1..u64::MAX / 4,
            base in 0..u64::MAX / 8,
            band in 0..u64::MAX / 16,
            jitter: u32,
            later: u64,
        ) {
            let ttl = Ttl::new(Duration::from_nanos(base), Duration::from_nanos(band));
            let now = Moment::from_nanos(now);
            let deadline = ttl.deadline(now, jitter);
            let later = now.saturating_add(Duration::from_nanos(later % (u64::MAX / 4)));
            let passed = later.saturating_since(now);
            match ttl.standing(deadline, later) {
                Standing::InBand => prop_assert!(passed < ttl.band() * 2 || band == 0),
                Standing::Due => {
                    prop_assert!(passed > ttl.band(), "written twice in a band");
                    prop_assert!(ttl.deadline(later, 0) > deadline, "only grows");
                }
                Standing::Expired => prop_assert!(passed > ttl.base(), "gone too early"),
            }
        }
    }
}
