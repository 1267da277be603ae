//! Compiles the lab's programs to `$OUT_DIR/<name>.o`, and their packet writing and accounting for this machine.

use shunt_bpf_build::{compile, compile_folder, compile_for_host, generate_abi};

fn main() {
    compile_folder("lab");
    for ring in ["veth", "virtio"] {
        let define = format!("-DSHUNT_RING=\"include/send/ring/{ring}.h\"");
        compile("lab/ahead/xdp_ahead.bpf.c", &format!("xdp_ahead_{ring}"), &[&define]);
    }
    compile_for_host("lab/host.c", "shunt_traffic");
    generate_abi(&["lab/traffic_abi.h"], "traffic_abi");
}
