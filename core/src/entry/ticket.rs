//! A reload that one caller has taken, and cannot forget.

use super::SharedEntry;
use super::outcome::{Reload, Taken};

/// The right, and the duty, to reload a region.
///
/// Dropping the ticket restores the entry's flag, so that a later access tries
/// again: whether the reload failed, timed out or was given up half-way (a future
/// that is dropped, a panic). Only [`ReloadTicket::done`] lets the flag rest.
///
/// A ticket owns its entry, so that it may be held across an `.await`.
#[derive(Debug)]
#[must_use = "a ticket that is dropped gives the reload back"]
pub struct ReloadTicket {
    entry: SharedEntry,
    reload: Reload,
    is_done: bool,
}

impl ReloadTicket {
    /// Takes the reload that `entry` asks for. `None` if it asks for none, or
    /// another caller has taken it, or the entry is invalid or has left the map.
    ///
    /// Costs a load where no reload is asked for.
    #[must_use]
    pub fn take(entry: &SharedEntry) -> Option<Self> {
        entry.word().load().reload()?;
        match entry.word().take_reload() {
            Taken::Reload(reload) => Some(Self {
                entry: entry.clone(),
                reload,
                is_done: false,
            }),
            Taken::Nothing | Taken::Invalid(_) | Taken::Superseded => None,
        }
    }

    /// What was asked for.
    #[must_use]
    pub fn reload(&self) -> Reload {
        self.reload
    }

    /// The entry to reload, which also is what the map must still hold when the
    /// answer is put into it.
    #[must_use]
    pub fn entry(&self) -> &SharedEntry {
        &self.entry
    }

    /// The reload has brought an answer.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for ReloadTicket {
    fn drop(&mut self) {
        if !self.is_done {
            // An entry that is invalid or gone by now needs no reload of its own.
            let _ = self.entry.word().restore_reload(self.reload);
        }
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::{KeyRange, Moment, Provenance, Region, RegionEpoch};

    fn entry() -> SharedEntry {
        let region = Region::builder(1, KeyRange::all(), RegionEpoch::new(1, 2));
        let asked_at = Moment::from_nanos(1);
        let region = region.build().expect("an id");
        SharedEntry::new(Entry::new(region, Provenance::Follower { asked_at }))
    }

    #[test]
    fn a_ticket_that_is_dropped_restores_what_it_took() {
        let entry = entry();
        assert!(ReloadTicket::take(&entry).is_none());
        let _ = entry.word().reload_on_access();
        let ticket = ReloadTicket::take(&entry).expect("asked for");
        assert_eq!(ticket.reload(), Reload::OnAccess);
        assert!(ReloadTicket::take(&entry).is_none(), "taken");
        drop(ticket);
        assert!(ReloadTicket::take(&entry).is_some(), "the reload failed");
    }

    #[test]
    fn a_ticket_that_is_done_leaves_the_flag_at_rest() {
        let entry = entry();
        let _ = entry.word().delay_reload();
        let _ = entry.word().ripen_delayed_reload();
        ReloadTicket::take(&entry).expect("asked for").done();
        assert_eq!(entry.word().load().reload(), None);
    }

    #[test]
    fn a_flag_that_is_set_during_a_reload_is_not_part_of_it() {
        let entry = entry();
        let _ = entry.word().reload_on_access();
        let ticket = ReloadTicket::take(&entry).expect("asked for");
        let _ = entry.word().reload_on_access();
        ticket.done();
        assert!(ReloadTicket::take(&entry).is_some());
    }
}
