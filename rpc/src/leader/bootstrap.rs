//! The first store and the first region, by PD's rules.

use crate::proto::convert::{Malformed, region_from_pb};
use crate::proto::pdpb::BootstrapRequest;
use tidegate_core::Region;

use crate::proto::metapb::Store;

/// Why a bootstrap was refused. `Display` is PD's text.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum BootstrapError {
    #[error("missing store meta for bootstrap {cluster_id}")]
    NoStore { cluster_id: u64 },
    #[error("invalid zero store id")]
    ZeroStore,
    #[error("missing region meta for bootstrap {cluster_id}")]
    NoRegion { cluster_id: u64 },
    #[error("invalid first region key range, must all be empty for bootstrap {cluster_id}")]
    Range { cluster_id: u64 },
    #[error("invalid zero region id")]
    ZeroRegion,
    #[error("invalid first region peer count {count}, must be 1 for bootstrap {cluster_id}")]
    PeerCount { count: usize, cluster_id: u64 },
    #[error("invalid peer store id {got} != {need} for bootstrap {cluster_id}")]
    PeerStore {
        got: u64,
        need: u64,
        cluster_id: u64,
    },
    #[error("invalid zero peer id")]
    ZeroPeer,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Checks the request and takes it apart.
pub(super) fn check(
    request: BootstrapRequest,
    cluster_id: u64,
) -> Result<(Store, Region), BootstrapError> {
    let store = request
        .store
        .ok_or(BootstrapError::NoStore { cluster_id })?;
    if store.id == 0 {
        return Err(BootstrapError::ZeroStore);
    }
    let region = request
        .region
        .ok_or(BootstrapError::NoRegion { cluster_id })?;
    if !region.start_key.is_empty() || !region.end_key.is_empty() {
        return Err(BootstrapError::Range { cluster_id });
    }
    if region.id == 0 {
        return Err(BootstrapError::ZeroRegion);
    }
    let [peer] = &region.peers[..] else {
        return Err(BootstrapError::PeerCount {
            count: region.peers.len(),
            cluster_id,
        });
    };
    if peer.store_id != store.id {
        let (got, need) = (peer.store_id, store.id);
        return Err(BootstrapError::PeerStore {
            got,
            need,
            cluster_id,
        });
    }
    if peer.id == 0 {
        return Err(BootstrapError::ZeroPeer);
    }
    let region = region_from_pb(&region, None, None, None)?;
    Ok((store, region))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::proto::metapb;

    fn request(alter: impl FnOnce(&mut Store, &mut metapb::Region)) -> BootstrapRequest {
        let mut store = Store {
            id: 1,
            ..Store::default()
        };
        let mut region = metapb::Region {
            id: 2,
            region_epoch: Some(metapb::RegionEpoch {
                conf_ver: 1,
                version: 1,
            }),
            peers: vec![metapb::Peer {
                id: 3,
                store_id: 1,
                ..metapb::Peer::default()
            }],
            ..metapb::Region::default()
        };
        alter(&mut store, &mut region);
        BootstrapRequest {
            header: None,
            store: Some(store),
            region: Some(region),
        }
    }

    fn text(request: BootstrapRequest) -> String {
        check(request, 7).unwrap_err().to_string()
    }

    #[test]
    fn a_bootstrap_needs_one_store_and_one_whole_region_with_one_peer() {
        let (store, region) = check(request(|_, _| {}), 7).unwrap();
        assert_eq!(
            (store.id, region.id(), region.range().is_all()),
            (1, 2, true)
        );

        let whole = request(|_, _| {});
        let without_store = BootstrapRequest {
            store: None,
            ..whole.clone()
        };
        assert_eq!(text(without_store), "missing store meta for bootstrap 7");
        let without_region = BootstrapRequest {
            region: None,
            ..whole
        };
        assert_eq!(text(without_region), "missing region meta for bootstrap 7");
        assert_eq!(
            text(request(|store, _| store.id = 0)),
            "invalid zero store id"
        );
        assert_eq!(
            text(request(|_, region| region.id = 0)),
            "invalid zero region id"
        );
        assert_eq!(
            text(request(
                |_, region| region.start_key = Bytes::from_static(b"a")
            )),
            "invalid first region key range, must all be empty for bootstrap 7"
        );
        assert_eq!(
            text(request(|_, region| region.peers.clear())),
            "invalid first region peer count 0, must be 1 for bootstrap 7"
        );
        assert_eq!(
            text(request(|_, region| region.peers[0].store_id = 9)),
            "invalid peer store id 9 != 1 for bootstrap 7"
        );
        assert_eq!(
            text(request(|_, region| region.peers[0].id = 0)),
            "invalid zero peer id"
        );
        assert_eq!(
            text(request(|_, region| region.region_epoch = None)),
            "malformed region 2: region_epoch is absent"
        );
    }
}
