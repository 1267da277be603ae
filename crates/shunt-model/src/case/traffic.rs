//! What is sent, when, and by whom.

use serde::{Deserialize, Serialize};

/// Transport protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// UDP at a rate.
    #[default]
    Udp,
    /// One TCP connection per direction, as fast as it goes.
    Tcp,
}

/// What the board does with the traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The board receives.
    #[default]
    Rx,
    /// The board sends.
    Tx,
    /// The board forwards from its first port to its second.
    Forward,
    /// The board forwards in both directions.
    Both,
}

/// When a sender sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// At equal distances.
    #[default]
    Cbr,
    /// As iperf 2 does: at distances of whole microseconds, rounded down, so that the rate is a bit above the one asked
    /// for.
    Iperf2,
    /// At random, independent of each other.
    Poisson,
    /// In bursts of `burst` packets at the speed of the line.
    Bursts,
}

/// What is sent, and by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Transport protocol.
    pub protocol: Protocol,
    /// What the board does.
    pub direction: Direction,
    /// Version of IP: 4 or 6.
    pub ip: u8,
    /// Number of VLAN tags on the line.
    pub tags: u32,
    /// Bytes of payload in a packet.
    pub payload: u32,
    /// UDP: the rate of payload that is asked for.
    pub rate: f64,
    /// UDP: when packets are sent.
    pub pacing: Pacing,
    /// Packets in a burst, with `pacing = "bursts"`.
    pub burst: u32,
    /// The least time between two packets of a sender: what its own stack and NIC take.
    pub sender_ns: f64,
    /// UDP: how much longer than asked a sender sleeps that is ahead of its rate; it catches up afterwards. 50 us is
    /// Linux's timer slack.
    pub sleep_us: f64,
    /// UDP: mean of a random time in addition.
    pub sleep_jitter_us: f64,
    /// UDP: now and then the sender's machine does something else for this long; it catches up afterwards.
    pub stall_us: f64,
    /// UDP: mean time from the end of a stall to the next; 0 means that it never stalls.
    pub stall_every_us: f64,
    /// Whether the sender stops while the switch asks it to pause.
    pub obeys_pause: bool,
    /// Duration of the run.
    pub seconds: f64,
    /// TCP: bytes that may be unacknowledged.
    pub window: u32,
    /// Flows that the datagrams belong to, in turn. A NIC with several queues spreads flows, not packets. TCP has one
    /// connection per direction.
    pub flows: u32,
    /// The host behind the first port pings the board, or the host behind the second port, at this interval; 0 means
    /// that it does not.
    pub ping_every_us: f64,
    /// TCP and pings: time that the peer adds to each round trip.
    pub peer_us: f64,
    /// TCP and pings: the least time between two interrupts of a peer, whose NIC moderates them. What arrives meanwhile
    /// is handled together, so that a sender answers several acknowledgements with one burst.
    pub peer_interrupt_us: f64,
    /// TCP: a receiver acknowledges at the latest after this many segments ...
    pub ack_every: u32,
    /// ... but not sooner than this after the first of them: what receive coalescing and GRO of a fast peer do.
    pub ack_gap_us: f64,
    /// The same for the receiver behind the first port, with `direction = "both"`; 0 stands for `ack_gap_us`.
    pub ack_gap_back_us: f64,
}
