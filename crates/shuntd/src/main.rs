//! The daemon as a program; all of it is in the library, so that its control socket can be fuzzed.

use std::process::ExitCode;

fn main() -> ExitCode {
    shuntd::main()
}
