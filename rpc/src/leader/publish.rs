//! Which reports a PD leader passes on to its followers.
//!
//! A report always alters the leader's own map when it says anything new. A record for the sync streams is made only
//! of the changes listed here: a new region, a higher version or conf_ver, another region leader, another number of
//! peers, newer or vanished buckets (on release 8.5: another number of them), a flow that differs after rounding, and
//! other down or pending peers. The rest (flashback, the role of a peer under an unchanged epoch, a small change of flow) reaches a follower
//! with the region's next record, or with a full sync.

use tidegate_core::Region;

use crate::pd::Dialect;

/// Flow is compared in steps of this many bytes (PD's `flow-round-by-digit` = 3).
const FLOW_STEP: u64 = 1000;

/// Whether a report of `new` makes a record, where `old` is what the leader had under the same id.
pub(super) fn is_published(dialect: Dialect, old: Option<&Region>, new: &Region) -> bool {
    let Some(old) = old else { return true };
    new.epoch().version > old.epoch().version
        || new.epoch().conf_ver > old.epoch().conf_ver
        || new.leader().map(|peer| peer.id) != old.leader().map(|peer| peer.id)
        || new.peers().len() != old.peers().len()
        || buckets_moved(dialect, old, new)
        || flow(old) != flow(new)
        || down(old) != down(new)
        || pending(old) != pending(new)
}

fn buckets_moved(dialect: Dialect, old: &Region, new: &Region) -> bool {
    if dialect == Dialect::Release85 {
        return bucket_keys(old) != bucket_keys(new);
    }
    let (old, new) = (buckets_version(old), buckets_version(new));
    new > old || (new == 0 && old != 0)
}

fn bucket_keys(region: &Region) -> usize {
    let buckets = region
        .details()
        .and_then(|details| details.buckets.as_ref());
    buckets.map_or(0, |buckets| buckets.keys.len())
}

fn buckets_version(region: &Region) -> u64 {
    let buckets = region
        .details()
        .and_then(|details| details.buckets.as_ref());
    buckets.map_or(0, |buckets| buckets.version)
}

fn flow(region: &Region) -> (u64, u64) {
    let rounded = |bytes: u64| bytes.saturating_add(FLOW_STEP / 2) / FLOW_STEP;
    region.details().map_or((0, 0), |details| {
        (
            rounded(details.stats.bytes_written),
            rounded(details.stats.bytes_read),
        )
    })
}

fn down(region: &Region) -> Vec<u64> {
    sorted(region.details().map_or_else(Vec::new, |details| {
        details.down_peers.iter().map(|down| down.peer.id).collect()
    }))
}

fn pending(region: &Region) -> Vec<u64> {
    sorted(region.details().map_or_else(Vec::new, |details| {
        details.pending_peers.iter().map(|peer| peer.id).collect()
    }))
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use tidegate_core::{
        Buckets, Details, DownPeer, Flashback, Key, KeyRange, Peer, PeerRole, RegionEpoch,
        RegionStats,
    };

    use super::*;

    fn peer(id: u64) -> Peer {
        Peer {
            id,
            store_id: id,
            role: PeerRole::Voter,
            is_witness: false,
        }
    }

    fn region(alter: impl FnOnce(&mut Details)) -> Region {
        let mut details = Details::default();
        alter(&mut details);
        Region::builder(
            1,
            KeyRange::all(),
            RegionEpoch {
                conf_ver: 2,
                version: 2,
            },
        )
        .peers([peer(11), peer(12)])
        .leader(Some(peer(11)))
        .details(details)
        .build()
        .unwrap()
    }

    fn buckets(version: u64) -> Option<Buckets> {
        Some(Buckets {
            version,
            keys: vec![Key::EMPTY, Key::EMPTY],
        })
    }

    #[test]
    fn what_routing_depends_on_is_published() {
        let old = region(|_| {});
        let epoch = |conf_ver, version| {
            old.to_builder()
                .epoch(RegionEpoch { conf_ver, version })
                .build()
                .unwrap()
        };
        assert!(is_published(Dialect::Master, None, &old), "a new region");
        assert!(
            !is_published(Dialect::Master, Some(&old), &old),
            "nothing new"
        );
        assert!(
            is_published(Dialect::Master, Some(&old), &epoch(2, 3)),
            "a higher version"
        );
        assert!(
            is_published(Dialect::Master, Some(&old), &epoch(3, 2)),
            "a higher conf_ver"
        );
        let moved = old.to_builder().leader(Some(peer(12))).build().unwrap();
        assert!(
            is_published(Dialect::Master, Some(&old), &moved),
            "another leader"
        );
        let grown = old
            .to_builder()
            .peers([peer(11), peer(12), peer(13)])
            .build()
            .unwrap();
        assert!(
            is_published(Dialect::Master, Some(&old), &grown),
            "another number of peers"
        );
        let down = region(|details| {
            details.down_peers = vec![DownPeer {
                peer: peer(12),
                down_seconds: 9,
            }];
        });
        assert!(
            is_published(Dialect::Master, Some(&old), &down),
            "a peer went down"
        );
        let pending = region(|details| details.pending_peers = vec![peer(12)]);
        assert!(
            is_published(Dialect::Master, Some(&old), &pending),
            "a peer fell behind"
        );
        assert!(
            is_published(Dialect::Master, Some(&pending), &old),
            "a peer caught up"
        );
    }

    #[test]
    fn buckets_are_published_when_newer_or_gone() {
        let (none, old) = (
            region(|_| {}),
            region(|details| details.buckets = buckets(4)),
        );
        assert!(is_published(Dialect::Master, Some(&none), &old));
        assert!(is_published(
            Dialect::Master,
            Some(&old),
            &region(|details| details.buckets = buckets(5))
        ));
        assert!(is_published(Dialect::Master, Some(&old), &none));
        assert!(!is_published(
            Dialect::Master,
            Some(&old),
            &region(|details| details.buckets = buckets(3))
        ));
    }

    #[test]
    fn release_85_looks_at_the_number_of_buckets_and_not_at_their_version() {
        let buckets = |version, keys: &[&str]| {
            region(|details| {
                details.buckets = Some(Buckets {
                    version,
                    keys: keys.iter().map(|&key| Key::from(key)).collect(),
                });
            })
        };
        let old = buckets(1, &["a", "b"]);
        let published = |new| is_published(Dialect::Release85, Some(&old), &new);
        assert!(!published(buckets(2, &["a", "b"])));
        assert!(published(buckets(1, &["a", "b", "c"])));
        assert!(published(region(|_| {})));
    }

    #[test]
    fn flow_is_published_in_steps() {
        let flow = |bytes_written| {
            region(|details| {
                details.stats = RegionStats {
                    bytes_written,
                    ..RegionStats::default()
                }
            })
        };
        assert!(!is_published(
            Dialect::Master,
            Some(&flow(10_000)),
            &flow(10_499)
        ));
        assert!(is_published(
            Dialect::Master,
            Some(&flow(10_000)),
            &flow(10_500)
        ));
    }

    #[test]
    fn flashback_alone_is_not_published() {
        let flashback = region(|details| details.flashback = Some(Flashback { start_ts: 5 }));
        assert!(!is_published(
            Dialect::Master,
            Some(&region(|_| {})),
            &flashback
        ));
    }
}
