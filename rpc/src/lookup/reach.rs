//! How far a scan may go, and when it is to stop.
//!
//! PD bounds a scan by nothing but its caller's limit. A replica bounds it further, and then gives no answer at all:
//! a list that is shorter than its limit says to clients that there is no more (they page until one is), so that a list
//! cut short in silence would be a hole at its end. Who is told instead asks with a limit and goes on behind the last
//! region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use prost::Message;

use super::error::LookupError;

/// How many regions, or ranges, are gone over between two looks at whether anybody still waits.
const PAGE: usize = 256;

/// Bounds on one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most regions.
    pub regions: usize,
    /// The most bytes, as they go over the wire.
    pub bytes: usize,
}

impl Bounds {
    /// None, as PD has it.
    pub const NONE: Self = Self {
        regions: usize::MAX,
        bytes: usize::MAX,
    };
}

/// Whether nobody waits for an answer any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone(Arc<AtomicBool>);

impl Gone {
    pub(crate) fn is_gone(&self) -> bool {
        // Relaxed: a hint to stop; nothing is read on the strength of it.
        self.0.load(Relaxed)
    }

    /// To be kept by who waits: it says so when it is dropped.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(self.clone())
    }
}

/// Somebody waits, as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting(Gone);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Relaxed: see `is_gone`.
        self.0.0.store(true, Relaxed);
    }
}

/// The way of one scan.
#[derive(Debug)]
pub struct Reach<'g> {
    bounds: Bounds,
    gone: Option<&'g Gone>,
    steps: usize,
    regions: usize,
    bytes: usize,
}

impl Reach<'static> {
    /// As far as these bounds.
    #[must_use]
    pub fn within(bounds: Bounds) -> Self {
        Self {
            bounds,
            gone: None,
            steps: 0,
            regions: 0,
            bytes: 0,
        }
    }
}

impl<'g> Reach<'g> {
    /// As far as these bounds, and no longer than somebody waits.
    pub(crate) fn while_awaited(bounds: Bounds, gone: &'g Gone) -> Self {
        Self {
            gone: Some(gone),
            ..Reach::within(bounds)
        }
    }

    /// One more region or range was looked at.
    pub(super) fn step(&mut self) -> Result<(), LookupError> {
        self.steps += 1;
        if self.steps.is_multiple_of(PAGE) && self.gone.is_some_and(Gone::is_gone) {
            return Err(LookupError::Abandoned);
        }
        Ok(())
    }

    /// So many regions have been found.
    pub(super) fn found(&self, regions: usize) -> Result<(), LookupError> {
        if regions > self.bounds.regions {
            return Err(LookupError::TooManyRegions(self.bounds.regions));
        }
        Ok(())
    }

    /// A region goes into the answer, so many times.
    pub(super) fn take<M: Message>(&mut self, region: &M, times: usize) -> Result<(), LookupError> {
        self.take_len(|| region.encoded_len() * times, times)
    }

    /// A region goes into the answer, with so many bytes in so many places.
    pub(super) fn take_len(
        &mut self,
        bytes: impl FnOnce() -> usize,
        places: usize,
    ) -> Result<(), LookupError> {
        self.step()?;
        self.regions += 1;
        self.found(self.regions)?;
        if self.bounds.bytes == usize::MAX {
            return Ok(());
        }
        // Tags and lengths around it, at most.
        const FRAME: usize = 20;
        self.bytes += bytes() + FRAME * places;
        if self.bytes > self.bounds.bytes {
            return Err(LookupError::TooManyBytes(self.bounds.bytes));
        }
        Ok(())
    }
}
