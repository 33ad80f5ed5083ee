//! Row keys as `TiDB` makes them: `t` + table id + `_r` + row handle, in memcomparable form.
//!
//! The raw key has 19 bytes. Memcomparable form cuts it into groups of eight, pads the last with
//! zeros and ends each with a marker, `0xff` less the number of padding bytes: 27 bytes.

/// Bytes of a row key.
pub const LEN: usize = 27;

/// An encoded row key.
pub type RowKey = [u8; LEN];

const GROUP: usize = 8;
const RAW: usize = 1 + 8 + 2 + 8;

/// The encoded key of row `handle` in table `table`; ordered as `(table, handle)` is.
#[must_use]
pub fn row_key(table: u64, handle: u64) -> RowKey {
    let mut raw = [0u8; 3 * GROUP];
    raw[0] = b't';
    raw[1..9].copy_from_slice(&comparable(table));
    raw[9..11].copy_from_slice(b"_r");
    raw[11..RAW].copy_from_slice(&comparable(handle));

    let mut key = [0xff; LEN];
    for (group, encoded) in raw.chunks(GROUP).zip(key.chunks_mut(GROUP + 1)) {
        encoded[..GROUP].copy_from_slice(group);
    }
    key[LEN - 1] = 0xff - (3 * GROUP - RAW) as u8;
    key
}

/// A signed number's order as bytes: `TiDB` flips the sign bit.
const fn comparable(number: u64) -> [u8; 8] {
    (number ^ (1 << 63)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_key() {
        let expected = b"t\x80\0\0\0\0\0\0\xff\x2d_r\x80\0\0\0\0\xff\0\0\x07\0\0\0\0\0\xfa";
        assert_eq!(&row_key(45, 7), expected);
    }

    #[test]
    fn keys_order_by_table_then_handle() {
        let keys = [
            row_key(1, 0),
            row_key(1, 1),
            row_key(1, 1 << 40),
            row_key(2, 0),
            row_key(300, 9),
        ];
        assert!(keys.is_sorted());
    }
}
