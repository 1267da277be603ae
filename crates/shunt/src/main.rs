//! The command that people type.

fn main() {}
