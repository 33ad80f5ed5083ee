//! The peers of a region, as its readers see them.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use super::Peer;
use super::members::Members;

/// The peers of a [`Region`](super::Region), in the order in which they were
/// reported.
///
/// A list that hands its elements out by value, since a region does not hold them
/// as [`Peer`]s: as cheap to copy as a reference, and each access costs the same
/// wherever it goes. Equal to another if both have equal peers in the same order.
#[derive(Clone, Copy)]
pub struct Peers<'r> {
    members: &'r Members,
}

/// Goes through the [`Peers`] of a region, from either end.
#[derive(Clone)]
#[must_use = "an iterator does nothing until it is used"]
pub struct PeersIter<'r> {
    peers: Peers<'r>,
    // What is left.
    places: Range<usize>,
}

// === impl Peers ===

impl<'r> Peers<'r> {
    #[inline]
    pub(super) const fn of(members: &'r Members) -> Self {
        Self { members }
    }

    /// How many peers the region has.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.members.len()
    }

    /// Whether no peer was reported.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The peer at a place in the order, 0 being the first; `None` if there are not
    /// as many. Takes constant time.
    #[inline]
    #[must_use]
    pub fn get(self, at: usize) -> Option<Peer> {
        self.members.get(at)
    }

    /// All peers, in order.
    #[inline]
    pub const fn iter(self) -> PeersIter<'r> {
        PeersIter {
            places: 0..self.len(),
            peers: self,
        }
    }

    /// The peers in a list of their own.
    #[must_use]
    pub fn to_vec(self) -> Vec<Peer> {
        self.iter().collect()
    }
}

impl<'r> IntoIterator for Peers<'r> {
    type Item = Peer;
    type IntoIter = PeersIter<'r>;

    #[inline]
    fn into_iter(self) -> PeersIter<'r> {
        self.iter()
    }
}

impl PartialEq for Peers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Peers<'_> {}

impl PartialEq<[Peer]> for Peers<'_> {
    fn eq(&self, other: &[Peer]) -> bool {
        self.iter().eq(other.iter().copied())
    }
}

impl fmt::Debug for Peers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

// === impl PeersIter ===

impl Iterator for PeersIter<'_> {
    type Item = Peer;

    #[inline]
    fn next(&mut self) -> Option<Peer> {
        self.peers.get(self.places.next()?)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}

impl DoubleEndedIterator for PeersIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Peer> {
        self.peers.get(self.places.next_back()?)
    }
}

impl ExactSizeIterator for PeersIter<'_> {}

impl FusedIterator for PeersIter<'_> {}

/// What is left, as a list.
impl fmt::Debug for PeersIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::PeerRole;

    fn peer(id: u64) -> Peer {
        Peer {
            id,
            store_id: id,
            role: PeerRole::Voter,
            is_witness: false,
        }
    }

    #[test]
    fn peers_can_be_gone_through_from_both_ends() {
        for count in 0..=6 {
            let list: Vec<Peer> = (1..=count).map(peer).collect();
            let members = Members::of(list.iter().copied());
            let peers = members.peers();
            assert_eq!(peers, list[..]);
            assert_eq!(peers.is_empty(), list.is_empty());
            assert_eq!(peers.iter().len(), list.len());
            let back: Vec<Peer> = peers.into_iter().rev().collect();
            assert!(back.iter().rev().eq(&list));
            let mut both = peers.iter();
            let (first, last) = (both.next(), both.next_back());
            assert_eq!(first, list.first().copied());
            assert_eq!(last, list.get(1..).and_then(<[Peer]>::last).copied());
            let left = list.len().saturating_sub(2);
            assert_eq!(both.len(), left);
            assert_eq!(both.count(), left);
        }
    }

    #[test]
    fn equal_peers_under_different_leaders_are_equal() {
        let list = [1, 2, 3].map(peer);
        let led = |leader| Members::of(list).led_by(leader);
        let (one, other, strange) = (led(Some(list[0])), led(None), led(Some(peer(9))));
        assert_eq!(one.peers(), other.peers());
        assert_eq!(one.peers(), strange.peers());
        assert_ne!(one.peers(), Members::of([3, 2, 1].map(peer)).peers());
        assert_ne!(one.peers(), list[..2]);
        assert_eq!(format!("{:?}", one.peers()), format!("{list:?}"));
        assert_eq!(format!("{:?}", one.peers().iter()), format!("{list:?}"));
    }
}
