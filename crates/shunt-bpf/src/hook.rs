//! The hooks of a device.

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint};

/// The hook of a device where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// tc ingress, before Linux.
    Ingress,
    /// tc egress, after Linux.
    Egress,
    /// Native XDP, in the driver.
    Xdp,
    /// Generic XDP, on the skb. Every device has it.
    GenericXdp,
}

impl Hook {
    pub(crate) fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
            Self::Xdp | Self::GenericXdp => libbpf_sys::BPF_XDP,
        }
    }

    pub(crate) fn attach_point(self) -> TcAttachPoint {
        if self == Self::Egress { TC_EGRESS } else { TC_INGRESS }
    }
}
