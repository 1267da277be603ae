//! Compiles the programs of `shunt trace`, `shunt verify` and `shunt quality` to `$OUT_DIR/<name>.o`.

use shunt_bpf_build::{compile_folder, generate_abi};

fn main() {
    compile_folder("inspect");
    generate_abi(&["inspect/trace_abi.h"], "trace_abi");
    generate_abi(&["inspect/verify_abi.h"], "verify_abi");
    generate_abi(&["inspect/quality_abi.h"], "quality_abi");
}
