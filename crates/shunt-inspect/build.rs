//! Compiles the programs of `shunt trace` and `shunt verify` to `$OUT_DIR/<name>.o`.

use shunt_bpf_build::{compile_folder, generate_abi};

fn main() {
    compile_folder("inspect");
    generate_abi(&["inspect/trace_abi.h"], "trace_abi");
    generate_abi(&["inspect/verify_abi.h"], "verify_abi");
}
