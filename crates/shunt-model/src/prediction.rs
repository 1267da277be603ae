//! What a run predicts.

use serde::{Deserialize, Serialize};

/// Packets that were lost, by place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// On the line: damaged, and discarded by the receiving MAC.
    pub line: u64,
    /// In the MAC's receive FIFO.
    pub fifo: u64,
    /// By a NIC with several queues and no flow control: their queue had no descriptor.
    #[serde(default)]
    pub queue: u64,
    /// In the switch.
    pub switch: u64,
    /// In the queue between interrupt and stack.
    pub backlog: u64,
    /// At the socket.
    pub socket: u64,
    /// In the transmit ring.
    pub tx_ring: u64,
}

/// A part of the board that can be busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The sender's own program and NIC.
    Sender,
    /// The line.
    Line,
    /// The onward port of the switch.
    Switch,
    /// The MAC's receive FIFO: its size, and its recovery from overruns.
    Fifo,
    /// The bus between MAC and memory.
    Bus,
    /// The descriptors of the DMA rings.
    Ring,
    /// Memory: its accesses, and what DMA leaves of its bandwidth.
    Memory,
    /// The CPU.
    Cpu,
    /// Deep idle of the CPU: what it takes to wake up.
    Idle,
    /// The socket's queue.
    Socket,
    /// The core of the program.
    Program,
    /// The core of the external engine.
    Engine,
    /// The TCP window, or what congestion control makes of losses.
    Window,
    /// What the peer adds to each round trip of TCP.
    RoundTrip,
}

impl Drops {
    /// The losses of each place, and what happened there.
    pub fn by_place(&self) -> [(u64, &'static str); 7] {
        [
            (self.line, "damaged on the line"),
            (self.fifo, "overrun in the MAC's FIFO"),
            (self.queue, "without a descriptor of their queue"),
            (self.switch, "dropped by the switch"),
            (self.backlog, "dropped between interrupt and stack"),
            (self.socket, "dropped at the socket"),
            (self.tx_ring, "dropped at the transmit ring"),
        ]
    }
}

impl Part {
    /// The part in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "the sender",
            Self::Line => "the line",
            Self::Switch => "the switch",
            Self::Fifo => "the MAC's receive FIFO",
            Self::Bus => "the bus between MAC and memory",
            Self::Ring => "the DMA rings",
            Self::Memory => "memory",
            Self::Cpu => "the CPU",
            Self::Idle => "deep idle of the CPU",
            Self::Socket => "the socket's queue",
            Self::Program => "the program's core",
            Self::Engine => "the engine's core",
            Self::Window => "the TCP window",
            Self::RoundTrip => "the peer's part of the round trip",
        }
    }
}

/// How long something took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many times were taken.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// What 99 % of them do not exceed.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What a run predicts. Never a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Payload that was sent, in bit/s, all directions together.
    pub offered: f64,
    /// Payload that arrived, in bit/s, by direction.
    pub goodput: Vec<f64>,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Part of the sent packets that did not arrive, from 0 to 1. Packets under way at the end do not count.
    pub loss: f64,
    /// Load of the busiest core of driver and stack, from 0 to 1.
    pub cpu: f64,
    /// Load of each of these cores.
    #[serde(default)]
    pub cores: Vec<f64>,
    /// How long payload was in the board: from the last bit that came in to the first that went out, or to the program
    /// that has read it; for what the board sends, from the system call on. Absent if nothing got through.
    #[serde(default)]
    pub latency: Option<Times>,
    /// Round trips of pings. Absent without answers.
    #[serde(default)]
    pub ping: Option<Times>,
    /// Pings without an answer, but for those under way at the end.
    #[serde(default)]
    pub pings_lost: u64,
    /// Where packets were lost.
    pub drops: Drops,
    /// Pause frames that the board sent.
    pub pauses: u64,
    /// Pause frames that the board received.
    pub pauses_received: u64,
    /// How busy the parts were, from 0 to 1, the busiest first.
    pub busy: Vec<(Part, f64)>,
    /// Events of the simulation.
    pub events: u64,
}

impl Prediction {
    /// Payload that arrived, in bit/s, all directions together.
    pub fn total(&self) -> f64 {
        self.goodput.iter().sum()
    }
}
