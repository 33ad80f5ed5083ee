//! Half-open key ranges, valid by construction.

use std::fmt;

use crate::error::InvalidRange;
use crate::key::Key;

/// The keys from a start (inclusive) to an end (exclusive); an empty end is
/// plus infinity.
///
/// A range is never empty: its start lies before its end.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct KeyRange {
    // The end comes first because it is what a lookup compares with: see the
    // layout of `Entry`.
    end: Key,
    start: Key,
}

impl KeyRange {
    /// The range from `start` to `end`.
    ///
    /// # Errors
    ///
    /// `end` is not empty and `start` does not lie before it.
    pub fn new(start: impl Into<Key>, end: impl Into<Key>) -> Result<Self, InvalidRange> {
        let (start, end) = (start.into(), end.into());
        if end.is_empty() || start < end {
            Ok(Self { end, start })
        } else {
            Err(InvalidRange { start, end })
        }
    }

    /// The whole key space.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            end: Key::EMPTY,
            start: Key::EMPTY,
        }
    }

    /// The first key of the range; empty is minus infinity.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> &Key {
        &self.start
    }

    /// The first key after the range; empty is plus infinity.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> &Key {
        &self.end
    }

    /// Whether this is the whole key space.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.start.is_empty() && self.end.is_empty()
    }

    /// Whether `key` lies in the range.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_bytes() <= key && self.ends_after(key)
    }

    /// Whether the range's end lies beyond `key`.
    #[inline]
    #[must_use]
    pub fn ends_after(&self, key: &[u8]) -> bool {
        self.end.is_empty() || key < self.end.as_bytes()
    }

    /// Whether the range ends exactly where `next` starts, without a hole.
    #[must_use]
    pub fn is_followed_by(&self, next: &Self) -> bool {
        // An empty end is plus infinity, which nothing follows; an empty start
        // is minus infinity, which follows nothing.
        !self.end.is_empty() && self.end == next.start
    }

    /// Whether every key of `other` lies in this range.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (end, others) = (self.end.as_bytes(), other.end.as_bytes());
        self.start <= other.start && (end.is_empty() || (!others.is_empty() && others <= end))
    }

    /// Whether some key lies in both ranges.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.ends_after(&other.start) && other.ends_after(&self.start)
    }
}

/// `[start, end)` in hexadecimal; an infinite end is left out.
impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::new(start, end).expect("a valid range")
    }

    #[test]
    fn a_range_without_keys_is_rejected_with_its_input() {
        let error = KeyRange::new("b", "b").expect_err("nothing lies between b and b");
        assert_eq!((&*error.start, &*error.end), (&b"b"[..], &b"b"[..]));
        KeyRange::new("c", "b").expect_err("inverted");
        assert!(KeyRange::new("", "").expect("everything").is_all());
        assert!(!range("", "a").is_all());
    }

    #[test]
    fn an_empty_end_is_plus_infinity() {
        let tail = range("m", "");
        assert!(tail.contains(b"m") && tail.contains(b"\xff\xff") && !tail.contains(b"l"));
        assert!(tail.overlaps(&range("", "")) && tail.overlaps(&range("z", "")));
        assert!(!tail.overlaps(&range("a", "m")) && !range("a", "m").overlaps(&tail));
        assert!(range("a", "m").is_followed_by(&tail));
        assert!(
            !tail.is_followed_by(&range("", "a")),
            "infinity is not a neighbour"
        );
    }

    #[test]
    fn a_range_covers_itself_and_its_parts() {
        let (all, tail, head) = (range("", ""), range("m", ""), range("", "m"));
        assert!(all.covers(&all) && all.covers(&tail) && all.covers(&head));
        assert!(tail.covers(&range("m", "")) && tail.covers(&range("m", "n")));
        assert!(!tail.covers(&range("l", "n")) && !tail.covers(&all));
        assert!(head.covers(&range("a", "m")) && !head.covers(&range("a", "ma")));
        assert!(!head.covers(&range("a", "")), "plus infinity lies beyond m");
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let (left, right) = (range("a", "b"), range("b", "c"));
        assert!(!left.overlaps(&right) && !right.overlaps(&left));
        assert!(left.overlaps(&range("aa", "bb")) && range("aa", "ab").overlaps(&left));
    }
}
