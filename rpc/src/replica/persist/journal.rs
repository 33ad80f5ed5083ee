//! What the apply side leaves for the writer: which regions changed, and how far the map is.
//!
//! The hand-over holds ids, not regions: the writer reads the regions from the map when it comes round, so a writer
//! that is behind finds each region once, however often it changed. It holds at most one id for each region, and never
//! makes the applier wait for more than the moment in which the writer takes the whole.
//!
//! The index is noted after the map shows what it stands for, and the writer reads the map after it has taken the
//! index. So what is written is at least as new as the index beside it. That is what a restart needs: the stream is
//! resumed at the index, and whatever is newer is said again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::Key;
use tokio::sync::Notify;

use super::{Mark, Reign};

/// The hand-over.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pending: Mutex<Pending>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// What the map's content is of; `None` while it is of no term that is known.
    mark: Option<Mark>,
    /// The generation that the ids are about.
    generation: u64,
    ids: HashSet<u64>,
    /// Where regions began that went with nothing in their place, as far as was known.
    gone: HashSet<Key>,
    /// Records since the writer last took anything.
    records: u64,
    /// The index moved, or the mark changed.
    moved: bool,
    /// The content is another one as a whole.
    rewrite: bool,
}

/// What the writer takes.
#[derive(Debug)]
pub(super) enum Work {
    /// These regions changed.
    Flush {
        mark: Mark,
        generation: u64,
        ids: HashSet<u64>,
        gone: HashSet<Key>,
    },
    /// All of them did.
    Rewrite { mark: Mark, generation: u64 },
    /// The index on disk means nothing any more.
    Forget,
}

impl Journal {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The map's content came from disk.
    pub(super) fn loaded(&self, generation: u64, mark: Mark) {
        *self.pending() = Pending {
            mark: Some(mark),
            generation,
            ..Pending::default()
        };
    }

    /// A full sync took over. Without a known term it cannot be resumed, and is not kept.
    pub(super) fn replaced(&self, generation: u64, reign: Option<Reign>, next_index: u64) {
        let known = reign.is_some();
        *self.pending() = Pending {
            mark: reign.map(|reign| Mark { reign, next_index }),
            generation,
            rewrite: known,
            moved: known,
            ..Pending::default()
        };
        self.changed.notify_one();
    }

    /// These regions changed in the map that answers.
    pub(super) fn changed(&self, ids: &[u64], gone: Vec<Key>) {
        let mut pending = self.pending();
        if pending.mark.is_none() {
            return;
        }
        pending.records += ids.len() as u64;
        // All are written anyway.
        if !pending.rewrite {
            pending.ids.extend(ids);
            pending.gone.extend(gone);
        }
        drop(pending);
        self.changed.notify_one();
    }

    /// Everything before `next_index` is in the map that answers.
    pub(super) fn reached(&self, next_index: u64) {
        let mut pending = self.pending();
        let Some(mark) = &mut pending.mark else {
            return;
        };
        if mark.next_index == next_index {
            return;
        }
        mark.next_index = next_index;
        pending.moved = true;
        drop(pending);
        self.changed.notify_one();
    }

    /// The own index means nothing any more; until the next full sync nothing is written but that.
    pub(super) fn distrusted(&self) {
        let mut pending = self.pending();
        if pending.mark.is_none() {
            return;
        }
        *pending = Pending {
            generation: pending.generation,
            moved: true,
            ..Pending::default()
        };
        drop(pending);
        self.changed.notify_one();
    }

    /// Returns when something waits.
    pub(super) async fn something(&self) {
        self.until(Pending::waits).await;
    }

    /// Returns when `records` records wait, or something that does not count in records.
    pub(super) async fn many(&self, records: u64) {
        self.until(|pending| pending.records >= records || pending.rewrite)
            .await;
    }

    async fn until(&self, holds: impl Fn(&Pending) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(&self.pending()) {
                return;
            }
            changed.await;
        }
    }

    /// Takes all that waits.
    pub(super) fn take(&self) -> Option<Work> {
        let mut pending = self.pending();
        if !pending.waits() {
            return None;
        }
        pending.records = 0;
        pending.moved = false;
        let generation = pending.generation;
        let Some(mark) = pending.mark.clone() else {
            return Some(Work::Forget);
        };
        if std::mem::take(&mut pending.rewrite) {
            return Some(Work::Rewrite { mark, generation });
        }
        let ids = std::mem::take(&mut pending.ids);
        let gone = std::mem::take(&mut pending.gone);
        Some(Work::Flush {
            mark,
            generation,
            ids,
            gone,
        })
    }

    /// Work that failed waits again, unless the content has become another one meanwhile.
    pub(super) fn give_back(&self, work: Work) {
        let mut pending = self.pending();
        match work {
            Work::Flush {
                generation,
                ids,
                gone,
                ..
            } if pending.generation == generation && pending.mark.is_some() => {
                pending.moved = true;
                if !pending.rewrite {
                    pending.ids.extend(ids);
                    pending.gone.extend(gone);
                }
            }
            Work::Rewrite { generation, .. }
                if pending.generation == generation && pending.mark.is_some() =>
            {
                pending.rewrite = true;
                pending.moved = true;
                pending.ids = HashSet::new();
                pending.gone = HashSet::new();
            }
            Work::Forget if pending.mark.is_none() => pending.moved = true,
            _ => {}
        }
    }

    /// How many regions wait to be written.
    pub(super) fn waiting(&self) -> u64 {
        self.pending().ids.len() as u64
    }
}

impl Pending {
    fn waits(&self) -> bool {
        self.moved || self.rewrite || !self.ids.is_empty() || !self.gone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::pd::Term;

    use super::*;

    fn reign() -> Reign {
        Reign {
            term: Term::from_create_revision(5),
            member_id: 1,
            member_name: "pd".to_owned(),
        }
    }

    fn flushed(work: Option<Work>) -> (u64, Vec<u64>) {
        let Some(Work::Flush { mark, ids, .. }) = work else {
            panic!("no flush: {work:?}");
        };
        let mut ids: Vec<u64> = ids.into_iter().collect();
        ids.sort_unstable();
        (mark.next_index, ids)
    }

    #[test]
    fn a_region_that_changes_often_waits_once_with_the_latest_index() {
        let journal = Journal::default();
        journal.replaced(1, Some(reign()), 10);
        assert!(matches!(
            journal.take(),
            Some(Work::Rewrite { generation: 1, .. })
        ));
        for round in 0..50 {
            journal.changed(&[1, 2], Vec::new());
            journal.reached(12 + 2 * round);
        }
        assert_eq!(journal.waiting(), 2);
        assert_eq!(flushed(journal.take()), (110, vec![1, 2]));
        assert!(journal.take().is_none(), "it is taken once");
    }

    #[test]
    fn work_that_failed_waits_again_with_what_came_since() {
        let journal = Journal::default();
        journal.loaded(
            1,
            Mark {
                reign: reign(),
                next_index: 10,
            },
        );
        assert!(journal.take().is_none(), "what was loaded is on disk");
        journal.changed(&[1], Vec::new());
        journal.reached(11);
        let failed = journal.take().unwrap();
        journal.changed(&[2], Vec::new());
        journal.reached(12);
        journal.give_back(failed);
        assert_eq!(flushed(journal.take()), (12, vec![1, 2]));

        journal.changed(&[3], Vec::new());
        let failed = journal.take().unwrap();
        journal.replaced(2, Some(reign()), 70);
        journal.give_back(failed);
        let taken = journal.take();
        assert!(
            matches!(taken, Some(Work::Rewrite { generation: 2, .. })),
            "{taken:?}"
        );
        journal.changed(&[4], Vec::new());
        journal.give_back(taken.unwrap());
        let again = journal.take();
        assert!(
            matches!(again, Some(Work::Rewrite { generation: 2, .. })),
            "{again:?}"
        );
        assert!(journal.take().is_none(), "the rewrite covers region 4");
    }

    #[test]
    fn what_belongs_to_no_known_term_is_not_kept() {
        let journal = Journal::default();
        journal.changed(&[1], Vec::new());
        journal.reached(2);
        assert!(journal.take().is_none(), "nothing has been published");
        journal.replaced(1, None, 10);
        journal.changed(&[1], Vec::new());
        assert!(journal.take().is_none());
        journal.replaced(3, Some(reign()), 10);
        journal.distrusted();
        journal.changed(&[1], Vec::new());
        journal.reached(11);
        assert!(matches!(journal.take(), Some(Work::Forget)));
        assert!(journal.take().is_none());
    }
}
