//! Finding a place among the sorted keys of one node.
//!
//! The keys of a node resemble each other: a table's keys begin alike, and even
//! where they differ, most bytes between the differences are the same (`_r`, the
//! zeros of a small handle, the group markers of the encoding). So a node keeps
//! one key to compare with, its *base*, and the set of positions at which its
//! keys *vary*. The bytes of a key at the first four of these positions, as a
//! big-endian number, are its *head*; all other positions before the last of
//! them are the same in every key of the node. Beyond its end a key counts as
//! zeros.
//!
//! # Why numbers suffice
//!
//! Of two keys of the node, the first position at which they differ is one that
//! varies. If it is among the four, their heads differ the same way; if not,
//! their heads are equal. So a smaller head means a smaller key, while equal
//! heads mean nothing.
//!
//! A key that is sought may differ from the base where no key of the node does.
//! At the first such position it is below all, or above all, of those keys that
//! agree with it before: their heads begin as its own does. It takes the lowest
//! head, or the highest, that begins so.
//!
//! Four bytes tell the regions of a node apart where a table's handles vary, table
//! boundaries included, and need a fourth of a leaf's lines less than eight. Where
//! they do not (long keys that vary in many letters), a lookup reads the whole keys
//! only of those that begin with the very bytes that are sought.
//!
//! # What makes it fast
//!
//! Nothing in a search depends on a guess or on a store that is still under way: the
//! head is put together in as many steps for every node, heads are counted without
//! a branch, and the sought key is written in the pieces in which it is read.
//! With these, a processor works on the next lookup while the last line of the one
//! before comes from memory; each of them that was broken cost 15 to 20 ns a
//! lookup.

use super::CAPACITY;

/// Bytes that are compared at a time.
const LANE: usize = 16;

/// How many bytes of a key take part: what fills a cache line up, beside the
/// other fields.
const BASE: usize = 3 * LANE;

/// Bytes of a head.
const HEAD: usize = 4;

/// Where the number of keys stands in `Heads::marks`.
const LEN_SHIFT: u32 = 56;

/// Bytes of a padded key; a power of two, so that no position is out of bounds.
const PADDED: usize = 64;

/// A position at which every padded key is zero.
const BLANK: u8 = PADDED as u8 - 1;

/// In the place of a head that is not there: no head is greater.
const VACANT: u32 = u32::MAX;

/// The sorted keys of a node, as far as a search needs them.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Heads {
    // Invariant: bit `i` below `BASE` is set if all keys are known to be as `base`
    // is at position `i`: it does not vary, and lies before the last of
    // `positions` if there are four. The highest byte is the number of keys.
    marks: u64,
    // Invariant: the first four positions at which the keys vary, in ascending
    // order; in the place of those that are missing, `BLANK`.
    positions: [u8; HEAD],
    /// Whether the node's children are leaves. Here because this line is read anyway,
    /// and has room for it.
    pub(super) lowest: bool,
    base: [u8; BASE],
    // Invariant: ascending; `heads[i]` is the head of key `i`. Those past `len` are
    // `VACANT`, so that counting needs no bound.
    heads: [u32; CAPACITY],
}

/// A key in the form in which nodes look for it; made once for a whole descent.
pub(super) struct Sought<'k> {
    pub(super) key: &'k [u8],
    // Invariant: zero past the key, and from `BASE` on.
    padded: [u8; PADDED],
}

impl<'k> Sought<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8]) -> Self {
        let mut padded = [0; PADDED];
        let (lanes, _) = padded[..BASE].as_chunks_mut();
        for (place, lane) in lanes.iter_mut().enumerate() {
            write_lane(lane, word(key, 2 * place), word(key, 2 * place + 1));
        }
        Self { key, padded }
    }

    /// The bytes at `positions`, as a number. As many steps for every node: a
    /// wrong guess at how many positions vary costs more than all of them.
    #[inline]
    fn head(&self, positions: [u8; HEAD]) -> u32 {
        positions.iter().fold(0, |head, &position| {
            head << 8 | u32::from(self.padded[usize::from(position) % PADDED])
        })
    }
}

/// The eight bytes of `key` from `8 * place` on, the first one lowest; zeros beyond
/// the end.
#[inline(always)]
fn word(key: &[u8], place: usize) -> u64 {
    let start = 8 * place;
    if let Some(bytes) = key.get(start..).and_then(|rest| rest.first_chunk()) {
        u64::from_le_bytes(*bytes)
    } else if start >= key.len() {
        0
    } else if let Some(bytes) = key.last_chunk() {
        u64::from_le_bytes(*bytes) >> (8 * (start + 8 - key.len()))
    } else {
        let bytes = key.iter().rev();
        bytes.fold(0, |word, &byte| word << 8 | u64::from(byte))
    }
}

/// Writes a lane by one store. A load that spans two stores waits until both have
/// left the processor, hence for every load before them: for the whole lookup
/// before this one.
#[inline(always)]
fn write_lane(lane: &mut [u8; LANE], low: u64, high: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_set_epi64x, _mm_storeu_si128};
        // SAFETY: SSE2 is part of x86-64.
        let both = unsafe { _mm_set_epi64x(high as i64, low as i64) };
        // SAFETY: sixteen bytes of a slice; the store needs no alignment.
        unsafe { _mm_storeu_si128(lane.as_mut_ptr().cast(), both) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        *lane = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
    }
}

impl Heads {
    pub(super) const fn new() -> Self {
        Self {
            marks: below(BASE as u32),
            positions: [BLANK; HEAD],
            lowest: false,
            base: [0; BASE],
            heads: [VACANT; CAPACITY],
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.marks >> LEN_SHIFT) as usize
    }

    fn set_len(&mut self, len: usize) {
        self.marks = self.constant() | (len as u64) << LEN_SHIFT;
    }

    /// The positions at which all keys are known to be as the base is.
    #[inline]
    fn constant(&self) -> u64 {
        self.marks & below(BASE as u32)
    }

    #[inline]
    fn as_slice(&self) -> &[u32] {
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
        let head = sought.head(self.positions);
        let strange = differing(&sought.padded, &self.base) & self.marks;
        if strange != 0 {
            let position = strange.trailing_zeros();
            let before = (self.varying() & below(position)).count_ones();
            // The bytes of the head that lie behind the position.
            let behind = u32::MAX.checked_shr(8 * before).unwrap_or(0);
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
    fn count_below_head(&self, head: u32) -> usize {
        count_while(&self.heads, |candidate| candidate < head)
    }

    #[inline]
    fn count_at_most_head(&self, head: u32) -> usize {
        // The vacant ones count if the head is as great as they are.
        count_while(&self.heads, |candidate| candidate <= head).min(self.len())
    }

    /// Makes room for `key` at `place`.
    pub(super) fn insert(&mut self, place: usize, key: &[u8]) {
        let len = self.len();
        debug_assert!(place <= len && len < CAPACITY, "no room in the node");
        let sought = Sought::new(key);
        if len == 0 {
            self.vary_at(0);
            self.base.copy_from_slice(&sought.padded[..BASE]);
        } else {
            self.widen(differing(&sought.padded, &self.base));
        }
        self.heads.copy_within(place..len, place + 1);
        self.heads[place] = sought.head(self.positions);
        self.set_len(len + 1);
    }

    pub(super) fn remove(&mut self, place: usize) {
        let len = self.len();
        self.heads.copy_within(place + 1..len, place);
        self.truncate(len - 1);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        self.heads[len..].fill(VACANT);
        self.set_len(len);
    }

    /// The keys from `place` on, moved out.
    pub(super) fn split_off(&mut self, place: usize) -> Self {
        let mut right = Self {
            base: self.base,
            marks: self.marks,
            positions: self.positions,
            lowest: self.lowest,
            ..Self::new()
        };
        let moved = self.len() - place;
        right.heads[..moved].copy_from_slice(&self.heads[place..place + moved]);
        right.set_len(moved);
        self.truncate(place);
        right
    }

    /// Adds the keys of `other`, all of which are greater.
    pub(super) fn append(&mut self, other: &Self) {
        if self.len() == 0 {
            *self = other.clone();
            return;
        }
        if other.len() == 0 {
            return;
        }
        let mut other = other.clone();
        // Each learns where the other varies and where the bases differ. Beyond
        // its horizon neither knows anything; but the fourth position of both
        // together is before either horizon, so they come to the same set.
        let apart = differing_bases(&self.base, &other.base);
        let (mine, theirs) = (self.varying(), other.varying());
        self.widen(apart | theirs);
        other.widen(apart | mine);
        debug_assert_eq!(self.positions, other.positions);
        let (len, added) = (self.len(), other.len());
        self.heads[len..len + added].copy_from_slice(other.as_slice());
        self.set_len(len + added);
    }

    /// Whether two keys have the same head.
    pub(super) fn has_ties(&self) -> bool {
        self.as_slice().windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Makes the heads anew, for positions at which the keys vary now. Positions
    /// that no longer vary are given up for others that do.
    pub(super) fn renew<'n>(&mut self, whole: impl Fn(usize) -> &'n [u8]) {
        if self.len() == 0 {
            return;
        }
        self.base
            .copy_from_slice(&Sought::new(whole(0)).padded[..BASE]);
        let varying = (1..self.len()).fold(0, |varying, place| {
            varying | differing(&Sought::new(whole(place)).padded, &self.base)
        });
        self.vary_at(first_positions(varying));
        for place in 0..self.len() {
            self.heads[place] = Sought::new(whole(place)).head(self.positions);
        }
    }

    /// The positions at which the keys vary, up to four.
    fn varying(&self) -> u64 {
        let varying = self.positions.iter().filter(|&&position| position != BLANK);
        varying.fold(0, |varying, &position| varying | 1 << position)
    }

    /// Notes the positions at which the keys vary, up to four.
    fn vary_at(&mut self, varying: u64) {
        self.positions = [BLANK; HEAD];
        let mut left = varying;
        for position in &mut self.positions {
            if left == 0 {
                break;
            }
            *position = left.trailing_zeros() as u8;
            left &= left - 1;
        }
        // Positions from here on are not known to be constant.
        let horizon = if varying.count_ones() < HEAD as u32 {
            BASE as u32
        } else {
            u64::BITS - varying.leading_zeros()
        };
        let len = self.len();
        self.marks = below(horizon) & !varying;
        self.set_len(len);
    }

    /// Takes in `positions`, as far as they were constant: there each key is as
    /// the base is, so no key has to be read.
    fn widen(&mut self, positions: u64) {
        let new = positions & self.constant();
        if new == 0 {
            return;
        }
        let old = self.varying();
        let varying = first_positions(old | new);
        self.vary_at(varying);
        let count = self.len();
        for head in &mut self.heads[..count] {
            let (mut left, mut rest, mut wider, mut shift) = (varying, *head, 0, u32::BITS);
            while left != 0 {
                let position = left.trailing_zeros();
                left &= left - 1;
                shift -= 8;
                let byte = if old & (1 << position) == 0 {
                    self.base[position as usize]
                } else {
                    let byte = (rest >> 24) as u8;
                    rest <<= 8;
                    byte
                };
                wider |= u32::from(byte) << shift;
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
            if sought.head(self.positions) != head {
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
/// Three heads at a time, which split what is left in four: a binary search would
/// wait for twice as many comparisons, each before it knows the next load; more
/// heads at a time are more work than they save.
#[inline]
fn count_while(heads: &[u32; CAPACITY], counts: impl Fn(u32) -> bool) -> usize {
    const { assert!(CAPACITY.is_power_of_two() && CAPACITY.trailing_zeros().is_multiple_of(2)) };
    let counted = |place: usize| usize::from(counts(heads[place]));
    let (mut place, mut quarter) = (0, CAPACITY / 4);
    while quarter > 1 {
        let ends = [quarter, 2 * quarter, 3 * quarter].map(|end| counted(place + end - 1));
        place += quarter * (ends[0] + ends[1] + ends[2]);
        quarter /= 4;
    }
    place + counted(place) + counted(place + 1) + counted(place + 2) + counted(place + 3)
}

/// The bits below `position`.
#[inline]
const fn below(position: u32) -> u64 {
    (1 << position) - 1
}

/// The lowest four bits of those that are set.
fn first_positions(positions: u64) -> u64 {
    let (mut left, mut first) = (positions, 0);
    while left != 0 && u64::count_ones(first) < HEAD as u32 {
        first |= left & left.wrapping_neg();
        left &= left - 1;
    }
    first
}

fn differing_bases(left: &[u8; BASE], right: &[u8; BASE]) -> u64 {
    let mut padded = [0; PADDED];
    padded[..BASE].copy_from_slice(left);
    differing(&padded, right)
}

/// The positions at which `base` differs from the padded key.
#[inline]
fn differing(padded: &[u8; PADDED], base: &[u8; BASE]) -> u64 {
    unequal(padded, base, 0)
        | unequal(padded, base, LANE) << LANE
        | unequal(padded, base, 2 * LANE) << (2 * LANE)
}

/// A bit for each of sixteen bytes, from `start` on, that differ.
#[inline(always)]
fn unequal(padded: &[u8; PADDED], base: &[u8; BASE], start: usize) -> u64 {
    let (left, right) = (&padded[start..start + LANE], &base[start..start + LANE]);
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
