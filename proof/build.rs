//! Compiles the operations on the flow table to `$OUT_DIR/<name>.o`, once for all tests.

use shunt_bpf_build::{compile_with, source_dir, watch_sources};
use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=table");
    watch_sources();
    let bpf = source_dir();
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    compile_with(&bpf, "table/operations.bpf.c".as_ref(), &out.join("operations.o"));
    compile_with(&bpf, &bpf.join("prog/table.bpf.c"), &out.join("table.o"));
}
