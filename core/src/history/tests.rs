//! Promise tests of the history.
