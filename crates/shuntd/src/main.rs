//! The daemon: wiring only.

fn main() {}
