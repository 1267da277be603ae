//! The program `shuntd`. All code is in the library, so that the control socket can be fuzzed.

use std::process::ExitCode;

fn main() -> ExitCode {
    shuntd::main()
}
