//! Compiles the programs of `shunt trace` to `$OUT_DIR/<name>.o`.

use shunt_bpf_build::{compile_folder, compile_layout};

fn main() {
    compile_folder("inspect");
    compile_layout("inspect/trace_abi.h", "trace_abi_values");
}
