//! The peers of a region and which of them leads, in 56 bytes.
//!
//! A region is made and freed with every change of it, and a lookup answers with
//! its peers. So they stand in the region itself: a list in memory of its own would
//! be allocated and freed with each region, and be one more line that an answer
//! waits for. Nearly every region has three peers, or four while one is on its way
//! to another store, and stores have small ids.
//!
//! What does not fit stands in a box: more than four peers, a store whose id does
//! not fit in 32 bits, and a leader that is not among the peers word for word (PD
//! tells of leaders and of peers apart, so that one can be older than the other).
//!
//! The leader stands first, before those that were reported before it: whoever asks
//! for it does not wait for its place to be read.
//!
//! What fits is never in a box, and unused slots are zero: equal members look alike,
//! and are compared as they stand.

use std::fmt;

use super::{Peer, PeerRole, Peers};

/// The peers of a region in the order in which they were reported, and the leader.
#[derive(Clone, Eq, PartialEq)]
pub(super) enum Members {
    Few(Few),
    // Invariant: the members do not fit in `Few`.
    Many(Box<Many>),
}

// What tells the variants apart is a value that `Few::leader` does not have: whoever
// asks for the leader looks at one byte for both.
const _: () = assert!(size_of::<Members>() == 56);

/// Members that fit in place.
// The order matters: whether one leads, and its id, are in one line, so that a lookup does
// not wait for two lines in turn. See the layout of `Entry`.
#[derive(Clone, Eq, PartialEq)]
#[repr(C)]
pub(super) struct Few {
    kinds: [Kind; Self::MOST],
    // Invariant: at most `MOST`, and the slots from here on are as in `EMPTY`.
    count: u8,
    // Invariant: which of the `count` peers leads, the first of those that are equal, or
    // nobody. It stands in the first slot, and those reported before it one slot further.
    leader: Leads,
    ids: [u64; Self::MOST],
    stores: [u32; Self::MOST],
}

/// Members that do not fit.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Many {
    peers: Box<[Peer]>,
    leader: Option<Peer>,
}

/// The place of the peer that leads, in the order in which they were reported.
#[derive(Clone, Copy, Eq, PartialEq)]
#[repr(u8)]
enum Leads {
    First,
    Second,
    Third,
    Fourth,
    Nobody,
}

/// A peer's role and whether it is a witness: the witnesses in the order of the
/// others, four behind them.
#[derive(Clone, Copy, Eq, PartialEq)]
#[repr(u8)]
enum Kind {
    Voter,
    Learner,
    IncomingVoter,
    DemotingVoter,
    WitnessVoter,
    WitnessLearner,
    WitnessIncomingVoter,
    WitnessDemotingVoter,
}

// === impl Members ===

impl Members {
    /// No peers.
    pub(super) const EMPTY: Self = Self::Few(Few::EMPTY);

    /// These peers, of which none leads.
    pub(super) fn of(peers: impl IntoIterator<Item = Peer>) -> Self {
        let mut few = Few::EMPTY;
        let mut peers = peers.into_iter();
        while let Some(peer) = peers.next() {
            if !few.push(peer) {
                let peers = few.iter().chain([peer]).chain(peers).collect();
                let leader = None;
                return Self::Many(Box::new(Many { peers, leader }));
            }
        }
        Self::Few(few)
    }

    /// The same peers under another leader.
    pub(super) fn led_by(self, leader: Option<Peer>) -> Self {
        match self {
            Self::Few(mut few) => {
                if few.set_leader(leader) {
                    return Self::Few(few);
                }
                let peers = few.iter().collect();
                Self::Many(Box::new(Many { peers, leader }))
            }
            Self::Many(mut many) => {
                // They may have been here for the sake of their leader alone.
                if let Some(mut few) = Few::of(&many.peers)
                    && few.set_leader(leader)
                {
                    return Self::Few(few);
                }
                many.leader = leader;
                Self::Many(many)
            }
        }
    }

    /// The peers.
    #[inline]
    pub(super) const fn peers(&self) -> Peers<'_> {
        Peers::of(self)
    }

    /// How many peers there are.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.peers.len(),
        }
    }

    /// The peer at a place in the order.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<Peer> {
        match self {
            Self::Few(few) => few.get(at),
            Self::Many(many) => many.peers.get(at).copied(),
        }
    }

    /// The peer that leads, if it is known.
    #[inline]
    pub(super) fn leader(&self) -> Option<Peer> {
        match self {
            Self::Few(few) => few.leader(),
            Self::Many(many) => many.leader,
        }
    }

    /// How many bytes behind the beginning who leads and the ids end.
    #[cfg(all(test, not(tidegate_loom)))]
    pub(super) const IDS_END: usize = std::mem::offset_of!(Few, stores);

    /// Bytes of memory that the members refer to.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few(_) => 0,
            Self::Many(many) => size_of::<Many>() + size_of_val(&*many.peers),
        }
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("peers", &self.peers())
            .field("leader", &self.leader())
            .finish()
    }
}

// === impl Few ===

impl Few {
    /// The most peers that fit.
    const MOST: usize = Leads::PLACES.len();

    const EMPTY: Self = Self {
        kinds: [Kind::Voter; Self::MOST],
        count: 0,
        leader: Leads::Nobody,
        ids: [0; Self::MOST],
        stores: [0; Self::MOST],
    };

    /// These peers, of which none leads, if they fit.
    fn of(peers: &[Peer]) -> Option<Self> {
        let mut few = Self::EMPTY;
        let fit = peers.iter().all(|peer| few.push(*peer));
        fit.then_some(few)
    }

    /// Adds a peer behind the others; whether it fitted.
    fn push(&mut self, peer: Peer) -> bool {
        let at = self.len();
        let Ok(store) = u32::try_from(peer.store_id) else {
            return false;
        };
        if at == Self::MOST {
            return false;
        }
        self.ids[at] = peer.id;
        self.stores[at] = store;
        self.kinds[at] = Kind::of(peer);
        self.count += 1;
        true
    }

    /// Sets the leader to one of the peers or to none; whether it was. Nobody leads if
    /// it was not.
    fn set_leader(&mut self, leader: Option<Peer>) -> bool {
        if let Some(before) = self.slots_up_to_leader() {
            self.rotate(before, before - 1);
            self.leader = Leads::Nobody;
        }
        let Some(leader) = leader else {
            return true;
        };
        let mut places = Leads::PLACES.into_iter().take(self.len());
        let Some(found) = places.find(|&at| self.slot(at as usize) == Some(leader)) else {
            return false;
        };
        self.leader = found;
        if let Some(before) = self.slots_up_to_leader() {
            self.rotate(before, 1);
        }
        true
    }

    /// Moves the peers in the first slots on, the last of them to the front.
    fn rotate(&mut self, slots: usize, by: usize) {
        self.ids[..slots].rotate_right(by);
        self.stores[..slots].rotate_right(by);
        self.kinds[..slots].rotate_right(by);
    }

    /// How many peers were reported up to the leader, itself included.
    fn slots_up_to_leader(&self) -> Option<usize> {
        (self.leader != Leads::Nobody).then_some(self.leader as usize + 1)
    }

    #[inline]
    const fn len(&self) -> usize {
        self.count as usize
    }

    #[inline]
    fn get(&self, at: usize) -> Option<Peer> {
        if at < self.len() {
            self.slot(self.slot_of(at))
        } else {
            None
        }
    }

    /// Where the peer stands that was reported at this place.
    #[inline]
    fn slot_of(&self, at: usize) -> usize {
        let leads = self.leader as usize;
        if self.leader == Leads::Nobody || at > leads {
            at
        } else if at == leads {
            0
        } else {
            at + 1
        }
    }

    #[inline]
    fn leader(&self) -> Option<Peer> {
        if self.leader == Leads::Nobody {
            return None;
        }
        self.slot(0)
    }

    fn iter(&self) -> impl Iterator<Item = Peer> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// What stands in a slot, used or not.
    #[inline]
    fn slot(&self, at: usize) -> Option<Peer> {
        let kind = *self.kinds.get(at)?;
        Some(Peer {
            id: *self.ids.get(at)?,
            store_id: u64::from(*self.stores.get(at)?),
            role: kind.role(),
            is_witness: kind.is_witness(),
        })
    }
}

// === impl Leads ===

impl Leads {
    const PLACES: [Self; 4] = [Self::First, Self::Second, Self::Third, Self::Fourth];
}

// === impl Kind ===

impl Kind {
    fn of(peer: Peer) -> Self {
        match (peer.is_witness, peer.role) {
            (false, PeerRole::Voter) => Self::Voter,
            (false, PeerRole::Learner) => Self::Learner,
            (false, PeerRole::IncomingVoter) => Self::IncomingVoter,
            (false, PeerRole::DemotingVoter) => Self::DemotingVoter,
            (true, PeerRole::Voter) => Self::WitnessVoter,
            (true, PeerRole::Learner) => Self::WitnessLearner,
            (true, PeerRole::IncomingVoter) => Self::WitnessIncomingVoter,
            (true, PeerRole::DemotingVoter) => Self::WitnessDemotingVoter,
        }
    }

    // By the order, since a match makes the compiler look it up in a table elsewhere
    // in memory.
    #[inline]
    const fn role(self) -> PeerRole {
        match self as u8 % Self::WitnessVoter as u8 {
            0 => PeerRole::Voter,
            1 => PeerRole::Learner,
            2 => PeerRole::IncomingVoter,
            _ => PeerRole::DemotingVoter,
        }
    }

    #[inline]
    const fn is_witness(self) -> bool {
        self as u8 >= Self::WitnessVoter as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROLES: [PeerRole; 4] = [
        PeerRole::Voter,
        PeerRole::Learner,
        PeerRole::IncomingVoter,
        PeerRole::DemotingVoter,
    ];

    /// The largest store id that fits.
    const FITS: u64 = u32::MAX as u64;

    fn peer(id: u64) -> Peer {
        Peer {
            id,
            store_id: id + 100,
            role: PeerRole::Voter,
            is_witness: false,
        }
    }

    fn any_peer() -> impl Strategy<Value = Peer> {
        (
            prop_oneof![4 => 0..4u64, 1 => any::<u64>()],
            prop_oneof![8 => 0..4u64, 1 => FITS - 1..FITS + 2, 1 => any::<u64>()],
            prop::sample::select(&ROLES),
            any::<bool>(),
        )
            .prop_map(|(id, store_id, role, is_witness)| Peer {
                id,
                store_id,
                role,
                is_witness,
            })
    }

    /// Peers with nobody, one of them, or one that differs from one of them in a
    /// part for a leader; sometimes with anybody.
    fn any_members() -> impl Strategy<Value = (Vec<Peer>, Option<Peer>)> {
        let peers = prop::collection::vec(any_peer(), 0..8);
        (peers, 0..8usize, any::<prop::sample::Index>(), any_peer()).prop_map(
            |(peers, part, which, other)| {
                let leader = (!peers.is_empty()).then(|| *which.get(&peers));
                let leader = match part {
                    0 => None,
                    1 => Some(other),
                    2 => leader.map(|it| Peer {
                        id: it.id ^ 1,
                        ..it
                    }),
                    3 => leader.map(|it| Peer {
                        store_id: other.store_id,
                        ..it
                    }),
                    4 => leader.map(|it| Peer {
                        role: other.role,
                        ..it
                    }),
                    5 => leader.map(|it| Peer {
                        is_witness: !it.is_witness,
                        ..it
                    }),
                    _ => leader,
                };
                (peers, leader)
            },
        )
    }

    fn fits(peers: &[Peer], leader: Option<Peer>) -> bool {
        peers.len() <= 4
            && peers.iter().all(|peer| peer.store_id <= FITS)
            && leader.is_none_or(|leader| peers.contains(&leader))
    }

    fn is_few(members: &Members) -> bool {
        matches!(members, Members::Few(_))
    }

    fn members(peers: &[Peer], leader: Option<Peer>) -> Members {
        Members::of(peers.iter().copied()).led_by(leader)
    }

    /// What derived `Debug` would print of these peers as a list and this leader.
    fn printed(peers: &[Peer], leader: Option<Peer>) -> String {
        format!("Members {{ peers: {peers:?}, leader: {leader:?} }}")
    }

    proptest! {
        #[test]
        fn members_are_what_they_were_made_of((peers, leader) in any_members()) {
            let members = members(&peers, leader);
            prop_assert_eq!(members.leader(), leader);
            prop_assert_eq!(members.len(), peers.len());
            prop_assert_eq!(members.peers().to_vec(), &peers[..]);
            for at in 0..10 {
                prop_assert_eq!(members.get(at), peers.get(at).copied());
            }
            prop_assert_eq!(format!("{members:?}"), printed(&peers, leader));
            prop_assert_eq!(members.clone(), members);
        }

        #[test]
        fn what_fits_is_in_place_and_nothing_else((peers, leader) in any_members()) {
            let members = members(&peers, leader);
            prop_assert_eq!(is_few(&members), fits(&peers, leader));
            let boxed = size_of::<Many>() + peers.len() * size_of::<Peer>();
            let expected = if is_few(&members) { 0 } else { boxed };
            prop_assert_eq!(members.heap_bytes(), expected);
        }

        #[test]
        fn members_are_equal_if_their_content_is(one in any_members(), other in any_members()) {
            let of = |(peers, leader): &(Vec<Peer>, _)| members(peers, *leader);
            prop_assert_eq!(of(&one) == of(&other), one == other);
            // Almost equal ones are rare above.
            let led_otherwise = (one.0.clone(), other.1);
            prop_assert_eq!(of(&one) == of(&led_otherwise), one == led_otherwise);
            let mut fewer = one.clone();
            if fewer.0.pop().is_some() {
                prop_assert_ne!(of(&one), of(&fewer));
            }
        }

        #[test]
        fn nothing_is_left_of_the_leaders_before(
            (peers, leader) in any_members(),
            before in prop::option::of(any_peer()),
        ) {
            let direct = members(&peers, leader);
            let first = peers.first().copied();
            let round = direct.clone().led_by(before).led_by(first).led_by(None);
            prop_assert_eq!(&round, &Members::of(peers.iter().copied()));
            prop_assert_eq!(round.led_by(leader), direct);
        }
    }

    #[test]
    fn each_role_is_kept_with_and_without_data() {
        for role in ROLES {
            for is_witness in [false, true] {
                let peer = Peer {
                    role,
                    is_witness,
                    ..peer(1)
                };
                let members = members(&[peer], Some(peer));
                assert!(is_few(&members));
                assert_eq!(members.get(0), Some(peer));
                assert_eq!(members.leader(), Some(peer));
            }
        }
    }

    #[test]
    fn what_fits_ends_at_four_peers_and_at_32_bits() {
        let four = [1, 2, 3, 4].map(peer);
        let five = [1, 2, 3, 4, 5].map(peer);
        assert!(is_few(&members(&four, Some(four[3]))));
        assert!(!is_few(&members(&five, Some(five[4]))));
        let on_store = |store_id| Peer {
            store_id,
            ..peer(1)
        };
        assert!(is_few(&members(&[on_store(FITS)], None)));
        let beyond = members(&[on_store(FITS + 1)], None);
        assert!(!is_few(&beyond));
        assert_eq!(beyond.get(0), Some(on_store(FITS + 1)));
    }

    #[test]
    fn a_leader_without_peers_is_kept() {
        let alone = members(&[], Some(peer(1)));
        assert_eq!((alone.len(), alone.leader()), (0, Some(peer(1))));
        assert_eq!(alone.led_by(None), Members::EMPTY);
    }

    #[test]
    fn of_equal_peers_either_may_lead() {
        let members = members(&[peer(1), peer(2), peer(2)], Some(peer(2)));
        assert!(is_few(&members));
        assert_eq!(members.leader(), Some(peer(2)));
    }
}
