//! What must hold in every snapshot, for tests.

use super::snapshot::Snapshot;
use crate::entry::{Entry, EntryPtr};

impl Snapshot<'_> {
    /// Checks all that is promised about one moment of the map: the ranges are
    /// disjoint (M1), tree and index hold the same entries (M4), the shape of
    /// both is sound, and all that is counted equals a recount.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, in words.
    pub fn check_invariants(&self) -> Result<(), String> {
        let root = self.root();
        root.tree().check(&root.tree)?;
        let bytes: usize = self.iter().map(|entry| entry.bytes()).sum();
        if bytes != root.entry_bytes {
            let counted = root.entry_bytes;
            return Err(format!("{bytes} bytes of entries are counted as {counted}"));
        }

        let mut left: Option<&Entry> = None;
        for entry in self {
            let entry = entry.as_entry();
            if let Some(left) = left
                && left.region().range().overlaps(entry.region().range())
            {
                return Err(format!("regions {} and {} overlap", left.id(), entry.id()));
            }
            left = Some(entry);
        }

        let mut indexed = 0;
        let visit = |id: u64, pointer: EntryPtr| {
            indexed += 1;
            // SAFETY: the index of a root that can be read holds live entries.
            let entry: &Entry = unsafe { pointer.as_ref() };
            let found = self
                .get(entry.start())
                .map(|found| std::ptr::eq(found.as_entry(), entry));
            if entry.id() == id && found == Some(true) {
                Ok(())
            } else {
                Err(format!("id {id} leads to {entry:?}, its key elsewhere"))
            }
        };
        // SAFETY: the root is alive and does not change.
        unsafe { root.ids.check(visit) }?;
        if indexed == self.len() {
            Ok(())
        } else {
            Err(format!("{indexed} of {} regions are indexed", self.len()))
        }
    }
}
