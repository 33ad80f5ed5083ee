//! The writing end, and what its owner does beside appending: persist the index, answer to
//! reconnecting readers, shrink, begin anew.

use std::ops::Range;

use super::writer::Writer;

/// The writing end; there is one.
///
/// # Persistence
///
/// A history that is to go on after a restart with indexes that were not given out before needs its
/// next index stored. As PD does, that is every [`PERSIST_EVERY`](Self::PERSIST_EVERY) records:
///
/// ```
/// # fn store(_next_index: u64) {}
/// let (mut appender, _history) = tidegate_core::history::history(10_000, 1);
/// for record in 0..1_000 {
///     appender.append(record);
///     if let Some(next_index) = appender.persist_due() {
///         store(next_index);
///     }
/// }
/// ```
///
/// What is stored is up to 99 records behind. A restarted history that begins there gives some
/// indexes a second time, which is PD's behaviour, too: a follower that is ahead of it must not be
/// told that it has caught up.
#[derive(Debug)]
pub struct Appender<T> {
    writer: Writer<T>,
    /// The next index when the last one was handed out to be stored.
    persisted: u64,
}

impl<T: Clone + Send + Sync + 'static> Appender<T> {
    /// After how many records the next index should be stored.
    pub const PERSIST_EVERY: u64 = 100;

    pub(super) fn new(writer: Writer<T>) -> Self {
        let persisted = writer.next_index();
        Self { writer, persisted }
    }

    /// Appends a record and returns its index. Never waits for readers. Amortised O(1); an
    /// allocation every 64 records, or when the history grows.
    ///
    /// # Panics
    ///
    /// If the indexes, up to nearly 2^64, are used up.
    #[inline]
    pub fn append(&mut self, record: T) -> u64 {
        let index = self.writer.next_index();
        self.writer.fill(record);
        self.writer.publish();
        index
    }

    /// Appends the records in turn and returns the range of their indexes. Readers may see some
    /// before all are there.
    ///
    /// # Panics
    ///
    /// As [`append`](Self::append), and if the iterator does; what it gave before that is appended.
    pub fn append_all(&mut self, records: impl IntoIterator<Item = T>) -> Range<u64> {
        let first = self.writer.next_index();
        let published = Published(&mut self.writer);
        for record in records {
            published.0.fill(record);
        }
        drop(published);
        first..self.writer.next_index()
    }

    /// The index that the next record will get.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.writer.next_index()
    }

    /// How many records are kept at least, once there have been so many.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.writer.size()
    }

    /// The next index, if it is time to store it: after 100 records or more since it was last
    /// handed out here, or since the history began. Asked after every append, it says so after
    /// exactly every hundredth.
    #[must_use = "it is handed out once"]
    pub fn persist_due(&mut self) -> Option<u64> {
        let next = self.writer.next_index();
        if next - self.persisted < Self::PERSIST_EVERY {
            return None;
        }
        self.persisted = next;
        Some(next)
    }

    /// A reader came and wanted the records from `from` on, whether they are here or not. If they
    /// would fill more than half of the history it grows, so that the next reader that is so far
    /// behind finds them.
    pub fn observe(&mut self, from: u64) {
        self.writer.observe(from);
    }

    /// To be called at regular intervals (PD: every 5 minutes). Halves the history, down to its
    /// base, when it is called for the third time in a row with nothing retained and with no
    /// reader since the last call having needed more than a quarter. Returns whether it did.
    pub fn maintain(&mut self) -> bool {
        self.writer.maintain()
    }

    /// Empties the history, brings it back to its base capacity and gives the next record the index
    /// `index`. Nothing is due to be stored by that; whoever wants the new index stored stores it.
    ///
    /// Cursors are told ([`Step::Reset`](super::Step::Reset)). A reader that keeps its own index
    /// cannot be: to it the new numbering looks like a gap, like being ahead, or, if it is unlucky,
    /// like the records that it waits for. Retained records are given up.
    pub fn reset_with_index(&mut self, index: u64) {
        self.writer.reset(index);
        self.persisted = index;
    }
}

/// Publishes what was filled in when it goes, be it by a panic.
struct Published<'a, T: Clone + Send + Sync + 'static>(&'a mut Writer<T>);

impl<T: Clone + Send + Sync + 'static> Drop for Published<'_, T> {
    fn drop(&mut self) {
        self.0.publish();
    }
}
