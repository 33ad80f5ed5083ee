//! Keys as TiDB makes them: `t{table}_r{handle}`, encoded so that bytes compare as the values do.
//!
//! A position in a 64-bit line stands for a key: the upper half is the table, the lower the row. Splitting a region
//! is then arithmetic on positions, and a random position is a random key.

/// Bytes of a group in the memcomparable encoding.
const GROUP: usize = 8;

/// The key at `position`: 27 bytes, ordered as the positions are.
///
/// Table ids start at one, so that position zero still has a key above the empty one.
pub fn key_at(position: u64) -> Vec<u8> {
    let table = (position >> 32) + 1;
    let handle = position & 0xffff_ffff;
    let mut raw = Vec::with_capacity(19);
    raw.push(b't');
    raw.extend_from_slice(&ordered(table));
    raw.extend_from_slice(b"_r");
    raw.extend_from_slice(&ordered(handle));
    memcomparable(&raw)
}

/// A signed integer's order-preserving bytes: big-endian with the sign bit flipped.
fn ordered(value: u64) -> [u8; 8] {
    (value ^ (1 << 63)).to_be_bytes()
}

/// Groups of eight bytes, each followed by a marker that says how much of the group was padding.
fn memcomparable(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity((raw.len() / GROUP + 1) * (GROUP + 1));
    for start in (0..=raw.len()).step_by(GROUP) {
        let group = &raw[start..raw.len().min(start + GROUP)];
        out.extend_from_slice(group);
        out.extend(std::iter::repeat_n(0, GROUP - group.len()));
        out.push(0xff - (GROUP - group.len()) as u8);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_27_bytes_and_in_order() {
        let positions = [
            0,
            1,
            255,
            256,
            (1 << 32) - 1,
            1 << 32,
            (1 << 32) + 1,
            u64::MAX - 1,
        ];
        let keys: Vec<_> = positions.iter().map(|p| key_at(*p)).collect();
        assert!(keys.iter().all(|k| k.len() == 27));
        assert!(keys.windows(2).all(|w| w[0] < w[1]));
    }
}
