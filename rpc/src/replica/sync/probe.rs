//! The head probe: asking the leader how far it is, beside the stream that may be held up.
//!
//! A probe is a sync stream of its own, opened at the replica's applied index under a name that no other stream has, so
//! that it replaces nothing, and cancelled after its first frame. The leader answers at once: with nothing, when that
//! index is its head, or with the records that follow. Both show the head that the leader had when it answered, which
//! is no earlier than when the probe was sent.
//!
//! A leader that does not hold the index any more answers with a full sync, for which it copies its whole map. So a
//! probe is sent only when the index must be in the smallest ring that a leader has ([`may_probe`]).

use std::time::Duration;

use tidegate_core::gate::Lag;

use super::frame::Shape;

/// What decides whether a probe is sent.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// The applied index that the probe would ask for.
    pub applied: u64,
    /// How far the stream is known to be behind.
    pub lag: Lag,
    /// Since when nothing has been heard from the stream.
    pub silent_for: Duration,
}

/// Bounds of what a probe may be sent under.
#[derive(Clone, Copy, Debug)]
pub struct ProbeBounds {
    /// The lag must be below this: half of the smallest ring.
    pub lag_below: u64,
    /// The stream must have been heard of within this.
    pub heard_within: Duration,
}

/// Why no probe is sent now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Held {
    /// Nothing has been applied under an index yet.
    NoIndex,
    /// So far behind that the leader may not hold the index any more; or it is not known how far.
    Behind,
    /// The stream has not been heard of lately.
    Silent,
}

/// Whether a probe may be sent. That the term is unchanged is the session's to see: there is one session for a term.
///
/// # Errors
///
/// The condition that does not hold.
pub fn may_probe(now: Circumstances, bounds: ProbeBounds) -> Result<(), Held> {
    if now.applied == 0 {
        return Err(Held::NoIndex);
    }
    match now.lag {
        Lag::Known(lag) if lag < bounds.lag_below => {}
        _ => return Err(Held::Behind),
    }
    if now.silent_for > bounds.heard_within {
        return Err(Held::Silent);
    }
    Ok(())
}

/// What the first frame of a probe shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// The leader's head: once it is applied, the map holds all that the leader had recorded when the probe was sent.
    Head(u64),
    /// A full frame: the head is at least this, and nobody can tell how much further.
    AtLeast(u64),
    /// Nothing. The leader chose a full sync, reported an error, or answered for another index.
    Nothing,
}

/// Reads the first frame of a probe that asked for the records from `asked` on. Frames of `batch_limit` regions are
/// full.
#[must_use]
pub fn read_answer(asked: u64, frame: Shape, batch_limit: u64) -> Shown {
    let counts = !frame.error && !frame.foreign && frame.unsound.is_none();
    if !counts || frame.start_index != asked || asked == 0 {
        return Shown::Nothing;
    }
    match asked.checked_add(frame.len) {
        None => Shown::Nothing,
        Some(head) if frame.len < batch_limit => Shown::Head(head),
        Some(head) => Shown::AtLeast(head),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ProbeBounds = ProbeBounds {
        lag_below: 5_000,
        heard_within: Duration::from_secs(15),
    };

    fn now() -> Circumstances {
        Circumstances {
            applied: 7,
            lag: Lag::Known(0),
            silent_for: Duration::ZERO,
        }
    }

    fn frame(start_index: u64, len: u64) -> Shape {
        Shape {
            start_index,
            len,
            error: false,
            foreign: false,
            unsound: None,
        }
    }

    #[test]
    fn f8_no_probe_without_an_index() {
        let circumstances = Circumstances {
            applied: 0,
            ..now()
        };
        assert_eq!(may_probe(circumstances, BOUNDS), Err(Held::NoIndex));
    }

    #[test]
    fn f8_no_probe_from_half_the_smallest_ring_behind() {
        for (lag, sent) in [
            (Lag::Known(4_999), true),
            (Lag::Known(5_000), false),
            (Lag::Unknown, false),
        ] {
            let circumstances = Circumstances { lag, ..now() };
            assert_eq!(may_probe(circumstances, BOUNDS).is_ok(), sent, "{lag:?}");
        }
    }

    #[test]
    fn f8_no_probe_when_the_stream_is_silent() {
        let silent_for = Duration::from_millis(15_001);
        let circumstances = Circumstances {
            silent_for,
            ..now()
        };
        assert_eq!(may_probe(circumstances, BOUNDS), Err(Held::Silent));
    }

    #[test]
    fn f8_nothing_new_and_a_partial_frame_show_the_head() {
        assert_eq!(read_answer(7, frame(7, 0), 1000), Shown::Head(7));
        assert_eq!(read_answer(7, frame(7, 999), 1000), Shown::Head(1006));
    }

    #[test]
    fn f8_a_full_first_frame_proves_nothing_and_raises_the_head() {
        assert_eq!(read_answer(7, frame(7, 1000), 1000), Shown::AtLeast(1007));
    }

    #[test]
    fn f8_a_full_sync_an_error_or_another_index_shows_nothing() {
        for answer in [
            frame(0, 1000),
            frame(0, 1),
            frame(6, 0),
            frame(8, 0),
            frame(8, 3),
            Shape {
                error: true,
                ..frame(7, 0)
            },
            Shape {
                foreign: true,
                ..frame(7, 0)
            },
        ] {
            assert_eq!(read_answer(7, answer, 1000), Shown::Nothing, "{answer:?}");
        }
    }
}
