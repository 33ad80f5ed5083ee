//! Finding a place among the sorted keys of one node.
//!
//! The keys of a node resemble each other: a table's keys begin alike, and even
//! where they differ, most bytes between the differences are the same (`_r`, the
//! zeros of a small handle, the group markers of the encoding). So a node keeps
//! one key to compare with, its *base*, and the set of positions at which its
//! keys *vary*. The bytes of a key at the first eight of these positions, as a
//! big-endian number, are its *head*; all other positions before the last of
//! them are the same in every key of the node. Beyond its end a key counts as
//! zeros.
//!
//! # Why numbers suffice
//!
//! Of two keys of the node, the first position at which they differ is one that
//! varies. If it is among the eight, their heads differ the same way; if not,
//! their heads are equal. So a smaller head means a smaller key, while equal
//! heads mean nothing.
//!
//! A key that is sought may differ from the base where no key of the node does.
//! At the first such position it is below all, or above all, of those keys that
//! agree with it before: their heads begin as its own does. It takes the lowest
//! head, or the highest, that begins so.
//!
//! Eight bytes of head are half a line of a leaf per slot less than sixteen, and
//! tell the regions of a node apart also where it spans tables.

use super::CAPACITY;

/// How many bytes of a key take part: what fills a cache line up, beside a tag
/// and the other fields.
const BASE: usize = 47;

/// Bytes of a head.
const HEAD: u32 = 8;

/// In the place of a head that is not there: no head is greater.
const VACANT: u64 = u64::MAX;

/// Heads that are counted together, see [`count_while`].
const GROUP: usize = if CAPACITY < 8 { CAPACITY } else { 8 };

/// The sorted keys of a node, as far as a search needs them.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Heads {
    // Invariant: bit `i` is set if the keys vary at position `i`, for the first
    // eight such positions; at every other position before `Self::horizon` all
    // keys are as `base` is.
    varying: u64,
    len: u8,
    base: [u8; BASE],
    // Invariant: ascending; `heads[i]` is the head of key `i`. Those past `len` are
    // `VACANT`, so that counting needs no bound.
    heads: [u64; CAPACITY],
}

/// A key in the form in which nodes look for it; made once for a whole descent.
pub(super) struct Sought<'k> {
    pub(super) key: &'k [u8],
    padded: [u8; 64],
}

impl<'k> Sought<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8]) -> Self {
        let mut padded = [0; 64];
        let len = key.len().min(BASE);
        padded[..len].copy_from_slice(&key[..len]);
        Self { key, padded }
    }

    /// The bytes at the positions that are set in `varying`, as a number.
    #[inline]
    fn head(&self, varying: u64) -> u64 {
        let (mut left, mut head, mut shift) = (varying, 0, 64);
        while left != 0 {
            let position = left.trailing_zeros() as usize;
            left &= left - 1;
            shift -= 8;
            head |= u64::from(self.padded[position & 63]) << shift;
        }
        head
    }
}

impl Heads {
    pub(super) const fn new() -> Self {
        Self {
            varying: 0,
            len: 0,
            base: [0; BASE],
            heads: [VACANT; CAPACITY],
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    fn as_slice(&self) -> &[u64] {
        &self.heads[..self.len()]
    }

    /// How many keys are at most the one sought; `whole` gives a key by its
    /// place.
    #[inline]
    pub(super) fn count_at_most<'n>(
        &self,
        sought: &Sought<'_>,
        whole: impl Fn(usize) -> &'n [u8],
    ) -> usize {
        self.count(sought, |candidate| candidate <= sought.key, whole)
    }

    /// How many keys are below the one sought.
    #[inline]
    pub(super) fn count_below<'n>(
        &self,
        sought: &Sought<'_>,
        whole: impl Fn(usize) -> &'n [u8],
    ) -> usize {
        self.count(sought, |candidate| candidate < sought.key, whole)
    }

    /// How many keys satisfy `counts`, which holds for all that are smaller than
    /// the one sought and for none that are greater.
    #[inline]
    fn count<'n>(
        &self,
        sought: &Sought<'_>,
        counts: impl Fn(&[u8]) -> bool,
        whole: impl Fn(usize) -> &'n [u8],
    ) -> usize {
        let head = sought.head(self.varying);
        let strange = differing(&sought.padded, &self.base) & self.constant();
        if strange != 0 {
            let position = strange.trailing_zeros();
            let before = (self.varying & below(position)).count_ones();
            // The bytes of the head that lie behind the position.
            let behind = u64::MAX.checked_shr(8 * before).unwrap_or(0);
            let place = position as usize;
            return if sought.padded[place] < self.base[place] {
                self.count_below_head(head & !behind)
            } else {
                self.count_at_most_head(head | behind)
            };
        }
        let mut below = self.count_below_head(head);
        let heads = self.as_slice();
        if heads.get(below) != Some(&head) {
            return below;
        }
        // Keys with the same head: only they need to be looked at, and they are
        // few unless the keys of the node vary at many positions.
        let mut end = below + heads[below..].partition_point(|&candidate| candidate == head);
        while below < end {
            let middle = below.midpoint(end);
            if counts(whole(middle)) {
                below = middle + 1;
            } else {
                end = middle;
            }
        }
        below
    }

    #[inline]
    fn count_below_head(&self, head: u64) -> usize {
        count_while(&self.heads, |candidate| candidate < head)
    }

    #[inline]
    fn count_at_most_head(&self, head: u64) -> usize {
        // The vacant ones count if the head is as great as they are.
        count_while(&self.heads, |candidate| candidate <= head).min(self.len())
    }

    /// Makes room for `key` at `place`.
    pub(super) fn insert(&mut self, place: usize, key: &[u8]) {
        let len = self.len();
        debug_assert!(place <= len && len < CAPACITY, "no room in the node");
        let sought = Sought::new(key);
        if len == 0 {
            self.varying = 0;
            self.base.copy_from_slice(&sought.padded[..BASE]);
        } else {
            self.widen(differing(&sought.padded, &self.base));
        }
        self.heads.copy_within(place..len, place + 1);
        self.heads[place] = sought.head(self.varying);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, place: usize) {
        let len = self.len();
        self.heads.copy_within(place + 1..len, place);
        self.truncate(len - 1);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        self.heads[len..].fill(VACANT);
        self.len = len as u8;
    }

    /// The keys from `place` on, moved out.
    pub(super) fn split_off(&mut self, place: usize) -> Self {
        let mut right = Self {
            base: self.base,
            varying: self.varying,
            ..Self::new()
        };
        let moved = self.len() - place;
        right.heads[..moved].copy_from_slice(&self.heads[place..place + moved]);
        right.len = moved as u8;
        self.truncate(place);
        right
    }

    /// Adds the keys of `other`, all of which are greater.
    pub(super) fn append(&mut self, other: &Self) {
        if self.len == 0 {
            *self = other.clone();
            return;
        }
        if other.len == 0 {
            return;
        }
        let mut other = other.clone();
        // Each learns where the other varies and where the bases differ. Beyond
        // its horizon neither knows anything; but the eighth position of both
        // together is before either horizon, so they come to the same set.
        let apart = differing_bases(&self.base, &other.base);
        let (mine, theirs) = (self.varying, other.varying);
        self.widen(apart | theirs);
        other.widen(apart | mine);
        debug_assert_eq!(self.varying, other.varying);
        let (len, added) = (self.len(), other.len());
        self.heads[len..len + added].copy_from_slice(other.as_slice());
        self.len += other.len;
    }

    /// Whether two keys have the same head.
    pub(super) fn has_ties(&self) -> bool {
        self.as_slice().windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Makes the heads anew, for positions at which the keys vary now. Positions
    /// that no longer vary are given up for others that do.
    pub(super) fn renew<'n>(&mut self, whole: impl Fn(usize) -> &'n [u8]) {
        if self.len == 0 {
            return;
        }
        self.base
            .copy_from_slice(&Sought::new(whole(0)).padded[..BASE]);
        let varying = (1..self.len()).fold(0, |varying, place| {
            varying | differing(&Sought::new(whole(place)).padded, &self.base)
        });
        self.varying = first_positions(varying);
        for place in 0..self.len() {
            self.heads[place] = Sought::new(whole(place)).head(self.varying);
        }
    }

    /// The positions at which every key is as the base is.
    #[inline]
    fn constant(&self) -> u64 {
        below(self.horizon()) & !self.varying
    }

    /// Positions from here on are not known to be constant.
    #[inline]
    fn horizon(&self) -> u32 {
        if self.varying.count_ones() < HEAD {
            BASE as u32
        } else {
            u64::BITS - self.varying.leading_zeros()
        }
    }

    /// Takes in `positions`, as far as they were constant: there each key is as
    /// the base is, so no key has to be read.
    fn widen(&mut self, positions: u64) {
        let new = positions & self.constant();
        if new == 0 {
            return;
        }
        let old = self.varying;
        self.varying = first_positions(old | new);
        let count = self.len();
        for head in &mut self.heads[..count] {
            let (mut left, mut rest, mut wider, mut shift) = (self.varying, *head, 0, 64);
            while left != 0 {
                let position = left.trailing_zeros();
                left &= left - 1;
                shift -= 8;
                let byte = if old & (1 << position) == 0 {
                    self.base[position as usize]
                } else {
                    let byte = (rest >> 56) as u8;
                    rest <<= 8;
                    byte
                };
                wider |= u64::from(byte) << shift;
            }
            *head = wider;
        }
    }

    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn check<'n>(&self, whole: impl Fn(usize) -> &'n [u8]) -> Result<(), String> {
        for (place, &head) in self.as_slice().iter().enumerate() {
            let key = whole(place);
            let sought = Sought::new(key);
            if differing(&sought.padded, &self.base) & self.constant() != 0 {
                return Err(format!("key {key:x?} differs where its node does not vary"));
            }
            if sought.head(self.varying) != head {
                return Err(format!("key {key:x?} has the wrong head"));
            }
            if place > 0 && whole(place - 1) >= key {
                return Err(format!("key {key:x?} is out of order"));
            }
        }
        Ok(())
    }
}

/// How many heads at the beginning satisfy `counts`; it holds for none after one
/// for which it does not.
///
/// Not a binary search: that waits for each comparison before it knows the next
/// load, six times for a full node. Here the last heads of all groups are looked
/// at together, then the heads of one group.
#[inline]
fn count_while(heads: &[u64; CAPACITY], counts: impl Fn(u64) -> bool) -> usize {
    let (groups, _) = heads.as_chunks::<GROUP>();
    let whole: usize = groups
        .iter()
        .map(|group| usize::from(counts(group[GROUP - 1])))
        .sum();
    let Some(group) = groups.get(whole) else {
        return CAPACITY;
    };
    let part: usize = group.iter().map(|&head| usize::from(counts(head))).sum();
    whole * GROUP + part
}

/// The bits below `position`.
#[inline]
fn below(position: u32) -> u64 {
    (1 << position) - 1
}

/// The lowest eight bits of those that are set.
fn first_positions(positions: u64) -> u64 {
    let (mut left, mut first) = (positions, 0);
    while left != 0 && u64::count_ones(first) < HEAD {
        first |= left & left.wrapping_neg();
        left &= left - 1;
    }
    first
}

fn differing_bases(left: &[u8; BASE], right: &[u8; BASE]) -> u64 {
    let mut padded = [0; 64];
    padded[..BASE].copy_from_slice(left);
    differing(&padded, right)
}

/// The positions at which `base` differs from the padded key.
#[inline]
fn differing(padded: &[u8; 64], base: &[u8; BASE]) -> u64 {
    const LANE: usize = 16;
    const LAST: usize = BASE - LANE;
    // The last lane overlaps the one before, so that none reads past the base.
    unequal(padded, base, 0)
        | unequal(padded, base, LANE) << LANE
        | unequal(padded, base, LAST) << LAST
}

/// A bit for each of sixteen bytes, from `start` on, that differ.
#[inline(always)]
fn unequal(padded: &[u8; 64], base: &[u8; BASE], start: usize) -> u64 {
    let (left, right) = (&padded[start..start + 16], &base[start..start + 16]);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
        // SAFETY: sixteen bytes of a slice; the load needs no alignment.
        let left = unsafe { _mm_loadu_si128(left.as_ptr().cast()) };
        // SAFETY: as above.
        let right = unsafe { _mm_loadu_si128(right.as_ptr().cast()) };
        // SAFETY: SSE2 is part of x86-64.
        let equal = unsafe { _mm_cmpeq_epi8(left, right) };
        // SAFETY: as above.
        let equal = unsafe { _mm_movemask_epi8(equal) };
        u64::from(!(equal as u16))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let pairs = left.iter().zip(right).enumerate();
        pairs.fold(0, |bits, (at, (left, right))| {
            bits | u64::from(left != right) << at
        })
    }
}

#[cfg(all(test, not(tidegate_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        // Long common beginnings, zeros (which the padding resembles), prefixes
        // of each other.
        let tail = prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12);
        (0usize..70, tail).prop_map(|(shared, tail)| {
            let mut key = vec![7; shared / 10 * 10];
            key.extend(tail);
            key
        })
    }

    proptest! {
        #[test]
        fn places_agree_with_plain_comparison(
            inserted in prop::collection::btree_set(key(), 1..CAPACITY),
            sought in prop::collection::vec(key(), 1..20),
            order in any::<prop::sample::Index>(),
            split in any::<prop::sample::Index>(),
        ) {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let mut heads = Heads::new();
            let mut shuffled: Vec<_> = inserted.into_iter().collect();
            let middle = order.index(shuffled.len());
            shuffled.rotate_left(middle);
            for key in shuffled {
                let place = heads.count_at_most(&Sought::new(&key), |place| &keys[place]);
                heads.insert(place, &key);
                keys.insert(place, key);
                heads.check(|place| &keys[place]).map_err(TestCaseError::fail)?;
            }
            if heads.has_ties() {
                heads.renew(|place| &keys[place]);
                heads.check(|place| &keys[place]).map_err(TestCaseError::fail)?;
            }
            for key in sought.iter().chain(&keys) {
                let at_most = keys.iter().filter(|candidate| *candidate <= key).count();
                let below = keys.iter().filter(|candidate| *candidate < key).count();
                prop_assert_eq!(heads.count_at_most(&Sought::new(key), |place| &keys[place]), at_most);
                prop_assert_eq!(heads.count_below(&Sought::new(key), |place| &keys[place]), below);
            }

            let place = split.index(keys.len());
            let mut left = heads.clone();
            let mut right = left.split_off(place);
            right.renew(|at| &keys[place + at]);
            right.check(|at| &keys[place + at]).map_err(TestCaseError::fail)?;
            left.append(&right);
            left.check(|place| &keys[place]).map_err(TestCaseError::fail)?;
            prop_assert_eq!(left.len(), keys.len());
            left.remove(place);
            keys.remove(place);
            left.check(|place| &keys[place]).map_err(TestCaseError::fail)?;
        }
    }
}
