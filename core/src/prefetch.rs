//! Asking for memory before it is needed.
//!
//! A search in a node touches lines that it learns of one after the other. Far
//! down the tree these are in no cache, and each would cost a trip to memory by
//! itself; asked for together, they cost one.

const LINE: usize = 64;

/// Asks for the first `bytes` bytes at `start`. A hint: any address will do.
#[inline(always)]
pub(crate) fn prefetch<T>(start: *const T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..bytes.div_ceil(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = start.cast::<i8>().wrapping_add(line * LINE);
        // SAFETY: a prefetch does not access memory and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (start, bytes, LINE);
}
