//! Measures the region map beside its rivals.
//!
//! What is true on one machine at one minute is of little use, so nothing here is judged by its
//! nanoseconds: every contender runs in the same process, on the same regions and the same
//! queries, one after the other, in an order that changes from round to round. The figures that
//! count are the ratios of the medians.
//!
//! In reading order:
//!
//! - [`row_key`]: row keys as `TiDB` makes them, 27 bytes in memcomparable form;
//! - [`fixture`]: regions over such keys, in any number and any order, and queries for them;
//! - [`contender`]: the map and its rivals behind one trait;
//! - [`processor`]: binding threads to processors;
//! - [`round`]: the alternating rounds, their medians, and the table they fill;
//! - [`op`]: the operations, each of which sets lanes beside one another;
//! - [`requirement`]: what the figures must satisfy.
#![forbid(unsafe_code)]

pub mod contender;
pub mod fixture;
pub mod op;
pub mod processor;
pub mod requirement;
pub mod round;
pub mod row_key;
