//! Compiles the external engine for this machine.

use shunt_bpf_build::{compile_external, compile_host_layout};

fn main() {
    compile_external(&["engine.c", "poll.c", "sched.c"], "shunt_external");
    compile_host_layout("external/engine.h", "shunt_engine_values");
    compile_host_layout("external/sched.h", "shunt_sched_values");
}
