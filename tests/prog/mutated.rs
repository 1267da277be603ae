//! Frames that nobody sends on purpose.
