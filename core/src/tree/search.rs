//! Finding a place among the sorted keys of one node.
//!
//! A node knows the bytes that all its keys begin with (their *prefix*) and, for
//! each key, the sixteen bytes after that as a big-endian number (its *head*). A
//! search compares the prefix once, then heads by number, and looks at a whole
//! key only if its head equals that of the key that is sought.
//!
//! Why sixteen bytes: a record's key has its table's id and its own handle eight
//! bytes apart (`_r`, the zeros of the handle, a group marker of the encoding).
//! A node that spans two tables, which most do where tables have a hundred
//! regions, would not tell the regions of a table apart by eight bytes.
//!
//! Heads are padded with zeros, so a smaller head means a smaller key, while
//! equal heads mean nothing: `a` and `a\0` have the same.

use super::CAPACITY;

/// The longest prefix that a node remembers: what fills a cache line up.
pub(super) const PREFIX_MAX: usize = 54;

const HEAD: usize = size_of::<u128>();

/// The sorted keys of a node, as far as a search needs them.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Heads {
    len: u8,
    prefix_len: u8,
    // Invariant: all `len` keys begin with the first `prefix_len` bytes of it.
    prefix: [u8; PREFIX_MAX],
    // Invariant: ascending; `heads[i]` is the head of key `i` after the prefix.
    heads: [u128; CAPACITY],
}

impl Heads {
    pub(super) const fn new() -> Self {
        Self {
            len: 0,
            prefix_len: 0,
            prefix: [0; PREFIX_MAX],
            heads: [0; CAPACITY],
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix[..usize::from(self.prefix_len)]
    }

    #[inline]
    fn as_slice(&self) -> &[u128] {
        &self.heads[..self.len()]
    }

    /// How many keys are at most `key`; `whole` gives a key by its place.
    #[inline]
    pub(super) fn count_at_most<'k>(&self, key: &[u8], whole: impl Fn(usize) -> &'k [u8]) -> usize {
        self.count(key, |candidate| candidate <= key, whole)
    }

    /// How many keys are below `key`.
    #[inline]
    pub(super) fn count_below<'k>(&self, key: &[u8], whole: impl Fn(usize) -> &'k [u8]) -> usize {
        self.count(key, |candidate| candidate < key, whole)
    }

    /// How many keys satisfy `counts`, which holds for all that are smaller than
    /// `key` and for none that are greater.
    #[inline]
    fn count<'k>(
        &self,
        key: &[u8],
        counts: impl Fn(&[u8]) -> bool,
        whole: impl Fn(usize) -> &'k [u8],
    ) -> usize {
        let prefix = self.prefix();
        let Some(rest) = key.strip_prefix(prefix) else {
            // All keys lie on one side: they begin with the prefix, `key` does not.
            return if key < prefix { 0 } else { self.len() };
        };
        let head = head_of(rest);
        let heads = self.as_slice();
        let mut below = heads.partition_point(|&candidate| candidate < head);
        if heads.get(below) != Some(&head) {
            return below;
        }
        // Keys with the same head: only they need to be looked at, and they are
        // few unless the node spans keys that differ late.
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

    /// Makes room for `key` at `place`; a prefix that it lacks becomes shorter.
    pub(super) fn insert(&mut self, place: usize, key: &[u8]) {
        let len = self.len();
        debug_assert!(place <= len && len < CAPACITY, "no room in the node");
        if len == 0 {
            self.set_prefix(key);
        } else {
            self.shorten_prefix(common_prefix(self.prefix(), key));
        }
        self.heads.copy_within(place..len, place + 1);
        self.heads[place] = head_of(&key[usize::from(self.prefix_len)..]);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, place: usize) {
        let len = self.len();
        self.heads.copy_within(place + 1..len, place);
        self.len -= 1;
    }

    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        self.len = len as u8;
    }

    /// The keys from `place` on, moved out.
    pub(super) fn split_off(&mut self, place: usize) -> Self {
        let mut right = Self::new();
        let moved = self.len() - place;
        right.heads[..moved].copy_from_slice(&self.heads[place..place + moved]);
        right.len = moved as u8;
        right.set_prefix(self.prefix());
        self.truncate(place);
        right
    }

    /// Where to split a full node: between the two neighbours that share the
    /// least, in the middle half; the place is that of the right one.
    ///
    /// Keys of two tables differ early and those of one table late, and eight
    /// bytes do not reach from the one to the other: a node that spans both has
    /// many equal heads, and a search in it reads whole keys. So nodes end where
    /// tables do, as far as they can.
    pub(super) fn parting(&self) -> usize {
        let middle = self.len() / 2;
        let shared = |place: usize| {
            let bits = (self.heads[place - 1] ^ self.heads[place]).leading_zeros();
            (bits / 8, place.abs_diff(middle))
        };
        let (from, to) = ((self.len() / 4).max(1), (self.len() * 3 / 4).max(1));
        (from..=to)
            .min_by_key(|&place| shared(place))
            .unwrap_or(middle)
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
        let common = common_prefix(self.prefix(), other.prefix());
        self.shorten_prefix(common);
        other.shorten_prefix(common);
        let (len, added) = (self.len(), other.len());
        self.heads[len..len + added].copy_from_slice(other.as_slice());
        self.len += other.len;
    }

    /// Whether two keys have the same head, so that a longer prefix would help.
    pub(super) fn has_ties(&self) -> bool {
        self.as_slice().windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Takes the longest prefix that the keys allow.
    pub(super) fn lengthen_prefix<'k>(&mut self, whole: impl Fn(usize) -> &'k [u8]) {
        let Some(last) = self.len().checked_sub(1) else {
            return;
        };
        // What the first and the last key share, those between them share too.
        let first = whole(0);
        let common = common_prefix(first, whole(last)).min(PREFIX_MAX);
        if common <= usize::from(self.prefix_len) {
            return;
        }
        self.set_prefix(&first[..common]);
        for place in 0..=last {
            self.heads[place] = head_of(&whole(place)[common..]);
        }
    }

    fn set_prefix(&mut self, prefix: &[u8]) {
        let len = prefix.len().min(PREFIX_MAX);
        self.prefix[..len].copy_from_slice(&prefix[..len]);
        self.prefix_len = len as u8;
    }

    /// Cuts the prefix to `len` bytes. The bytes that it loses move into the
    /// heads, so no key has to be read.
    fn shorten_prefix(&mut self, len: usize) {
        let old = usize::from(self.prefix_len);
        if len >= old {
            return;
        }
        let lost = &self.prefix[len..old];
        let front = head_of(lost);
        let shift = 8 * lost.len() as u32;
        let count = self.len();
        for head in &mut self.heads[..count] {
            *head = front | head.checked_shr(shift).unwrap_or(0);
        }
        self.prefix_len = len as u8;
    }

    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn check<'k>(&self, whole: impl Fn(usize) -> &'k [u8]) -> Result<(), String> {
        for (place, &head) in self.as_slice().iter().enumerate() {
            let key = whole(place);
            let Some(rest) = key.strip_prefix(self.prefix()) else {
                return Err(format!("key {key:x?} lacks its node's prefix"));
            };
            if head_of(rest) != head {
                return Err(format!("key {key:x?} has the wrong head"));
            }
            if place > 0 && whole(place - 1) >= key {
                return Err(format!("key {key:x?} is out of order"));
            }
        }
        Ok(())
    }
}

/// The first sixteen bytes of `key`, as a number; missing bytes are zeros.
#[inline]
fn head_of(key: &[u8]) -> u128 {
    if let Some(head) = key.first_chunk::<HEAD>() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; HEAD];
    head[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(head)
}

fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
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
                let place = heads.count_at_most(&key, |place| &keys[place]);
                heads.insert(place, &key);
                keys.insert(place, key);
                heads.check(|place| &keys[place]).map_err(TestCaseError::fail)?;
            }
            if heads.has_ties() {
                heads.lengthen_prefix(|place| &keys[place]);
                heads.check(|place| &keys[place]).map_err(TestCaseError::fail)?;
            }
            for key in sought.iter().chain(&keys) {
                let at_most = keys.iter().filter(|candidate| *candidate <= key).count();
                let below = keys.iter().filter(|candidate| *candidate < key).count();
                prop_assert_eq!(heads.count_at_most(key, |place| &keys[place]), at_most);
                prop_assert_eq!(heads.count_below(key, |place| &keys[place]), below);
            }

            let place = split.index(keys.len());
            let mut left = heads.clone();
            let mut right = left.split_off(place);
            right.lengthen_prefix(|at| &keys[place + at]);
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
