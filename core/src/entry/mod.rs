//! A cached entry: an immutable descriptor, where it came from, and one atomic
//! word of state.
//!
//! Everything about a region that can change without a new description lives in
//! the [`StateWord`]; everything else never changes, so that an entry can be
//! read without a lock for as long as it is reachable. A new description is a
//! new entry.

#[cfg(any(test, feature = "oracle"))]
pub mod model;
mod outcome;
mod reason;
mod shared;
mod state;
mod ticket;
mod ttl;
mod word;

use std::fmt;

use crate::clock::Moment;
use crate::epoch::RegionEpoch;
use crate::key::Key;
use crate::provenance::Provenance;
use crate::region::{Peer, Region};
use crate::sync::Canary;

pub use outcome::{Confirmed, Flagged, Invalidated, Pinned, Reload, Renewed, Ripened, Taken};
pub use reason::InvalidReason;
pub use shared::SharedEntry;
pub(crate) use shared::{EntryPtr, Maker, ShortEntry};
pub use state::State;
pub use ticket::ReloadTicket;
pub use ttl::{Standing, Ttl};
pub use word::StateWord;

/// A region as the map holds it.
// Layout: what a lookup reads follows the word at once: leader and peers, id, epoch,
// and the end that decides whether a key is inside. Behind the count of its owners
// that fills two lines (`shared.rs`).
#[repr(C)]
pub struct Entry {
    word: StateWord,
    region: Region,
    provenance: Provenance,
    canary: Canary,
}

impl Entry {
    /// An entry that is valid and unpinned; confirmed if the PD leader itself
    /// described it.
    #[must_use]
    pub fn new(region: Region, provenance: Provenance) -> Self {
        let state = provenance
            .confirmed_at()
            .map_or(State::FRESH, |at| State::FRESH.with_confirmed_at(at));
        Self {
            word: StateWord::new(state),
            region,
            provenance,
            canary: Canary::new(),
        }
    }

    /// Gives the entry a deadline, which accesses move on
    /// ([`StateWord::renew`]). [`Ttl::deadline`] says where it belongs.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Moment) -> Self {
        self.word = StateWord::new(self.word.load().with_deadline(deadline));
        self
    }

    /// Gives the entry a deadline that stays where it is, however often the entry
    /// is used ([`StateWord::expire_after_ttl`]).
    #[must_use]
    pub fn with_fixed_deadline(mut self, deadline: Moment) -> Self {
        let state = self.word.load().with_deadline(deadline);
        self.word = StateWord::new(state.with_fixed_deadline());
        self
    }

    /// The descriptor.
    #[inline]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Where the descriptor came from.
    #[inline]
    pub const fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// What can change.
    #[inline]
    pub const fn word(&self) -> &StateWord {
        &self.word
    }

    /// When the PD leader last agreed with the descriptor, if it ever was asked.
    /// In whole milliseconds, rounded down. An entry with a deadline is confirmed
    /// at most once: when the leader described it.
    #[inline]
    pub fn confirmed_at(&self) -> Option<Moment> {
        let state = self.word.load();
        if state.is_leased() {
            self.provenance.confirmed_at()
        } else {
            state.confirmed_at()
        }
    }

    /// The region's id.
    #[inline]
    pub const fn id(&self) -> u64 {
        self.region.id()
    }

    /// The first key of the region.
    #[inline]
    pub const fn start(&self) -> &Key {
        self.region.start()
    }

    /// The first key after the region; empty is plus infinity.
    #[inline]
    pub const fn end(&self) -> &Key {
        self.region.end()
    }

    /// The region's epoch.
    #[inline]
    pub const fn epoch(&self) -> RegionEpoch {
        self.region.epoch()
    }

    /// The peer that leads, if it is known.
    #[inline]
    pub fn leader(&self) -> Option<Peer> {
        self.region.leader()
    }

    /// Lets a model notice that an entry is read which is not alive.
    #[inline]
    pub(crate) fn check_alive(&self) {
        self.canary.check();
    }

    /// Bytes of memory that the entry takes, with all that only it refers to.
    pub(crate) fn bytes(&self) -> usize {
        EntryPtr::BLOCK + self.region.heap_bytes()
    }

    /// Whether a replacement of this entry inherits its leader pin (E3): the
    /// replacement says the same epoch again and the PD leader did not say it.
    pub(crate) fn hands_pin_to(&self, replacement: &Self) -> bool {
        self.id() == replacement.id()
            && self.epoch() == replacement.epoch()
            && !replacement.provenance.is_leader()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("region", &self.region)
            .field("provenance", &self.provenance)
            .field("state", &self.word.load())
            .finish()
    }
}
