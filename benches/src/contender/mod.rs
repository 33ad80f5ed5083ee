//! The contenders: one trait, one file for each shape.
//!
//! All of them hold the same [`Region`]s, with the key inline in the structure. The rivals get
//! the form of index by id that costs each operation least: id to start key where an operation
//! writes, id to region where it reads by id. What a rival cannot do at all it leaves out:
//! none of them reads several regions from one snapshot while a writer is at work, except by
//! keeping the writer out.

mod concurrent_map;
mod hash_map;
mod ids;
mod imbl;
mod lock;
mod ours;
mod skip_map;
mod tree_index;

use tidegate_core::{Key, Moment, Peer, Provenance, Region};

pub use concurrent_map::Handles;
pub use hash_map::LockedHashMap;
pub use imbl::Persistent;
pub use lock::{Lock, Locked, ParkingLot, Plain, Std};
pub use ours::Ours;
pub use skip_map::Skip;
pub use tree_index::Tree;

use crate::row_key::RowKey;

/// When every region was received.
pub const RECEIVED: Provenance = Provenance::Stream {
    received_at: Moment::from_nanos(1),
};

/// A map from keys to regions.
pub trait Contender: Send + Sync + Sized {
    /// Name in the table.
    const NAME: &'static str;

    /// Loads disjoint regions, in the order they come in.
    fn load(regions: Vec<Region>) -> Self;

    /// Digest of the region that holds `key`; 0 without one.
    fn get(&self, key: &RowKey) -> u64;

    /// Digest of up to `limit` regions from the one that holds `key` on.
    fn scan(&self, key: &RowKey, limit: usize) -> u64;

    /// Puts a region of the same id and range in the place of the one there.
    fn update(&self, region: Region);

    /// Puts two regions in the place of the one that they cover together; the left one has its id.
    /// At once, if the contender can.
    fn split(&self, left: Region, right: Region);

    /// Puts one region in the place of the two that it covers: the left one has its id, the right
    /// one is `gone`. At once, if the contender can.
    fn merge(&self, whole: Region, gone: Gone);
}

/// A region that is split, and merged again.
#[derive(Debug)]
pub struct Split {
    /// The left half, with the id of the region.
    pub left: Region,
    /// The right half, with an id of its own.
    pub right: Region,
    /// The region again.
    pub whole: Region,
}

/// What a merge does away with.
#[derive(Debug)]
pub struct Gone {
    /// Its id.
    pub id: u64,
    /// Its start key.
    pub start: Key,
}

/// A contender, object-safe: whole runs of operations at a time.
pub trait Runs: Send + Sync {
    /// Name in the table.
    fn name(&self) -> &'static str;
    /// Looks up every key.
    fn gets(&self, keys: &[RowKey]) -> u64;
    /// Scans `limit` regions from every key.
    fn scans(&self, keys: &[RowKey], limit: usize) -> u64;
    /// Puts every region in the place of its predecessor.
    fn updates(&self, regions: Vec<Region>);
    /// Splits regions, and merges each again.
    fn splits(&self, splits: Vec<Split>);
    /// Looks up an equal share of `keys` before each update.
    fn mixed(&self, keys: &[RowKey], regions: Vec<Region>) -> u64;
}

/// Alternates between shares of `keys` and single regions.
fn interleave(
    keys: &[RowKey],
    regions: Vec<Region>,
    get: impl Fn(&RowKey) -> u64,
    update: impl Fn(Region),
) -> u64 {
    let share = (keys.len() / regions.len().max(1)).max(1);
    let mut sum = 0u64;
    for (keys, region) in keys.chunks(share).zip(regions) {
        for key in keys {
            sum = sum.wrapping_add(get(key));
        }
        update(region);
    }
    sum
}

impl<C: Contender> Runs for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn gets(&self, keys: &[RowKey]) -> u64 {
        keys.iter()
            .fold(0, |sum, key| sum.wrapping_add(self.get(key)))
    }

    fn scans(&self, keys: &[RowKey], limit: usize) -> u64 {
        keys.iter()
            .fold(0, |sum, key| sum.wrapping_add(self.scan(key, limit)))
    }

    fn updates(&self, regions: Vec<Region>) {
        for region in regions {
            self.update(region);
        }
    }

    fn splits(&self, splits: Vec<Split>) {
        for Split { left, right, whole } in splits {
            let gone = Gone::of(&right);
            self.split(left, right);
            self.merge(whole, gone);
        }
    }

    fn mixed(&self, keys: &[RowKey], regions: Vec<Region>) -> u64 {
        let update = |region| self.update(region);
        interleave(keys, regions, |key| self.get(key), update)
    }
}

impl Gone {
    /// That which `right` was.
    #[must_use]
    pub fn of(right: &Region) -> Self {
        Self {
            id: right.id(),
            start: right.start().clone(),
        }
    }
}

/// What an answer reads: id, epoch, region leader and end key.
#[must_use]
pub fn digest(region: &Region) -> u64 {
    let epoch = region.epoch();
    let end = region.end();
    let tail = end
        .last_chunk::<8>()
        .map_or(0, |tail| u64::from_le_bytes(*tail));
    region
        .id()
        .wrapping_add(epoch.version << 20)
        .wrapping_add(epoch.conf_ver << 32)
        .wrapping_add(
            region
                .leader()
                .map_or(0, |Peer { id, store_id, .. }| id ^ store_id),
        )
        .wrapping_add(tail)
}

/// Whether `region`, which starts at or before `key`, ends after it.
fn reaches(region: &Region, key: &[u8]) -> bool {
    region.end().is_empty() || key < &region.end()[..]
}

/// Every contender that holds regions by key, each loaded with `regions` in that order.
#[must_use]
pub fn all(regions: &[Region]) -> Vec<Box<dyn Runs>> {
    chosen(regions, &[])
}

/// Those of [`all`] whose names are in `names`; all if there are none.
#[must_use]
pub fn chosen(regions: &[Region], names: &[String]) -> Vec<Box<dyn Runs>> {
    type Load = fn(&[Region]) -> Box<dyn Runs>;
    fn load<C: Contender + 'static>(regions: &[Region]) -> Box<dyn Runs> {
        Box::new(C::load(regions.to_vec()))
    }
    let loads: [(&str, Load); 7] = [
        (Ours::NAME, load::<Ours>),
        (Locked::<Std>::NAME, load::<Locked<Std>>),
        (Locked::<ParkingLot>::NAME, load::<Locked<ParkingLot>>),
        (Skip::NAME, load::<Skip>),
        (Tree::NAME, load::<Tree>),
        (Handles::NAME, |regions| {
            Box::new(Handles::load(regions.to_vec()))
        }),
        (Persistent::NAME, load::<Persistent>),
    ];
    loads
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name))
        .map(|(_, load)| load(regions))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    /// Contenders that read different things cannot be compared.
    #[test]
    fn all_contenders_give_the_same_answers_before_and_after_updates() {
        let fixture = Fixture::new(300);
        let contenders = all(&fixture.shuffled(1));
        let queries = fixture.queries(500, 2);
        let answers = |contender: &dyn Runs| {
            (
                contender.gets(&queries),
                contender.scans(&queries[..50], 64),
            )
        };

        let before = answers(&*contenders[0]);
        assert!(
            contenders
                .iter()
                .all(|contender| answers(&**contender) == before)
        );
        for contender in &contenders {
            contender.updates(
                (0..300)
                    .step_by(2)
                    .map(|index| fixture.region(index, 1))
                    .collect(),
            );
        }
        let after = answers(&*contenders[0]);
        assert_ne!(before, after);
        assert!(
            contenders
                .iter()
                .all(|contender| answers(&**contender) == after)
        );

        for contender in &contenders {
            contender.splits((0..300).map(|index| fixture.split(index, 1)).collect());
        }
        let merged = answers(&*contenders[0]);
        assert_ne!(after, merged);
        assert!(
            contenders
                .iter()
                .all(|contender| answers(&**contender) == merged)
        );
    }

    #[test]
    fn a_split_is_seen_until_it_is_merged() {
        let fixture = Fixture::new(10);
        let ours = Ours::load(fixture.shuffled(1));
        let lock = Locked::<Std>::load(fixture.shuffled(1));
        let queries = fixture.queries(50, 1);
        let Split { left, right, whole } = fixture.split(4, 1);
        let gone = Gone::of(&right);
        let before = ours.gets(&queries);
        ours.split(left.clone(), right.clone());
        lock.split(left, right);
        assert_ne!(ours.gets(&queries), before);
        assert_eq!(ours.gets(&queries), lock.gets(&queries));
        ours.merge(whole.clone(), Gone::of(&whole));
        lock.merge(whole, gone);
        assert_eq!(ours.gets(&queries), lock.gets(&queries));
        assert_eq!(ours.map().pin().len(), 10);
        assert_eq!(lock.len(), (10, 10));
    }
}
