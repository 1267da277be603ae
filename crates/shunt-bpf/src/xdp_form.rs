//! The forms of the XDP program that forwards. All do the same with every packet, at different costs.

use crate::object::{
    CompiledObject, XDP_FORWARD, XDP_FORWARD_AHEAD_VETH, XDP_FORWARD_AHEAD_VETH_VERIFYING,
    XDP_FORWARD_AHEAD_VIRTIO, XDP_FORWARD_AHEAD_VIRTIO_VERIFYING, XDP_FORWARD_VERIFYING,
};

/// A form of the XDP program that forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XdpForm {
    /// For few flows that are routed and leave without tags. It finds them by hints, and leaves the others to a slower
    /// function.
    Usual,
    /// For flows of any kind and number.
    General,
    /// As [`XdpForm::General`]. Loads the entries of the next packets ahead, for many flows and one driver's ring.
    LookingAhead(DriverRing),
}

/// A driver's ring of received frames, in which a program can find the next ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DriverRing {
    /// The `ptr_ring` of a veth, in which frames wait for a NAPI poll.
    Veth,
    /// The split virtqueue of a virtio_net device.
    Virtio,
}

impl XdpForm {
    /// The form that is loaded at the start, and that a port gets first.
    pub(crate) fn first(verifying: bool) -> Self {
        if verifying { Self::General } else { Self::Usual }
    }

    /// The object and the name of the program.
    pub(crate) fn program(self, verifying: bool) -> (&'static CompiledObject, &'static str) {
        match (self, verifying) {
            (Self::Usual, false) => (&XDP_FORWARD, "shunt_xdp_usual"),
            (Self::General, false) => (&XDP_FORWARD, "shunt_xdp"),
            (Self::LookingAhead(DriverRing::Veth), false) => (&XDP_FORWARD_AHEAD_VETH, "shunt_xdp"),
            (Self::LookingAhead(DriverRing::Virtio), false) => (&XDP_FORWARD_AHEAD_VIRTIO, "shunt_xdp"),
            (Self::Usual | Self::General, true) => (&XDP_FORWARD_VERIFYING, "shunt_xdp"),
            (Self::LookingAhead(DriverRing::Veth), true) => (&XDP_FORWARD_AHEAD_VETH_VERIFYING, "shunt_xdp"),
            (Self::LookingAhead(DriverRing::Virtio), true) => {
                (&XDP_FORWARD_AHEAD_VIRTIO_VERIFYING, "shunt_xdp")
            }
        }
    }
}
