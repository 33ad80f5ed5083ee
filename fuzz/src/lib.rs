//! What the fuzz targets share: the reading of an input as a script of changes and questions.
//!
//! Inputs are read byte by byte with a fixed meaning, so that a corpus stays valid when a target
//! learns something new, and small edits of an input are small edits of the script.

pub mod bytes;
pub mod key_space;
pub mod map_pair;
