//! Frames, and the receive queue that each belongs to.

use super::World;
use crate::{case::Protocol, time::Ps};
use std::collections::VecDeque;

/// A queue of frames.
pub(super) type Frames = VecDeque<Frame>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Udp,
    Data,
    Ack,
    Ping,
    Pong,
}

impl Kind {
    pub(super) fn is_payload(self) -> bool {
        matches!(self, Self::Udp | Self::Data)
    }
}

/// A frame. `index` counts the flow's transmissions; in an acknowledgement it is the last one that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) index: u64,
    /// From destination address to FCS; less if the frame overran.
    pub(super) bytes: u32,
    pub(super) payload: u32,
    pub(super) flow: u8,
    pub(super) kind: Kind,
    /// Whether the frame is whole.
    pub(super) good: bool,
    /// The receive queue that it came in by.
    pub(super) queue: u8,
    /// When it entered the board; when a ping was sent.
    pub(super) since: Ps,
}

impl World<'_> {
    pub(super) fn data_frame(&self, flow: usize) -> Frame {
        let t = &self.case.traffic;
        Frame {
            index: self.flows[flow].sent,
            bytes: t.frame_bytes(t.payload),
            payload: t.payload,
            flow: flow as u8,
            kind: if t.protocol == Protocol::Udp { Kind::Udp } else { Kind::Data },
            good: true,
            queue: 0,
            since: self.now,
        }
    }

    pub(super) fn ack_frame(&self, flow: usize) -> Frame {
        let bytes = self.case.traffic.frame_bytes(0);
        Frame {
            index: self.flows[flow].last,
            bytes,
            payload: 0,
            flow: flow as u8,
            kind: Kind::Ack,
            good: true,
            queue: 0,
            since: self.now,
        }
    }

    /// The receive queue of a frame: that of its flow.
    pub(super) fn queue_of(&self, frame: Frame) -> u8 {
        let (queues, busiest) = (u64::from(self.case.ring.queues), self.case.ring.busiest);
        if queues == 1 {
            return 0;
        }
        if frame.kind == Kind::Udp && busiest > 0.0 {
            let so_far = |packets: u64| (packets as f64 * busiest) as u64;
            let others = frame.index - so_far(frame.index);
            let first = so_far(frame.index + 1) > so_far(frame.index);
            return if first { 0 } else { (1 + others % (queues - 1)) as u8 };
        }
        let number =
            if frame.kind == Kind::Udp { frame.index % u64::from(self.case.traffic.flows) } else { 0 };
        let flow = number << 8 | u64::from(frame.flow) << 4 | frame.kind as u64;
        (mixed(flow) % queues) as u8
    }
}

/// Mixes the bits of a number (splitmix64), as a hash of a flow's addresses and ports does.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
