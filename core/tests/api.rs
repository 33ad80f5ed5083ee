//! What users of the types rely on without saying so.

use std::error::Error;
use std::fmt::Debug;

use tidegate_core::clock::{BootClock, ManualClock};
use tidegate_core::entry::{ReloadTicket, State, StateWord, Ttl};
use tidegate_core::gate::{Gate, GateView, Thresholds};
use tidegate_core::history::{Appender, Cursor, History, NotHere, Retained};
use tidegate_core::map::Refusal;
use tidegate_core::{
    Batch, Entry, InvalidRange, InvalidRegion, Key, KeyRange, Moment, Pages, Provenance, Region,
    RegionEpoch, RegionMap,
};

fn shared<T: Send + Sync + Debug + 'static>() {}
fn value<T: Clone + Eq + Debug + Send + Sync + 'static>() {}
fn error<T: Error + Clone + Eq + Send + Sync + 'static>() {}

#[test]
fn what_is_shared_may_be_shared() {
    shared::<RegionMap>();
    shared::<Entry>();
    shared::<StateWord>();
    shared::<ReloadTicket>();
    shared::<Batch>();
    shared::<Pages<'static>>();
    shared::<Gate>();
    shared::<History<Region>>();
    shared::<Appender<Region>>();
    shared::<Cursor<Region>>();
    shared::<Retained<Region>>();
    shared::<BootClock>();
    shared::<ManualClock>();
}

#[test]
fn values_are_values() {
    value::<Key>();
    value::<KeyRange>();
    value::<RegionEpoch>();
    value::<Region>();
    value::<Provenance>();
    value::<Moment>();
    value::<State>();
    value::<Ttl>();
    value::<Thresholds>();
    value::<GateView>();
}

#[test]
fn errors_are_errors() {
    error::<InvalidRange>();
    error::<InvalidRegion>();
    error::<Refusal>();
    error::<NotHere>();
}

#[test]
fn regions_collect_into_a_batch() {
    let region = |id, start: &str, end: &str| {
        let range = KeyRange::new(start, end).expect("start before end");
        let epoch = RegionEpoch::new(1, 2);
        Region::builder(id, range, epoch).build().expect("an id")
    };
    let received_at = Moment::from_nanos(1);
    let from = Provenance::Stream { received_at };
    let batch: Batch = [(region(1, "a", "b"), from), (region(2, "b", "c"), from)]
        .into_iter()
        .collect();
    let map = RegionMap::new();
    let outcomes = map.apply(batch);
    assert!(outcomes.iter().all(|outcome| !outcome.is_refused()));
    assert_eq!(map.pin().len(), 2);
}
