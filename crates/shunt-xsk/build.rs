//! Compiles the external engine for this machine.

use shunt_bpf_build::{compile_external, generate_host_abi};

fn main() {
    compile_external(&["engine.c", "poll.c", "sched.c"], "shunt_external");
    generate_host_abi(&["external/sched.h", "external/engine.h"], "engine_abi");
}
