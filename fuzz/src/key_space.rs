//! Keys of several shapes, all drawn from 65,536 numbers.

/// The shape of an input's keys.
#[derive(Copy, Clone, Debug)]
pub enum KeySpace {
    /// Two bytes.
    Short,
    /// A table's row keys: 27 bytes, equal but for a few in the middle.
    Row,
    /// Up to sixteen zeros after one byte: each is a prefix of the next, and padding with zeros
    /// makes them all equal.
    Zeros,
    /// Forty bytes, more than fit in a key itself, that differ in the last two.
    Long,
}

impl KeySpace {
    /// The shape that `byte` selects.
    pub fn choose(byte: u8) -> Self {
        [Self::Short, Self::Row, Self::Zeros, Self::Long][usize::from(byte % 4)]
    }

    /// The key with this number. Only 0 is the empty key; other numbers may share one.
    pub fn key(self, number: u16) -> Vec<u8> {
        let [high, low] = number.to_be_bytes();
        if number == 0 {
            return Vec::new();
        }
        match self {
            Self::Short => vec![high, low],
            Self::Row => {
                let mut key =
                    b"t\x80\0\0\0\0\0\0\xff\x2d_r\x80\0\0\0\0\xff\0\0\0\0\0\0\0\0\xfa".to_vec();
                key[18] = high;
                key[20] = low;
                key
            }
            Self::Zeros => {
                let mut key = vec![high];
                key.resize(1 + usize::from(low % 17), 0);
                key
            }
            Self::Long => {
                let mut key = vec![b'k'; 38];
                key.extend([high, low]);
                key
            }
        }
    }
}
