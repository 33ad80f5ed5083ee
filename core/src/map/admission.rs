//! Whether a newcomer may enter the map: M3 as pure functions.
//!
//! The map and the sequential oracle share these rules and nothing else. The
//! epoch rules are those of PD's `check`; the order of equal epochs is that of
//! [`Provenance`](crate::provenance::Provenance).

use crate::entry::Entry;
use crate::map::batch::Expect;
use crate::map::outcome::{Refusal, RefusalReason};

/// Whether `newcomer` may replace `known`, the live entry with the same id.
pub(crate) fn admit_over_same_id(newcomer: &Entry, known: &Entry) -> Result<(), Refusal> {
    let reason = if newcomer.epoch() == known.epoch() {
        if newcomer.provenance().replaces(known.provenance()) {
            return Ok(());
        }
        RefusalReason::OlderTruth
    } else {
        if newcomer.region().is_recreated() || !newcomer.epoch().is_older_than(known.epoch()) {
            return Ok(());
        }
        RefusalReason::OlderEpoch
    };
    Err(Refusal::lost_to(reason, known))
}

/// Whether `newcomer` may displace `overlapped`, a live entry with another id.
///
/// Only versions are compared, and an equal version loses to the newcomer: two
/// regions that overlap under one version cannot both exist, and the one that
/// was reported last is the better guess.
pub(crate) fn admit_over_other_id(newcomer: &Entry, overlapped: &Entry) -> Result<(), Refusal> {
    if newcomer.region().is_recreated() || newcomer.epoch().version >= overlapped.epoch().version {
        Ok(())
    } else {
        Err(Refusal::lost_to(RefusalReason::OverlapsNewer, overlapped))
    }
}

/// Whether an expectation about the entry of region `id` holds. `live` looks up
/// the live entry of an id.
pub(crate) fn admit_expected<'a>(
    expect: &Expect,
    id: u64,
    live: impl FnOnce(u64) -> Option<&'a Entry>,
) -> Result<(), Refusal> {
    let met = match expect {
        Expect::Any => return Ok(()),
        Expect::Entry(expected) => {
            let found = live(expected.id());
            (
                found.is_some_and(|found| std::ptr::eq(found, &**expected)),
                found,
            )
        }
        Expect::Absent => {
            let found = live(id);
            (found.is_none(), found)
        }
    };
    match met {
        (true, _) => Ok(()),
        (false, Some(found)) => Err(Refusal::lost_to(RefusalReason::Unexpected, found)),
        (false, None) => Err(Refusal {
            reason: RefusalReason::Unexpected,
            lost_to: None,
        }),
    }
}
