//! The tracepoints that a trace uses, with their programs and stages.
#![allow(unsafe_code, reason = "asks libbpf which tracepoints exist")]

use std::ffi::CString;

/// The program of a tracepoint, and the stage that is missing without it.
pub(super) struct Tracepoint {
    pub(super) program: &'static str,
    pub(super) name: &'static str,
    pub(super) stage: &'static str,
    /// Whether a packet on the loopback device passes it.
    pub(super) on_loopback: bool,
}

const fn tracepoint(
    program: &'static str,
    name: &'static str,
    stage: &'static str,
    on_loopback: bool,
) -> Tracepoint {
    Tracepoint { program, name, stage, on_loopback }
}

pub(super) const SKB_TRACEPOINTS: [Tracepoint; 16] = [
    tracepoint("trace_gro", "napi_gro_receive_entry", "driver", false),
    tracepoint("trace_gro_frags", "napi_gro_frags_entry", "driver", false),
    tracepoint("trace_netif_rx", "netif_rx_entry", "driver", true),
    tracepoint("trace_receive_entry", "netif_receive_skb_entry", "driver", false),
    tracepoint("trace_receive_list", "netif_receive_skb_list_entry", "driver", false),
    tracepoint("trace_receive", "netif_receive_skb", "gro", true),
    tracepoint("trace_queue", "net_dev_queue", "neighbour", true),
    tracepoint("trace_start", "net_dev_start_xmit", "qdisc", true),
    tracepoint("trace_xmit", "net_dev_xmit", "transmit", true),
    tracepoint("trace_consume", "consume_skb", "completion", true),
    tracepoint("trace_drop", "kfree_skb", "completion", false),
    tracepoint("trace_send", "tcp_sendmsg_locked", "send", false),
    tracepoint("trace_tcp", "tcp_probe", "tcp-in", false),
    tracepoint("trace_ready", "sk_data_ready", "wake", true),
    tracepoint("trace_copy", "skb_copy_datagram_iovec", "copy", true),
    tracepoint("trace_read", "sock_recv_length", "read", true),
];
pub(super) const XDP_TRACEPOINTS: [Tracepoint; 2] = [
    tracepoint("trace_xdp_redirect", "xdp_redirect", "xdp-redirect", false),
    tracepoint("trace_xdp_xmit", "xdp_devmap_xmit", "xdp-transmit", false),
];

pub(super) const THREAD_TRACEPOINTS: [Tracepoint; 4] = [
    tracepoint("trace_switch", "sched_switch", THREAD_STAGE, false),
    tracepoint("trace_wake", "sched_waking", THREAD_STAGE, false),
    tracepoint("trace_softirq_first", "softirq_entry", THREAD_STAGE, false),
    tracepoint("trace_softirq_last", "softirq_exit", THREAD_STAGE, false),
];
/// What is missing if threads cannot be followed.
pub(super) const THREAD_STAGE: &str = "threads";

/// The programs of tracepoints that this kernel lacks.
pub(super) fn absent(all: &[Tracepoint]) -> Vec<&'static str> {
    all.iter().filter(|one| !exists(one.name)).map(|one| one.program).collect()
}

/// Whether this kernel has a tracepoint that programs with BTF can attach to.
pub(super) fn exists(tracepoint: &str) -> bool {
    let Ok(name) = CString::new(tracepoint) else { return false };
    // SAFETY: the name is a C string, and the call returns a number.
    unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(name.as_ptr(), libbpf_sys::BPF_TRACE_RAW_TP) >= 0 }
}
