//! Compiles the fast path to `$OUT_DIR/<name>.o`, and the packet core for this machine; makes the Rust twin of
//! `bpf/abi`.

use shunt_bpf_build::{compile, compile_folder, compile_for_host, expand_reasons, generate_abi};

fn main() {
    compile_folder("prog");
    compile("prog/tc_forward.bpf.c", "tc_forward_without_btf", &["-DSHUNT_WITHOUT_BTF"]);
    for program in ["tc_forward", "tc_watch"] {
        let (source, name) = (format!("prog/{program}.bpf.c"), format!("{program}_without_kfuncs"));
        compile(&source, &name, &["-DSHUNT_WITHOUT_KFUNCS"]);
    }
    let (verifying, tags) = ("-DSHUNT_VERIFYING", "-DSHUNT_STRIPPED_TAGS");
    compile("prog/xdp_forward.bpf.c", "xdp_forward_verifying", &[verifying]);
    for ring in ["veth", "virtio"] {
        let ahead = format!("-DSHUNT_RING=\"include/send/ring/{ring}.h\"");
        let name = format!("xdp_forward_ahead_{ring}");
        compile("prog/xdp_forward.bpf.c", &name, &[&ahead]);
        compile("prog/xdp_forward.bpf.c", &format!("{name}_verifying"), &[&ahead, verifying]);
    }
    compile("prog/xdp_forward.bpf.c", "xdp_forward_tags", &[tags]);
    compile("prog/xdp_forward.bpf.c", "xdp_forward_tags_verifying", &[verifying, tags]);
    #[cfg(feature = "compressed")]
    pack_objects();
    compile_for_host("core/host.c", "shunt_core");
    let headers = [
        "abi/sizes.h",
        "abi/flows.h",
        "abi/control.h",
        "abi/external.h",
        "abi/learn.h",
        "abi/reports.h",
        "abi/requests.h",
    ];
    generate_abi(&headers, "shunt_abi");
    expand_reasons();
}

/// Packs objects together that have much in common. The order is that of use: an object is found after those before it.
#[cfg(feature = "compressed")]
fn pack_objects() {
    use shunt_bpf_build::pack;
    let tc = [
        "tc_forward",
        "tc_watch",
        "tc_watch_without_kfuncs",
        "tc_forward_without_kfuncs",
        "tc_forward_without_btf",
    ];
    pack(&tc, "tc");
    let xdp = [
        "xdp_forward",
        "xdp_forward_tags",
        "xdp_forward_ahead_veth",
        "xdp_forward_ahead_virtio",
        "xdp_forward_verifying",
        "xdp_forward_tags_verifying",
        "xdp_forward_ahead_veth_verifying",
        "xdp_forward_ahead_virtio_verifying",
    ];
    pack(&xdp, "xdp");
    let others = ["table", "ct_gone", "changes", "xdp_drops", "xdp_external", "net_time", "napi_time"];
    pack(&others, "table");
}
