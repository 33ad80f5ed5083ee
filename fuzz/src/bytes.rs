//! An input, taken from the front.

/// The rest of an input. An input that has ended gives zeros, so that no script is cut short in
/// the middle of a step.
#[derive(Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// All of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        byte
    }

    /// The next byte, below `limit`.
    pub fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit
    }

    /// The next two bytes, the high one first.
    pub fn pair(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
}
