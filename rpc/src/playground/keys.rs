//! Keys like those of TiDB's records: 27 memcomparable bytes.
//!
//! A record key is `t`, the table id and `_r`, the row's handle: 19 bytes, which TiKV's memcomparable
//! encoding turns into 27. Here a key stands for a *position* on a line, so that a region can be cut in
//! the middle and two neighbours can be joined.

use tidegate_core::Key;

/// Handles in one table; the position after the last one is in the next table.
const TABLE_ROWS: u64 = 1_000_000_000;
/// Table ids below are TiDB's own.
const FIRST_TABLE: u64 = 100;
const SIGN: u64 = 1 << 63;

/// The key at a position.
pub fn key_at(position: u64) -> Key {
    let mut raw = [0; 19];
    raw[0] = b't';
    raw[1..9].copy_from_slice(&((FIRST_TABLE + position / TABLE_ROWS) | SIGN).to_be_bytes());
    raw[9..11].copy_from_slice(b"_r");
    raw[11..19].copy_from_slice(&((position % TABLE_ROWS) | SIGN).to_be_bytes());
    Key::from(&memcomparable(&raw))
}

/// The position of a key of [`key_at`]; none for any other key.
pub fn position_of(key: &[u8]) -> Option<u64> {
    let encoded: &[u8; 27] = key.try_into().ok()?;
    let mut raw = [0; 24];
    for (group, bytes) in encoded.chunks_exact(9).zip(raw.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&group[..8]);
    }
    let number =
        |at: usize| Some(u64::from_be_bytes(raw.get(at..at + 8)?.try_into().ok()?) & !SIGN);
    let table = number(1)?.checked_sub(FIRST_TABLE)?;
    let position = table.checked_mul(TABLE_ROWS)?.checked_add(number(11)?)?;
    (*key_at(position) == *key).then_some(position)
}

/// Groups of eight bytes, zero-padded, each followed by 0xFF less the number of padding bytes.
fn memcomparable(raw: &[u8; 19]) -> [u8; 27] {
    let mut encoded = [0; 27];
    for (bytes, group) in raw.chunks(8).zip(encoded.chunks_exact_mut(9)) {
        group[..bytes.len()].copy_from_slice(bytes);
        group[8] = 0xFF - (8 - bytes.len() as u8);
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_encoded_as_tikv_does() {
        assert_eq!(
            key_at(TABLE_ROWS * 3 + 5).to_string(),
            "7480000000000000FF675F728000000000FF0000050000000000FA"
        );
    }

    #[test]
    fn keys_keep_the_order_of_their_positions() {
        let positions = [
            0,
            1,
            255,
            256,
            TABLE_ROWS - 1,
            TABLE_ROWS,
            TABLE_ROWS + 1,
            100_000 * TABLE_ROWS,
        ];
        for pair in positions.windows(2) {
            assert!(key_at(pair[0]) < key_at(pair[1]), "{pair:?}");
        }
        for position in positions {
            assert_eq!(position_of(&key_at(position)), Some(position));
        }
    }

    #[test]
    fn a_key_of_another_make_has_no_position() {
        assert_eq!(position_of(b""), None);
        assert_eq!(position_of(&[0xFF; 27]), None);
        let mut key = key_at(7).to_vec();
        key[26] = 0xFB;
        assert_eq!(position_of(&key), None);
    }
}
