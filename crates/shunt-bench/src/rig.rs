//! Routers to measure: their network, the path that packets take through them, and the CPU time of a packet.

pub mod iperf;
pub mod live;
pub mod packets;
pub mod path;
mod peer_paths;
pub mod pinning;
pub mod router_rig;
pub mod sample;
pub mod setting;
pub mod shunt;
pub mod tcp_stream;
pub mod ways;
