//! Regions written to the wire as they lie in the map.
//!
//! A lookup's answer as a message is a dozen allocations a region, copied once more when it is encoded and then freed.
//! Here its bytes are written at once, while the snapshot is held that the region comes from, and what goes on is bytes.
//! They are those that the message would be encoded to, fields in ascending order and those with default values left
//! out, so that nobody can tell.
//!
//! Lengths come before what they measure, so each part is measured first ([`Part::len`]) and then written.

use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tidegate_core::{Buckets, DownPeer, Key, Peer, PeerRole, Region};

use super::metapb;

fn number_len(tag: u32, value: u64) -> usize {
    match value {
        0 => 0,
        value => key_len(tag) + encoded_len_varint(value),
    }
}

fn put_number(tag: u32, value: u64, into: &mut impl BufMut) {
    if value != 0 {
        encode_key(tag, WireType::Varint, into);
        encode_varint(value, into);
    }
}

/// What has a length in front of it, and its tag.
fn framed_len(tag: u32, len: usize) -> usize {
    key_len(tag) + encoded_len_varint(len as u64) + len
}

fn put_frame(tag: u32, len: usize, into: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, into);
    encode_varint(len as u64, into);
}

/// A key that is left out when it is empty.
fn key_field_len(tag: u32, key: &Key) -> usize {
    match key.len() {
        0 => 0,
        len => framed_len(tag, len),
    }
}

fn put_key_field(tag: u32, key: &Key, into: &mut impl BufMut) {
    if !key.is_empty() {
        put_frame(tag, key.len(), into);
        into.put_slice(key);
    }
}

/// Something that is a message on the wire.
trait Part {
    /// Its bytes, without its own length.
    fn len(&self) -> usize;

    fn put(&self, into: &mut impl BufMut);

    fn framed_len(&self, tag: u32) -> usize {
        framed_len(tag, self.len())
    }

    fn put_framed(&self, tag: u32, into: &mut impl BufMut) {
        put_frame(tag, self.len(), into);
        self.put(into);
    }
}

impl Part for Peer {
    fn len(&self) -> usize {
        number_len(1, self.id)
            + number_len(2, self.store_id)
            + number_len(3, role(self))
            + number_len(4, u64::from(self.is_witness))
    }

    fn put(&self, into: &mut impl BufMut) {
        put_number(1, self.id, into);
        put_number(2, self.store_id, into);
        put_number(3, role(self), into);
        put_number(4, u64::from(self.is_witness), into);
    }
}

fn role(peer: &Peer) -> u64 {
    let role = match peer.role {
        PeerRole::Voter => metapb::PeerRole::Voter,
        PeerRole::Learner => metapb::PeerRole::Learner,
        PeerRole::IncomingVoter => metapb::PeerRole::IncomingVoter,
        PeerRole::DemotingVoter => metapb::PeerRole::DemotingVoter,
    };
    role as u64
}

impl Part for DownPeer {
    fn len(&self) -> usize {
        self.peer.framed_len(1) + number_len(2, self.down_seconds)
    }

    fn put(&self, into: &mut impl BufMut) {
        self.peer.put_framed(1, into);
        put_number(2, self.down_seconds, into);
    }
}

/// The descriptor: `metapb.Region`.
struct Descriptor<'r>(&'r Region);

impl Descriptor<'_> {
    fn epoch_len(&self) -> usize {
        let epoch = self.0.epoch();
        number_len(1, epoch.conf_ver) + number_len(2, epoch.version)
    }

    /// Whether it is being flashed back, and since when.
    fn flashback(&self) -> (bool, u64) {
        let details = self.0.details();
        let flashback = details.and_then(|details| details.flashback.as_ref());
        flashback.map_or((false, 0), |flashback| (true, flashback.start_ts))
    }
}

impl Part for Descriptor<'_> {
    fn len(&self) -> usize {
        let region = self.0;
        let (is_in_flashback, start_ts) = self.flashback();
        let peers: usize = region.peers().iter().map(|peer| peer.framed_len(5)).sum();
        number_len(1, region.id())
            + key_field_len(2, region.start())
            + key_field_len(3, region.end())
            + framed_len(4, self.epoch_len())
            + peers
            + number_len(7, u64::from(is_in_flashback))
            + number_len(8, start_ts)
    }

    fn put(&self, into: &mut impl BufMut) {
        let region = self.0;
        put_number(1, region.id(), into);
        put_key_field(2, region.start(), into);
        put_key_field(3, region.end(), into);
        put_frame(4, self.epoch_len(), into);
        put_number(1, region.epoch().conf_ver, into);
        put_number(2, region.epoch().version, into);
        for peer in region.peers() {
            peer.put_framed(5, into);
        }
        let (is_in_flashback, start_ts) = self.flashback();
        put_number(7, u64::from(is_in_flashback), into);
        put_number(8, start_ts, into);
    }
}

/// `metapb.Buckets` of the region with this id.
struct BucketsOf<'r>(u64, &'r Buckets);

impl Part for BucketsOf<'_> {
    fn len(&self) -> usize {
        let keys: usize = self.1.keys.iter().map(|key| framed_len(3, key.len())).sum();
        number_len(1, self.0) + number_len(2, self.1.version) + keys
    }

    fn put(&self, into: &mut impl BufMut) {
        put_number(1, self.0, into);
        put_number(2, self.1.version, into);
        for key in &self.1.keys {
            put_frame(3, key.len(), into);
            into.put_slice(key);
        }
    }
}

/// The numbers under which a message has what lookups tell of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    region: u32,
    leader: u32,
    down_peers: u32,
    pending_peers: u32,
    buckets: u32,
}

impl Tags {
    /// Of `pdpb.GetRegionResponse`.
    pub(crate) const ANSWER: Self = Self {
        region: 2,
        leader: 3,
        down_peers: 5,
        pending_peers: 6,
        buckets: 7,
    };
    /// Of `pdpb.RegionResponse` and `pdpb.Region`.
    pub(crate) const ITEM: Self = Self {
        region: 1,
        leader: 2,
        down_peers: 3,
        pending_peers: 4,
        buckets: 5,
    };
}

/// A region as lookups tell of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'r> {
    pub(crate) region: &'r Region,
    pub(crate) with_buckets: bool,
    /// Whether an empty peer stands for a leader that is unknown, as in scans.
    pub(crate) always_led: bool,
    pub(crate) tags: Tags,
}

/// Stands for a leader that is unknown.
const NOBODY: Peer = Peer {
    id: 0,
    store_id: 0,
    role: PeerRole::Voter,
    is_witness: false,
};

impl<'r> Told<'r> {
    fn buckets(&self) -> Option<BucketsOf<'r>> {
        let details = self.region.details().filter(|_| self.with_buckets);
        let buckets = details?.buckets.as_ref()?;
        Some(BucketsOf(self.region.id(), buckets))
    }

    fn leader(&self) -> Option<Peer> {
        let nobody = self.always_led.then_some(NOBODY);
        self.region.leader().or(nobody)
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        let tags = self.tags;
        let mut len = Descriptor(self.region).framed_len(tags.region);
        if let Some(leader) = self.leader() {
            len += leader.framed_len(tags.leader);
        }
        if let Some(details) = self.region.details() {
            let down = details.down_peers.iter();
            len += down.map(|it| it.framed_len(tags.down_peers)).sum::<usize>();
            let pending = details.pending_peers.iter();
            len += pending
                .map(|it| it.framed_len(tags.pending_peers))
                .sum::<usize>();
        }
        len + self.buckets().map_or(0, |it| it.framed_len(tags.buckets))
    }

    /// Writes it.
    pub(crate) fn put(&self, into: &mut impl BufMut) {
        let tags = self.tags;
        Descriptor(self.region).put_framed(tags.region, into);
        if let Some(leader) = self.leader() {
            leader.put_framed(tags.leader, into);
        }
        if let Some(details) = self.region.details() {
            for down in &details.down_peers {
                down.put_framed(tags.down_peers, into);
            }
            for pending in &details.pending_peers {
                pending.put_framed(tags.pending_peers, into);
            }
        }
        if let Some(buckets) = self.buckets() {
            buckets.put_framed(tags.buckets, into);
        }
    }
}

/// Writes a region as an element of a list under `tag`.
pub(crate) fn put_told(tag: u32, told: &Told<'_>, into: &mut impl BufMut) {
    put_frame(tag, told.len(), into);
    told.put(into);
}

/// Writes a region's descriptor under `tag`.
pub(crate) fn put_descriptor(tag: u32, region: &Region, into: &mut impl BufMut) {
    Descriptor(region).put_framed(tag, into);
}

/// Writes a region's leader under `tag`, an empty peer when it is unknown.
pub(crate) fn put_leader(tag: u32, region: &Region, into: &mut impl BufMut) {
    region.leader().unwrap_or(NOBODY).put_framed(tag, into);
}

/// The length of an element of a map from ids to messages of `len` bytes.
fn element_len(id: u64, len: usize) -> usize {
    number_len(1, id) + if len == 0 { 0 } else { framed_len(2, len) }
}

/// Writes an element of such a map, under `tag`.
pub(crate) fn put_element(tag: u32, id: u64, told: Option<&Told<'_>>, into: &mut impl BufMut) {
    let len = told.map_or(0, Told::len);
    put_frame(tag, element_len(id, len), into);
    put_number(1, id, into);
    if let Some(told) = told {
        put_frame(2, len, into);
        told.put(into);
    }
}

/// Writes a packed list of numbers; an empty one is left out.
pub(crate) fn put_numbers(
    tag: u32,
    numbers: impl ExactSizeIterator<Item = u64> + Clone,
    into: &mut impl BufMut,
) {
    if numbers.len() == 0 {
        return;
    }
    let len = numbers.clone().map(encoded_len_varint).sum();
    put_frame(tag, len, into);
    for number in numbers {
        encode_varint(number, into);
    }
}

#[cfg(test)]
mod tests;
