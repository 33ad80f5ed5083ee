//! A pool in the hands of a model, which cannot reach the crate's own.

use super::{Pool, Pooled};

/// A pool of boxes with nothing in them.
#[derive(Debug)]
pub struct Boxes(Pool<()>);

/// One of them.
pub struct Taken(Pooled<()>);

impl Boxes {
    /// Keeps about so many boxes.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        Self(Pool::new(kept))
    }

    /// A box that was given, or a new one.
    #[must_use]
    pub fn take(&self) -> Taken {
        Taken(self.0.take(|| ()))
    }

    /// A new one.
    #[must_use]
    pub fn make(&self) -> Taken {
        Taken(Pooled::new(()))
    }

    /// A box that was given.
    #[must_use]
    pub fn find(&self) -> Option<Taken> {
        self.0.find().map(Taken)
    }

    /// Takes one back.
    pub fn give(&self, taken: Taken) {
        self.0.give(taken.0);
    }
}

impl Taken {
    /// Tells it from all others that live.
    #[must_use]
    pub fn address(&self) -> usize {
        std::ptr::from_ref::<()>(&self.0).addr()
    }
}

impl std::fmt::Debug for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Taken").field(&self.address()).finish()
    }
}
