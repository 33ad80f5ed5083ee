//! Keys: immutable byte strings, 32 bytes wide.
//!
//! TiKV's region boundaries are memcomparable-encoded, and compare as plain
//! bytes. Nearly all of them are short (a table prefix is 19 bytes on the wire,
//! a record key 27 or 28), so a key of up to [`Key::INLINE`] bytes lives inside
//! the value, next to whatever else the reader of an entry needs; longer ones
//! are boxed.
//!
//! A key always owns its bytes: a message from the network can be dropped as
//! soon as its keys have been copied out.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// An immutable byte string, ordered bytewise.
///
/// The empty key is the smallest key; as the *end* of a
/// [`KeyRange`](crate::KeyRange) it stands for plus infinity.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    // Invariant: `len <= Key::INLINE`, and the bytes past it are zero.
    Inline { len: u8, bytes: [u8; Key::INLINE] },
    // Invariant: longer than `Key::INLINE`.
    Boxed(Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() == 32);

impl Key {
    /// The longest key that is stored without an allocation.
    pub const INLINE: usize = 30;

    /// The empty key: minus infinity as a start, plus infinity as an end.
    pub const EMPTY: Self = Self(Repr::Inline {
        len: 0,
        bytes: [0; Self::INLINE],
    });

    /// The bytes of the key.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Boxed(bytes) => bytes,
        }
    }

    /// Bytes of heap memory that the key owns, 0 for an inline key.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Boxed(bytes) => bytes.len(),
        }
    }

    fn inline(source: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::INLINE];
        bytes.get_mut(..source.len())?.copy_from_slice(source);
        let len = u8::try_from(source.len()).ok()?;
        Some(Self(Repr::Inline { len, bytes }))
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Key {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl From<&[u8]> for Key {
    fn from(source: &[u8]) -> Self {
        Self::inline(source).unwrap_or_else(|| Self(Repr::Boxed(source.into())))
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(source: &[u8; N]) -> Self {
        Self::from(source.as_slice())
    }
}

impl From<Vec<u8>> for Key {
    fn from(source: Vec<u8>) -> Self {
        Self::inline(&source).unwrap_or_else(|| Self(Repr::Boxed(source.into_boxed_slice())))
    }
}

impl From<&str> for Key {
    fn from(source: &str) -> Self {
        Self::from(source.as_bytes())
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Key {
    // As `[u8]` does, which `Borrow` requires.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Upper-case hexadecimal, as PD prints keys.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_keep_their_bytes_and_order() {
        let source: Vec<u8> = (0..=80u8).rev().collect();
        for len in 0..source.len() {
            let bytes = &source[..len];
            let key = Key::from(bytes);
            assert_eq!(&*key, bytes);
            assert_eq!(key, Key::from(bytes.to_vec()));
            assert_eq!(key.heap_bytes(), if len > Key::INLINE { len } else { 0 });
            let longer = Key::from(&source[..=len]);
            assert!(key < longer, "a prefix sorts first at {len}");
        }
    }

    #[test]
    fn keys_print_as_hexadecimal() {
        assert_eq!(Key::from(b"\x74\x80\x0f").to_string(), "74800F");
        assert_eq!(format!("{:?}", Key::EMPTY), "Key()");
    }
}
