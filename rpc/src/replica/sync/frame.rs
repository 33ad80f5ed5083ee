//! What a frame of the sync stream means.
//!
//! Content alone does not tell: a non-empty frame carries a history index or a position in the leader's snapshot, an
//! empty one ends a full sync, says that there is nothing new, or keeps the stream alive. The meaning follows from what
//! was asked and what came before, so classification is a pure function from a [`Phase`] and a [`Shape`] to a [`Kind`]
//! and the next phase. It runs on receipt, in order, before anything is queued.
//!
//! | asked | first frame | meaning |
//! |---|---|---|
//! | 0 | non-empty at 0 | the snapshot begins |
//! | 0 | empty at E | the leader's snapshot is empty, and complete |
//! | S | empty at S | nothing new |
//! | S | non-empty at S | recorded changes from S on |
//! | S | non-empty at 0 | S is too old or too new: the leader chose a full sync |
//! | S | beyond S | release 8.5: it had no answer, and this is its broadcast; the stream follows from here |
//! | S | anything else | the index space is not the one that S came from |
//!
//! Index 0 is asked of a leader that has shown master's dialect. Release 8.5 would answer it with a part of what was
//! asked; of a leader that may speak its dialect everything is asked by an index beyond all others, which master answers
//! with a full sync as well.
//!
//! In a full sync the snapshot's frames carry positions: 0, then the number of regions sent so far. A frame at another
//! start is the first of the catch-up, whose frames carry true indexes and follow each other without a gap; the
//! empty frame that completes the sync carries the index that follows the catch-up. When the snapshot is empty the
//! catch-up is sent as if it were one, from position 0. When the true index of a catch-up happens to equal the next
//! position the two cannot be told apart, and need not be: both are applied to the same staged map, in order, and the
//! completion frame alone decides the index.

use crate::pd::Dialect;
use crate::proto::pdpb::SyncRegionResponse;

/// The index that asks for everything whatever the dialect: master answers it with a full sync, release 8.5 with
/// nothing before its next broadcast.
pub const BEYOND_ALL: u64 = u64::MAX;

/// The longest list in a frame that is accepted. Leaders send 1,000 regions at a time; a ring sent whole has 10,000.
pub const LONGEST_LIST: usize = 20_000;

/// Regions that a full sync may carry, its catch-up included: several times as many as the largest clusters have. A
/// stream that goes on beyond them does not end, and what it is building must not grow for ever.
pub const LARGEST_FULL_SYNC: u64 = 1 << 25;

/// What classification looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// The start index on the wire.
    pub start_index: u64,
    /// Number of regions.
    pub len: u64,
    /// The header carries an error; nothing else in the frame counts.
    pub error: bool,
    /// The header names another cluster.
    pub foreign: bool,
    /// What makes the lists such as no leader sends; nothing in the frame counts then.
    pub unsound: Option<&'static str>,
}

impl Shape {
    /// The shape of a frame received from a leader of `cluster_id`.
    #[must_use]
    pub fn of(frame: &SyncRegionResponse, cluster_id: u64) -> Self {
        let header = frame.header.as_ref();
        Self {
            start_index: frame.start_index,
            len: frame.regions.len() as u64,
            error: header.is_some_and(|header| header.error.is_some()),
            foreign: header
                .is_some_and(|header| header.cluster_id != 0 && header.cluster_id != cluster_id),
            unsound: unsound(frame),
        }
    }
}

fn unsound(frame: &SyncRegionResponse) -> Option<&'static str> {
    let beside = frame
        .region_leaders
        .len()
        .max(frame.region_stats.len())
        .max(frame.buckets.len());
    if frame.regions.len().max(beside) > LONGEST_LIST {
        Some("a frame of more elements than a leader sends at a time")
    } else if frame.regions.is_empty() && beside > 0 {
        Some("leaders, statistics or buckets of no region")
    } else {
        None
    }
}

/// What the stream has shown so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// The request was sent and nothing has come back.
    Asked {
        /// The start index that was asked for.
        index: u64,
    },
    /// In a full sync, before its catch-up.
    Snapshot {
        /// Regions received: the position that the next frame of the snapshot carries.
        position: u64,
    },
    /// In the catch-up of a full sync.
    CatchUp {
        /// Regions received since the full sync began.
        received: u64,
        /// The index that the next frame carries.
        next: u64,
    },
    /// Following recorded changes.
    Following {
        /// The index that the next frame carries.
        next: u64,
    },
}

/// What a frame means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Part of the leader's snapshot; its start index is a position.
    Snapshot,
    /// Recorded changes within a full sync.
    CatchUp,
    /// The full sync is complete; the start index is the next index.
    Completion,
    /// Recorded changes at the index that was expected.
    Records,
    /// Nothing new since the index that was asked for.
    InSync,
    /// Nothing new since the last frame.
    Keepalive,
    /// The leader had no answer for the index that was asked for. This is its broadcast, and the records follow from
    /// this frame on; what was before them has to be fetched beside the stream.
    Joined,
    /// Indexes were skipped.
    Gap {
        /// The first that is missing.
        missing: u64,
    },
    /// The index went back: another index space, or records that were seen already.
    Regressed,
    /// Not what a leader of this kind sends.
    Broken(&'static str),
    /// The leader reports an error and is about to close the stream.
    Error,
}

impl Kind {
    /// The leader's head that a frame of this kind shows; `None` when its start index is not a history index, or is of
    /// another index space.
    #[must_use]
    pub fn head(self, frame: Shape) -> Option<u64> {
        match self {
            Self::CatchUp
            | Self::Completion
            | Self::Records
            | Self::InSync
            | Self::Keepalive
            | Self::Joined
            | Self::Gap { .. } => frame.start_index.checked_add(frame.len),
            Self::Snapshot | Self::Regressed | Self::Broken(_) | Self::Error => None,
        }
    }

    /// Whether the frame belongs to a full sync.
    #[must_use]
    pub fn is_full_sync(self) -> bool {
        matches!(
            self,
            Self::Snapshot | Self::CatchUp | Self::Completion | Self::Joined
        )
    }

    /// Whether a frame of this kind, received in `phase`, is such as only master sends in answer to an index other than
    /// 0: behind frames that count from 0, one at another place. On release 8.5 those were its first records, and the
    /// next follow them.
    #[must_use]
    pub fn shows_master(self, phase: Phase, frame: Shape) -> bool {
        match phase {
            Phase::Snapshot { position } => {
                matches!(self, Self::CatchUp | Self::Completion) && frame.start_index != position
            }
            _ => false,
        }
    }
}

/// Gives a frame its meaning, and the phase that follows it. A kind that ends the stream leaves the phase as it was.
/// `dialect` is the leader's as far as it is known.
#[must_use]
pub fn classify(phase: Phase, frame: Shape, dialect: Dialect) -> (Kind, Phase) {
    if frame.error {
        return (Kind::Error, phase);
    }
    if frame.foreign {
        return (Kind::Broken("a frame of another cluster"), phase);
    }
    if let Some(what) = frame.unsound {
        return (Kind::Broken(what), phase);
    }
    let Some(end) = frame.start_index.checked_add(frame.len) else {
        return (Kind::Broken("an index beyond the largest"), phase);
    };
    let (start, empty) = (frame.start_index, frame.len == 0);
    match phase {
        Phase::Asked { index: 0 } => match (empty, start) {
            (true, next) => (Kind::Completion, Phase::Following { next }),
            (false, 0) => (Kind::Snapshot, Phase::Snapshot { position: end }),
            (false, _) => (Kind::Broken("a full sync that does not begin at 0"), phase),
        },
        Phase::Asked { index } if !empty && start == 0 => {
            debug_assert_ne!(index, 0, "handled above");
            (Kind::Snapshot, Phase::Snapshot { position: end })
        }
        Phase::Asked { index }
            if (start > index || index == BEYOND_ALL) && dialect == Dialect::Release85 =>
        {
            (Kind::Joined, Phase::Following { next: end })
        }
        Phase::Asked { index: next } => follow(phase, next, start, end, Kind::InSync),
        Phase::Following { next } => follow(phase, next, start, end, Kind::Keepalive),
        Phase::Snapshot { .. } if empty => (Kind::Completion, Phase::Following { next: start }),
        Phase::Snapshot { position: received } | Phase::CatchUp { received, .. }
            if frame.len > LARGEST_FULL_SYNC.saturating_sub(received) =>
        {
            (Kind::Broken("a full sync without an end"), phase)
        }
        Phase::Snapshot { position } if start == position => {
            (Kind::Snapshot, Phase::Snapshot { position: end })
        }
        Phase::Snapshot { position } => {
            let received = position + frame.len;
            (
                Kind::CatchUp,
                Phase::CatchUp {
                    received,
                    next: end,
                },
            )
        }
        Phase::CatchUp { next, .. } if start != next => {
            (Kind::Broken("a catch-up with skipped indexes"), phase)
        }
        Phase::CatchUp { .. } if empty => (Kind::Completion, Phase::Following { next: start }),
        Phase::CatchUp { received, .. } => {
            let received = received + frame.len;
            (
                Kind::CatchUp,
                Phase::CatchUp {
                    received,
                    next: end,
                },
            )
        }
    }
}

fn follow(phase: Phase, next: u64, start: u64, end: u64, nothing_new: Kind) -> (Kind, Phase) {
    if start > next {
        (Kind::Gap { missing: next }, phase)
    } else if start < next {
        (Kind::Regressed, phase)
    } else if end == start {
        (nothing_new, Phase::Following { next })
    } else {
        (Kind::Records, Phase::Following { next: end })
    }
}

/// How far the copy of a leader's map has come that release 8.5 sends for index 0, on a stream of its own.
///
/// Frames count from 0, and nothing says when they end. They are as long as each other but for the last; once the copy
/// is sent the stream hears the broadcast, whose frames are elsewhere or empty. What is asked of a leader whose history
/// reaches back to 0 is its history instead, in one frame.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Copying {
    position: u64,
    batch: u64,
}

/// What a frame says about the copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Copied {
    /// A part of it, and perhaps the last.
    Part {
        /// Nothing follows.
        last: bool,
    },
    /// The copy has ended before this frame, which is not part of it.
    Ended,
    /// The leader reports an error.
    Error,
    /// Not what a leader sends.
    Broken(&'static str),
}

/// Regions in a full frame of releases before 8.5.4.
pub const OLD_BATCH: u64 = 100;

impl Copying {
    /// Takes the next frame. Full frames have `batch_limit` regions, or [`OLD_BATCH`].
    #[must_use]
    pub fn take(&mut self, frame: Shape, batch_limit: u64) -> Copied {
        if frame.error {
            return Copied::Error;
        }
        if frame.foreign {
            return Copied::Broken("a frame of another cluster");
        }
        if let Some(what) = frame.unsound {
            return Copied::Broken(what);
        }
        if frame.len == 0 || frame.start_index != self.position {
            return Copied::Ended;
        }
        if frame.len > LARGEST_FULL_SYNC.saturating_sub(self.position) {
            return Copied::Broken("a full sync without an end");
        }
        let first = self.position == 0;
        self.position += frame.len;
        let last = if first {
            self.batch = frame.len;
            frame.len != batch_limit && frame.len != OLD_BATCH
        } else {
            frame.len != self.batch
        };
        Copied::Part { last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER: Dialect = Dialect::Master;

    fn frame(start_index: u64, len: u64) -> Shape {
        Shape {
            start_index,
            len,
            error: false,
            foreign: false,
            unsound: None,
        }
    }

    fn run(asked: u64, frames: &[(u64, u64)]) -> Vec<Kind> {
        run_in(Dialect::Master, asked, frames)
    }

    fn run_in(dialect: Dialect, asked: u64, frames: &[(u64, u64)]) -> Vec<Kind> {
        let mut phase = Phase::Asked { index: asked };
        frames
            .iter()
            .map(|&(start, len)| {
                let (kind, next) = classify(phase, frame(start, len), dialect);
                phase = next;
                kind
            })
            .collect()
    }

    #[test]
    fn a_full_sync_is_positions_then_true_indexes_then_an_empty_frame() {
        use Kind::{CatchUp, Completion, Keepalive, Records, Snapshot};
        assert_eq!(
            run(
                0,
                &[
                    (0, 1000),
                    (1000, 1000),
                    (2000, 7),
                    (50_000, 1000),
                    (51_000, 1),
                    (51_001, 0),
                    (51_001, 2),
                    (51_003, 0)
                ]
            ),
            [
                Snapshot, Snapshot, Snapshot, CatchUp, CatchUp, Completion, Records, Keepalive
            ]
        );
    }

    #[test]
    fn an_empty_snapshot_sends_its_catch_up_from_position_0() {
        use Kind::{Completion, Snapshot};
        assert_eq!(
            run(0, &[(0, 3), (3, 1), (904, 0)]),
            [Snapshot, Snapshot, Completion]
        );
        assert_eq!(run(0, &[(904, 0)]), [Completion]);
    }

    #[test]
    fn a_resumed_stream_is_in_sync_or_gets_its_records() {
        use Kind::{InSync, Keepalive, Records};
        assert_eq!(
            run(7, &[(7, 0), (7, 0), (7, 3)]),
            [InSync, Keepalive, Records]
        );
        assert_eq!(run(7, &[(7, 1000), (1007, 2)]), [Records, Records]);
    }

    #[test]
    fn the_leader_may_choose_a_full_sync() {
        use Kind::{Completion, Snapshot};
        assert_eq!(
            run(7, &[(0, 5), (5, 5), (40, 0)]),
            [Snapshot, Snapshot, Completion]
        );
    }

    #[test]
    fn skipped_indexes_are_a_gap_and_earlier_ones_another_index_space() {
        use Kind::{Gap, InSync, Regressed};
        for start in [8, 1000] {
            for len in [0, 3] {
                assert_eq!(run(7, &[(start, len)]), [Gap { missing: 7 }]);
                assert_eq!(
                    run(7, &[(7, 0), (start, len)]),
                    [InSync, Gap { missing: 7 }]
                );
            }
        }
        assert_eq!(run(7, &[(6, 0)]), [Regressed]);
        assert_eq!(run(7, &[(6, 2)]), [Regressed]);
        assert_eq!(run(7, &[(7, 0), (0, 2)]), [InSync, Regressed]);
    }

    #[test]
    fn a_completion_that_does_not_follow_its_catch_up_breaks_the_full_sync() {
        for (start, len) in [(52, 0), (50, 0), (52, 1)] {
            let kinds = run(0, &[(0, 10), (50, 1), (start, len)]);
            assert!(matches!(kinds[2], Kind::Broken(_)), "{kinds:?}");
        }
        assert!(matches!(run(0, &[(5, 1)])[0], Kind::Broken(_)));
    }

    #[test]
    fn a_full_sync_of_more_regions_than_clusters_have_breaks_off() {
        let left = 500;
        let position = LARGEST_FULL_SYNC - left;
        let snapshot = Phase::Snapshot { position };
        let catch_up = Phase::CatchUp {
            received: position,
            next: 70,
        };
        for (phase, start) in [(snapshot, position), (snapshot, 70), (catch_up, 70)] {
            let (kind, next) = classify(phase, frame(start, left), MASTER);
            assert!(kind.is_full_sync(), "{kind:?}");
            let (more, _) = classify(next, frame(start + left, 1), MASTER);
            assert!(matches!(more, Kind::Broken(_)), "{more:?}");
            let (end, _) = classify(next, frame(start + left, 0), MASTER);
            assert_eq!(end, Kind::Completion);
        }
    }

    #[test]
    fn lists_of_no_region_and_lists_beyond_measure_break_the_stream() {
        type Spoil = fn(&mut SyncRegionResponse, usize);
        let spoils: [Spoil; 4] = [
            |frame, len| frame.regions = vec![Default::default(); len],
            |frame, len| frame.region_leaders = vec![Default::default(); len],
            |frame, len| frame.region_stats = vec![Default::default(); len],
            |frame, len| frame.buckets = vec![Default::default(); len],
        ];
        let kind = |frame: &SyncRegionResponse| {
            classify(Phase::Following { next: 7 }, Shape::of(frame, 1), MASTER).0
        };
        let seven = SyncRegionResponse {
            start_index: 7,
            ..SyncRegionResponse::default()
        };
        assert_eq!(kind(&seven), Kind::Keepalive);
        for (at, spoil) in spoils.into_iter().enumerate() {
            let mut alone = seven.clone();
            spoil(&mut alone, 1);
            assert_eq!(matches!(kind(&alone), Kind::Broken(_)), at > 0, "{alone:?}");
            for (len, fits) in [(LONGEST_LIST, true), (LONGEST_LIST + 1, false)] {
                let mut long = seven.clone();
                long.regions = vec![Default::default(); 3];
                spoil(&mut long, len);
                assert_eq!(kind(&long) == Kind::Records, fits, "list {at} of {len}");
            }
        }
    }

    #[test]
    fn errors_foreign_frames_and_overflow_are_told_apart_from_records() {
        let phase = Phase::Following { next: 7 };
        let error = Shape {
            error: true,
            ..frame(7, 3)
        };
        assert_eq!(classify(phase, error, MASTER), (Kind::Error, phase));
        let foreign = Shape {
            foreign: true,
            ..frame(7, 3)
        };
        assert!(matches!(
            classify(phase, foreign, MASTER).0,
            Kind::Broken(_)
        ));
        assert!(matches!(
            classify(phase, frame(u64::MAX, 2), MASTER).0,
            Kind::Broken(_)
        ));
    }

    #[test]
    fn g1_positional_frames_show_no_head_and_all_index_frames_do() {
        assert_eq!(Kind::Snapshot.head(frame(5000, 1000)), None);
        assert_eq!(Kind::Records.head(frame(5000, 1000)), Some(6000));
        assert_eq!(Kind::CatchUp.head(frame(5000, 1000)), Some(6000));
        for kind in [Kind::Completion, Kind::InSync, Kind::Keepalive] {
            assert_eq!(kind.head(frame(5000, 0)), Some(5000));
        }
        assert_eq!(Kind::Regressed.head(frame(3, 1)), None);
    }

    #[test]
    fn release_85_without_an_answer_is_joined_at_its_broadcast() {
        use Kind::{Gap, InSync, Joined, Keepalive, Records};
        let run = |asked, frames: &[_]| run_in(Dialect::Release85, asked, frames);
        for asked in [BEYOND_ALL, 7] {
            assert_eq!(
                run(asked, &[(50, 0), (50, 3), (53, 0)]),
                [Joined, Records, Keepalive]
            );
            assert_eq!(
                run(asked, &[(50, 3), (60, 0)]),
                [Joined, Gap { missing: 53 }]
            );
        }
        assert_eq!(
            run(BEYOND_ALL, &[(0, 0), (0, 2)]),
            [Joined, Records],
            "no record ever"
        );
        for ahead in [(6, 2), (6, 0), (0, 0)] {
            assert_eq!(run(50, &[ahead]), [Kind::Regressed]);
        }
        assert_eq!(run(7, &[(7, 10_000), (10_007, 1)]), [Records, Records]);
        assert_eq!(run(7, &[(7, 0)]), [InSync]);
    }

    #[test]
    fn master_shows_itself_behind_its_snapshot_and_release_85_never_does() {
        let shows = |frames: &[(u64, u64)]| {
            let mut phase = Phase::Asked { index: BEYOND_ALL };
            let mut shown = Vec::new();
            for &(start, len) in frames {
                let shape = frame(start, len);
                let (kind, next) = classify(phase, shape, Dialect::Release85);
                shown.push(kind.shows_master(phase, shape));
                phase = next;
            }
            shown
        };
        assert_eq!(shows(&[(0, 5), (900, 0)]), [false, true]);
        assert_eq!(shows(&[(0, 5), (900, 2)]), [false, true]);
        // A leader of release 8.5 without a record so far, and then with some.
        assert_eq!(shows(&[(0, 5), (5, 3), (8, 0)]), [false; 3]);
        assert_eq!(shows(&[(30, 0), (30, 5), (90, 0)]), [false; 3]);
    }

    #[test]
    fn a_copy_ends_with_a_frame_of_another_length_or_with_the_broadcast() {
        use Copied::{Ended, Part};
        let run = |frames: &[(u64, u64)]| {
            let mut copying = Copying::default();
            frames
                .iter()
                .map(|&(start, len)| copying.take(frame(start, len), 1_000))
                .collect::<Vec<_>>()
        };
        let part = |last| Part { last };
        assert_eq!(
            run(&[(0, 1000), (1000, 1000), (2000, 7)]),
            [part(false), part(false), part(true)]
        );
        assert_eq!(run(&[(0, 100), (100, 99)]), [part(false), part(true)]);
        assert_eq!(run(&[(0, 1000), (900_000, 0)]), [part(false), Ended]);
        assert_eq!(run(&[(0, 1000), (900_000, 3)]), [part(false), Ended]);
        assert_eq!(run(&[(0, 8_000)]), [part(true)], "its history");
        assert_eq!(run(&[(0, 3)]), [part(true)]);
        assert_eq!(run(&[(0, 0)]), [Ended], "no record, whatever the map holds");
        assert_eq!(run(&[(70, 2)]), [Ended]);
    }
}
