//! Lock-free region map, change history and freshness gate for TiKV region routing.
//!
//! TiKV splits its key space into regions, and PD knows which stores hold each.
//! Whoever routes a request needs that knowledge at hand, and needs to know how
//! old it is. This crate is the part of Tidegate that holds it: no I/O, no async
//! runtime, no logging, and no decision by a clock but the one that is passed in.
//!
//! # How the data flows
//!
//! ```text
//!   bytes ──► Key ──► KeyRange ──► Region ──► Entry ──► RegionMap ──► answer
//!             key     range,       region     entry,     map            ▲
//!                     epoch                   provenance  │             │
//!                                                         │ changes     │ Serve
//!                                                         ▼             │ or Refuse
//!   stream ─────────────────────────────────────────►  history        gate ◄─ lag,
//!   heads, proofs ──────────────────────────────────────────────────────┴──── proof
//! ```
//!
//! - [`key`], [`range`], [`epoch`], [`region`]: what a region is. Immutable.
//! - [`provenance`], [`entry`]: who described it, when that was true, and the one
//!   atomic word of what can change about it.
//! - [`map`]: all regions, by key and by id; every read starts from a snapshot.
//! - [`history`]: the last changes by index, for whoever follows.
//! - [`gate`]: whether the map is fresh enough to answer from.
//! - [`clock`]: time, passed in.
//!
//! Three examples show how the parts go together: `region_cache` (a client's cache
//! with a time to live), `change_feed` (followers that rebuild a map from a
//! history) and `freshness_gate` (a replica that answers while it can prove that it
//! is fresh). `cargo run -p tidegate-core --example region_cache` runs the first.
//!
//! # Without a lock
//!
//! Nobody waits for anybody here; each part has a protocol of its own, in its
//! module's documentation:
//!
//! - The map is one pointer to an immutable root, which a writer replaces by one
//!   compare-and-swap; readers and writers hold a guard, and what was replaced is freed
//!   some time after all guards of the time have ended. A thread that stops with a guard
//!   stops nobody, but holds back all freeing in the process; a writer that stops
//!   between its swap and its last step holds back what it has replaced besides. Tree
//!   (`tree/mod.rs`), index by id and generation hang in the one root.
//! - A generation is one life of the content: a number that [`RegionMap::replace_with`]
//!   sets and batches carry on. A batch that is overtaken by it is done again on the new
//!   content, as if it had come after.
//! - An entry is immutable but for one word (`entry/word.rs`), and in one map. Each
//!   transition is one read-modify-write of the word. A writer that replaces an entry
//!   looks at its pin before the swap, and marks the entry as superseded after it, its
//!   second step: whoever pins in between is found by one of the two, or told to look
//!   again.
//! - A history has one appender. It fills a place, then publishes the next index
//!   (Release), then reads nothing of readers but the list of what they retain, when
//!   it evicts: the appender announces what goes, and a reader enters what it needs,
//!   each before a sequentially consistent fence and a look at the other's word.
//! - The gate is a word with the published generation, and two banks of counters, of
//!   which a generation's lowest bit chooses one. [`Gate::begin`](gate::Gate::begin)
//!   empties the bank of a new generation, which is the one that does not answer, once
//!   the tasks that report for earlier generations with that bit have ended. The map's
//!   new root comes first and the word second. Before the lookup `decide` compares the
//!   word with the map's generation; after it `recheck` compares it with the snapshot's,
//!   and counts the age on from `decide`, so that a later proof makes no earlier
//!   snapshot younger. `apply_finished` follows the map's change. Proofs are settled by
//!   whoever comes second, the prober or the applier, by the same pair of fences.
//!
//! Each ordering is commented with its partner and with the loom model that fails
//! without it; `loom-tests/README.md` shows that it does.
//!
//! # Consistency
//!
//! - A [`Snapshot`] is the map at one moment. All that it answers agrees: by key,
//!   by id, before a key, by range. It never changes, and later snapshots of the
//!   same thread are never older.
//! - A [`Batch`] is seen whole or not at all. So is the swap of a whole map.
//! - A change that [`RegionMap::apply`] has returned from is in every snapshot
//!   that is taken afterwards, on any thread that knows of the return.
//! - Refusals are decided against the root that the batch replaces; a batch of
//!   which all changes are refused, against some root between call and return.
//! - The word of an [`Entry`] is not part of the snapshot: marks, pins,
//!   confirmations, deadlines and reloads show at once, to everyone who holds the
//!   entry. Each transition is one step on one word, so that an entry that was
//!   found invalid is never valid again, and who sees a mark sees what its marker
//!   had done before. A replaced or removed entry says so to whoever tries to mark it,
//!   from its writer's second step on. Until then it still accepts marks; of these only
//!   a pin is handed on.
//! - A pin to the PD leader outlives the entry that it was set on, whoever replaces
//!   that, until a description from the PD leader or under another epoch takes its
//!   place. Removal, displacement by another region and [`RegionMap::replace_with`] end
//!   pins; `replace_with` marks nothing. A load may miss a pin that was set while the
//!   replacement was being published, until that writer has taken its second step.
//! - The gate's decision belongs to a generation; an answer needs the snapshot's
//!   generation to be equal to the gate's.
//!
//! # Trade-offs
//!
//! - Reads win over writes. A change of one region copies a path of nodes (about
//!   4 KiB at a million regions); batches share the copies. Writers that work at
//!   the same time repeat each other's work, so two do not write faster than one.
//! - Writers are lock-free, not wait-free: a long batch may be overtaken again
//!   and again by short ones. A replica has one writer.
//! - A snapshot holds back the freeing of memory, in all maps of the process.
//!   Long scans should go page by page ([`RegionMap::scan_pages`]). [`MapStats`] shows what waits.
//! - Freed nodes are kept for reuse, up to about 12 MiB a map.
//! - Entries, nodes and pages stand in chunks of 2 MiB, in huge pages where the system
//!   gives them: a lookup in a large map finds its way in memory sooner. A chunk is given
//!   back when all that stood in it is gone, so a map that has become small keeps chunks
//!   for as long as something in each lives; what comes next uses the room in them. What
//!   is given back keeps its memory for ten seconds, and until a map is changed again; up
//!   to twenty chunks of the process are kept for the next values in any case.
//! - On 64-bit Linux the chunks come from 256 GiB of reserved addresses, so that what
//!   refers to a value takes four bytes. The process looks as large (VmSize), and is not;
//!   under a limit of addresses (`ulimit -v`) a part of that is reserved.
//! - A history evicts 64 records at a time: that makes an append a write and a store,
//!   and keeps up to 63 records more than was asked for. Nobody makes its appender
//!   wait; a reader that is too slow loses records and is told.
//! - An entry has one time: it is confirmed or it has a deadline, not both. An entry
//!   with a deadline lives for up to two bands longer than the base, so that its
//!   renewal writes at most once per band ([`entry::Ttl`]).
//! - Accesses are not counted, and nothing is evicted: who bounds a cache sweeps the
//!   map, and removes what has expired.
//! - Enums that answer a question are closed, so that the compiler shows all that can
//!   happen; those that name a reason from outside are open to more.
//! - Sharing an entry beyond a snapshot ([`EntryRef::to_shared`]) writes to its
//!   count, which reading from the snapshot does not.
//!
//! # Features
//!
//! `oracle`: the sequential models that property tests, loom models and fuzz
//! targets compare with, and the checks of invariants.

pub mod clock;
pub mod entry;
pub mod epoch;
pub mod error;
pub mod gate;
pub mod history;
mod id_index;
pub mod key;
mod lag;
#[cfg(all(test, not(tidegate_loom)))]
mod lock_freedom;
pub mod map;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod pool;
#[cfg(tidegate_loom)]
#[doc(hidden)]
pub use pool::door as pool_door;
#[cfg(tidegate_loom)]
#[doc(hidden)]
pub use slab::door as slab_door;
mod prefetch;
mod proof;
pub mod provenance;
pub mod range;
pub mod region;
mod slab;
mod spare;
mod stack;
// Not part of the API: the models search the crate through this door, and need some
// of it to hold what is shared in their hands.
#[doc(hidden)]
pub mod sync;
mod tree;

pub use clock::{Clock, Moment};
pub use entry::{Entry, InvalidReason, SharedEntry};
pub use epoch::RegionEpoch;
pub use error::{InvalidRange, InvalidRegion};
pub use key::Key;
pub use map::{
    Batch, BulkLoad, EntryRef, Expect, Loaded, MapStats, Outcome, Page, Pages, RegionMap, Scan,
    Snapshot,
};
pub use provenance::Provenance;
pub use range::KeyRange;
pub use region::{
    Buckets, Details, DownPeer, Flashback, Peer, PeerRole, Peers, Region, RegionBuilder,
    RegionStats,
};
