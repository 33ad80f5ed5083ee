//! The wire: PD's messages and services, and the few others that PD's client port answers.
//!
//! The definitions in `rpc/proto/` hold only what this crate uses, under upstream's package, message and field names
//! and numbers; those are the wire. Fields that are not named there are dropped when a message is decoded, so a
//! message that is only passed on must not be decoded.
//!
//! `bytes` fields are [`bytes::Bytes`]: decoding slices them out of the received frame instead of copying each, and
//! any of them keeps the whole frame alive. [`convert`] copies what goes into a map.

pub mod convert;
pub mod header;
pub(crate) mod wire;
pub(crate) mod written;

macro_rules! generated {
    ($(#[$doc:meta])* $module:ident, $file:literal) => {
        $(#[$doc])*
        #[allow(missing_docs, missing_debug_implementations, unused_qualifications, clippy::all, clippy::use_self)]
        pub mod $module {
            include!(concat!(env!("OUT_DIR"), "/", $file, ".rs"));
        }
    };
}

generated!(
    /// Regions, peers and stores.
    metapb, "metapb"
);
generated!(
    /// PD's own service.
    pdpb, "pdpb"
);
generated!(
    /// PD's router service: the region lookups alone.
    routerpb, "routerpb"
);
generated!(
    /// A key and its value in etcd.
    mvccpb, "mvccpb"
);
generated!(
    /// Etcd's keys and leases: the term of the PD leader is told by one, and routers register with both.
    etcdserverpb, "etcdserverpb"
);
generated!(
    /// PD's window on its etcd, by which clients find routers.
    meta_storagepb, "meta_storagepb"
);
generated!(
    /// The standard gRPC health service.
    health, "grpc.health.v1"
);
