//! The developers' command.

fn main() {}
