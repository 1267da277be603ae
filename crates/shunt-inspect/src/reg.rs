//! Registers by name.
