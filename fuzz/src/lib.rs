//! Claims that must hold for every input: one function for each parser of untrusted bytes or of kernel messages.
//!
//! A function panics where its claim is wrong, and returns whether its parser accepted the input. The tests call it
//! with the corpus and with seeded random inputs; SHUNT_FUZZ_INPUTS sets their number. cargo-fuzz calls it with what
//! libFuzzer finds, with the C code instrumented as well:
//!
//! ```sh
//! cargo install cargo-fuzz
//! CC=clang CFLAGS=-fsanitize=address cargo +nightly fuzz run forward -- -max_total_time=180
//! ```
//!
//! New inputs are written to fuzz/corpus, unless another directory comes first: `cargo +nightly fuzz run forward
//! /somewhere fuzz/corpus/forward`. `cargo run -p shunt-fuzz --bin forward FILE` repeats one input without a nightly
//! compiler.

mod control;
mod forward;
#[cfg(test)]
mod inputs;
mod model;
mod netlink;
mod registers;

pub use control::control;
pub use forward::forward;
pub use model::model;
pub use netlink::netlink;
pub use registers::registers;

use std::{env, fs, io};

/// Calls a function with the content of each file that the command line names.
///
/// # Errors
/// If a file cannot be read.
pub fn replay(claim: fn(&[u8]) -> bool) -> io::Result<()> {
    for path in env::args_os().skip(1) {
        let accepted = claim(&fs::read(&path)?);
        println!("{}: {}", path.display(), if accepted { "accepted" } else { "refused" });
    }
    Ok(())
}
