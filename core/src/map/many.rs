//! Many lookups in one snapshot, whose trips to memory overlap.

use std::iter::FusedIterator;

use super::snapshot::{EntryRef, Snapshot};
use crate::tree::GROUP;

/// Answers, a group at a time.
struct Many<'s, F> {
    /// Fills the next group with answers to the questions from the given one on.
    fill: F,
    found: [Option<EntryRef<'s>>; GROUP],
    asked: usize,
    answered: usize,
}

impl Snapshot<'_> {
    /// The regions that hold `keys`, in their order; `None` for a key in a hole.
    /// What [`Snapshot::get`] answers, in a third of its time where the map is
    /// larger than the caches: the keys go down the tree in groups, and wait for
    /// memory together.
    ///
    /// Nothing is allocated, and nothing is looked up for keys beyond the group
    /// of the last answer that was taken.
    pub fn get_many<'s, K: AsRef<[u8]>>(
        &'s self,
        keys: &[K],
    ) -> impl ExactSizeIterator<Item = Option<EntryRef<'s>>> + FusedIterator {
        let tree = self.root().tree();
        Many::new(keys.len(), move |from, found| {
            let keys = &keys[from..keys.len().min(from + GROUP)];
            let mut floors = [None; GROUP];
            tree.floors(keys, &mut floors);
            for ((found, floor), key) in found.iter_mut().zip(floors).zip(keys) {
                let entry = floor.map(EntryRef::new);
                *found = entry.filter(|entry| entry.region().range().ends_after(key.as_ref()));
            }
        })
    }

    /// The left neighbours of the regions that hold `keys`, in their order: what
    /// [`Snapshot::prev`] answers. Costs what [`Snapshot::get_many`] does, and
    /// the neighbours' memory.
    pub fn prev_many<'s, K: AsRef<[u8]>>(
        &'s self,
        keys: &[K],
    ) -> impl ExactSizeIterator<Item = Option<EntryRef<'s>>> + FusedIterator {
        let tree = self.root().tree();
        Many::new(keys.len(), move |from, found| {
            let keys = &keys[from..keys.len().min(from + GROUP)];
            let mut floors = [None; GROUP];
            tree.floors_with_neighbours(keys, &mut floors);
            for ((found, floor), key) in found.iter_mut().zip(floors).zip(keys) {
                *found = floor.and_then(|(left, floor)| {
                    let current = EntryRef::new(floor).as_entry().region().range();
                    let left = EntryRef::new(left?);
                    let is_left = left.region().range().is_followed_by(current);
                    (current.ends_after(key.as_ref()) && is_left).then_some(left)
                });
            }
        })
    }

    /// The regions with these ids, in their order: what [`Snapshot::by_id`]
    /// answers, faster as [`Snapshot::get_many`] is.
    pub fn by_id_many<'s>(
        &'s self,
        ids: &[u64],
    ) -> impl ExactSizeIterator<Item = Option<EntryRef<'s>>> + FusedIterator {
        let root = self.root();
        Many::new(ids.len(), move |from, found| {
            let mut entries = [None; GROUP];
            root.by_ids(&ids[from..ids.len().min(from + GROUP)], &mut entries);
            *found = entries.map(|entry| entry.map(EntryRef::new));
        })
    }
}

// === impl Many ===

impl<'s, F> Many<'s, F>
where
    F: FnMut(usize, &mut [Option<EntryRef<'s>>; GROUP]),
{
    fn new(asked: usize, fill: F) -> Self {
        Self {
            fill,
            found: [None; GROUP],
            asked,
            answered: 0,
        }
    }
}

impl<'s, F> Iterator for Many<'s, F>
where
    F: FnMut(usize, &mut [Option<EntryRef<'s>>; GROUP]),
{
    type Item = Option<EntryRef<'s>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.answered == self.asked {
            return None;
        }
        let place = self.answered % GROUP;
        if place == 0 {
            (self.fill)(self.answered, &mut self.found);
        }
        self.answered += 1;
        Some(self.found[place])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.asked - self.answered;
        (left, Some(left))
    }
}

impl<'s, F> ExactSizeIterator for Many<'s, F> where
    F: FnMut(usize, &mut [Option<EntryRef<'s>>; GROUP])
{
}

impl<'s, F> FusedIterator for Many<'s, F> where F: FnMut(usize, &mut [Option<EntryRef<'s>>; GROUP]) {}
