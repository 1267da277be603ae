//! What the external engine shares with the programs and the daemon.

use super::PORTS_MAX;
use crate::plain;

plain! {
    /// `struct shunt_external_port`: what the external engine counts, by ingress port.
    pub struct ExternalPort = "shunt_external_port", 48; {
        /// Number of packets that the engine forwarded.
        pub pkts: u64,
        /// Their bytes, from the L3 header on.
        pub bytes: u64,
        /// Packets given back to Linux, where the tc program counts them.
        pub passed_pkts: u64,
        /// Packets dropped: no room, or the engine took too long.
        pub full_pkts: u64,
        /// Packets dropped at the queue of their egress port.
        pub queue_pkts: u64,
        /// Packets dropped by the policer.
        pub policed_pkts: u64,
    }
}

plain! {
    /// `struct shunt_external`.
    pub struct External = "shunt_external", 3096; {
        /// The engine's last heartbeat, in 64-bit jiffies.
        pub beat_ticks: u64,
        /// Age at which a heartbeat is too old.
        pub beat_max_ticks: u32,
        /// The next frame to pass to Linux.
        pub inject_next: u32,
        /// The VLAN ID of frames that the engine copies from port to port; 0 for none.
        pub copy_vlan: u32,
        /// Padding; always 0.
        pub _pad: u32,
        /// Counters of the ports, by slot.
        pub ports: [ExternalPort; PORTS_MAX as usize],
    }
}

/// Receive queues of a port that the engine serves.
pub const QUEUES_MAX: u32 = 16;
/// Frames that the engine passes to Linux at once.
pub const INJECTED_MAX: u32 = 64;
/// Bytes of a frame in the engine's packet memory.
pub const FRAME_MAX: u32 = 1792;
/// Home CPU of flows that all CPUs count atomically.
pub const NO_CPU: u8 = 0xfe;
/// Home CPU of flows that the engine counts.
pub const ENGINE_CPU: u8 = 0xff;
/// Reasons of drops by the external engine: no room, or it took too long.
pub const ENGINE_FULL: usize = 63;
/// A queue was full, or CoDel shortened it.
pub const QUEUE: usize = 64;
/// The policer dropped the packet.
pub const POLICED: usize = 65;

plain! {
    /// `struct shunt_injected`.
    pub struct Injected = "shunt_injected", 1800; {
        /// The length of the frame.
        pub bytes: u32,
        /// Padding; always 0.
        pub _pad: u32,
        /// The frame from its MACs on, without FCS.
        pub frame: [u8; FRAME_MAX as usize],
    }
}
