//! A case: the parameters of a board, its link and its traffic.
//!
//! Times are in nanoseconds and rates in bit/s, unless the name says otherwise. A parameter that is left out has the
//! value of an ideal part: it costs nothing and limits nothing.

mod check;
mod cost;
mod default;
mod known;
mod number;
mod set;
mod traffic;

pub use check::Impossible;
pub(crate) use check::{BYTES_MAX, COUNT_MAX, RATE_MAX};
pub use number::parse_number;
pub use set::CaseError;
pub use traffic::{Direction, Pacing, Protocol, Traffic};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that a run depends on. The same case gives the same prediction on every machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Case {
    /// What is modelled, in a line.
    pub name: String,
    /// Seed of everything random.
    pub seed: u32,
    /// What is sent, and by whom.
    pub traffic: Traffic,
    /// The line at each port.
    pub link: Link,
    /// What stands between the sender and the board.
    pub switch: Switch,
    /// The MAC's receive FIFO.
    pub fifo: Fifo,
    /// The way from the MAC to memory.
    pub bus: Bus,
    /// DMA rings.
    pub ring: Ring,
    /// Memory that the CPU copies from.
    pub memory: Memory,
    /// How the driver works.
    pub driver: Driver,
    /// The CPU, and what the stack costs.
    pub cpu: Cpu,
    /// Forwarding, if the board is a router.
    pub forward: Forward,
    /// Costs that nobody has measured, by name, and the range that each is in, if that is known: a prediction that
    /// depends on one is refused, and with a range it has two ends. In a case file, the value of such a cost is the
    /// word `unknown`, or text such as `"3000..20000"`.
    #[serde(skip)]
    pub unknown: BTreeMap<String, Option<(f64, f64)>>,
}

impl Case {
    /// Whether packets come from or go to the board itself, and not through it.
    pub(crate) fn ends_here(&self) -> bool {
        matches!(self.traffic.direction, Direction::Rx | Direction::Tx)
    }

    /// Whether an engine forwards the packets.
    pub(crate) fn uses_engine(&self) -> bool {
        self.forward.path == Path::External && !self.ends_here()
    }

    /// Cores that serve queues: the engine is one.
    pub(crate) fn stack_cores(&self) -> usize {
        if self.uses_engine() { 1 } else { self.cpu.cores as usize }
    }
}

/// The line at each port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// Speed of the line.
    pub rate: f64,
    /// Preamble, start of frame and gap between frames, in bytes.
    pub gap_bytes: u32,
    /// Time on the cable.
    pub propagation_ns: f64,
    /// Part of the frames that the line damages. The receiving MAC discards them by their FCS.
    pub loss: f64,
}

/// What stands between the sender and the board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switch {
    /// Buffer towards the board. 0 means that the sender is connected directly, and waits.
    pub buffer: u32,
    /// Whether the switch asks its senders to pause before a buffer is full, and obeys the board's pause frames.
    pub pause: bool,
    /// Rate of the port that sends on what comes from the board, behind a buffer of the same size; 0 means no such
    /// port: the board's partner takes what it gets.
    pub onward_rate: f64,
}

/// The MAC's receive FIFO.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fifo {
    /// Its size.
    pub bytes: u32,
    /// DMA of a frame begins when this many of its bytes have arrived; 0 means the whole frame.
    pub section_full: u32,
    /// After an overrun, frames are accepted again when no more than this is in the FIFO; 0 stands for half of it.
    pub resume: u32,
    /// Time that the receiver needs after an overrun, at least, until it accepts frames again.
    pub recover_us: f64,
    /// Whether what has arrived of a frame that overran is passed on as a frame with an error.
    pub passes_errors: bool,
    /// Whether flow control is on: the MAC may send pause frames.
    pub pause: bool,
    /// Whether a level of the FIFO makes the MAC send them. The FEC has no such level after reset (its register RSEM is
    /// 0): with flow control on, it obeys pause frames and never sends one.
    pub xoff: bool,
    /// Frames that it holds at most, however small; 0 means no limit. A MAC keeps the status of each frame in a queue
    /// of its own (the FEC's overflows with small frames: erratum ERR005783).
    pub frames: u32,
    /// A pause frame (XOFF) is sent above this much; 0 stands for three quarters.
    pub almost_full: u32,
    /// A pause frame of no duration (XON) ends the pause at this much; 0 stands for half.
    pub almost_empty: u32,
    /// Duration that a pause frame asks for, in quanta of 512 bit times. Above `almost_full`, another one follows.
    pub pause_quanta: u32,
    /// Whether the MAC stops sending while the switch asks for a pause.
    pub obeys_pause: bool,
}

/// The way from the MAC to memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bus {
    /// Rate of received bytes.
    pub rx_rate: f64,
    /// Rate of sent bytes.
    pub tx_rate: f64,
    /// Time per frame in addition to its bytes: descriptors, arbitration.
    pub frame_ns: f64,
    /// Whether frames that are received and sent take turns.
    pub shared: bool,
}

/// DMA rings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ring {
    /// Receive descriptors.
    pub rx: u32,
    /// Transmit descriptors.
    pub tx: u32,
    /// Bytes that a receive descriptor takes; 0 means a whole frame.
    pub buffer: u32,
    /// Bytes of a receive descriptor that the driver reads from uncached memory; 0 means that the cache has it.
    pub descriptor_bytes: u32,
    /// Receive queues of each port, with `rx` descriptors and an interrupt each. Queue n is served by core n, modulo
    /// `cpu.cores`.
    pub queues: u32,
    /// Part of the packets that the busiest queue gets, the others sharing the rest evenly; 0 means that a hash spreads
    /// the flows.
    pub busiest: f64,
}

/// Memory that the CPU copies from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Whether receive buffers are uncached.
    pub uncached: bool,
    /// Time of an access to uncached memory.
    pub uncached_ns: f64,
    /// Bytes of a buffer that such an access reads: 4 for a word, 32 for a burst.
    pub burst: u32,
    /// The same for descriptors.
    pub descriptor_burst: u32,
    /// Time to invalidate or clean a line of the cache, for DMA that does not see the cache.
    pub maintain_ns: f64,
    /// Bytes of a line of the cache.
    pub line_bytes: u32,
    /// Time to read a byte that DMA has just written, the first time.
    pub cold_ns: f64,
    /// Time to copy a byte that is in the cache.
    pub cached_ns: f64,
    /// How much longer it takes to copy to another alignment.
    pub unaligned: f64,
    /// What DMA and CPU can move together. DMA leaves the rest to the CPU, whose accesses (`cpu.memory_share`) wait.
    pub rate: f64,
    /// Bits of the memory's data bus. The costs of a case are those with 32 bits: with 16, a line of 32 bytes takes 16
    /// transfers instead of 8, besides the cycles until the first.
    pub width: u32,
    /// Time to read a byte for a checksum; 0 with checksum offload.
    pub checksum_ns: f64,
}

/// What the driver does with a received frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// Passes its buffers up.
    #[default]
    Fragments,
    /// Copies it; IP headers and buffers are not aligned alike.
    Copy,
    /// Copies it from a buffer with an offset that aligns the IP header.
    CopyAligned,
}

/// When the driver is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interrupt {
    /// Polls while packets come (NAPI).
    #[default]
    Napi,
    /// Works in the interrupt, once for each frame.
    PerPacket,
}

/// How the driver works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Driver {
    /// What it does with a received frame.
    pub receive: Receive,
    /// When it is called.
    pub interrupt: Interrupt,
    /// NAPI: packets in a row before other work gets its share.
    pub budget: u32,
    /// Time that an interrupt waits for further frames.
    pub coalesce_us: f64,
    /// Time per received frame.
    pub rx_ns: f64,
    /// Time per received frame, in addition, of a driver that passes its buffers up (`receive = "fragments"`): their
    /// pages are attached to the packet, and its headers are copied out of the first one.
    pub fragment_ns: f64,
    /// Time per receive descriptor.
    pub descriptor_ns: f64,
    /// Time to get a new buffer for a receive descriptor.
    pub buffer_ns: f64,
    /// Whether the driver recycles its buffers, and needs no new ones.
    pub recycle: bool,
    /// Lines of the cache that the driver invalidates and cleans for a packet that is forwarded; 0 means all lines of
    /// its frame. The CPU touches one or two: the headers.
    pub touched_lines: u32,
    /// Time per sent frame.
    pub tx_ns: f64,
    /// What the driver of the second port takes for a received frame, as a part of `rx_ns`: another NIC has another
    /// driver.
    pub second_port: f64,
    /// Time to free the descriptor of a sent frame, once an interrupt or a poll has found it sent. 0 means that the
    /// hardware frees it.
    pub complete_ns: f64,
}

/// The CPU, and what the stack costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpu {
    /// Clock of the cores in Hz, or in any unit that `costs_at` has too. Costs that do not wait for memory are shorter
    /// on a faster core.
    pub clock: f64,
    /// The clock with which the costs of this case were measured.
    pub costs_at: f64,
    /// Cores that serve receive queues.
    pub cores: u32,
    /// Time per interrupt.
    pub irq_ns: f64,
    /// Time of the stack per received packet.
    pub stack_rx_ns: f64,
    /// Time of the stack per sent packet.
    pub stack_tx_ns: f64,
    /// Time of the stack per acknowledgement, received or sent.
    pub ack_ns: f64,
    /// Time of the program per packet: system call and wake-up.
    pub socket_ns: f64,
    /// The same for a packet that the program sends, which wakes nobody; 0 stands for `socket_ns`.
    pub socket_tx_ns: f64,
    /// TCP: bytes that the program reads or writes in a system call; 0 means a packet's.
    pub call_bytes: u32,
    /// Part of the time of driver and stack in which they wait for lines of memory, from 0 to 1: `memory.width` changes
    /// it, and so does DMA that takes its part of `memory.rate`.
    pub memory_share: f64,
    /// Packets that a socket holds.
    pub socket_packets: u32,
    /// Whether the program runs on a core of its own.
    pub own_core: bool,
    /// The CPU sleeps deeply after it has had nothing to do for this long.
    pub idle_after_us: f64,
    /// Time to wake up from that.
    pub idle_exit_us: f64,
    /// CPU time, in parts of one core, that is used whatever the traffic.
    pub base_load: f64,
}

/// The path that packets take through a router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Linux's stack.
    #[default]
    Slow,
    /// The fast path at the tc hook.
    Tc,
    /// The fast path in the driver.
    Xdp,
    /// An engine on a core of its own. It costs the CPU nothing.
    External,
}

/// What forwarding costs per packet, driver not included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Forward {
    /// The path in use.
    pub path: Path,
    /// Time of Linux's stack.
    pub slow_ns: f64,
    /// Time of the fast path at the tc hook.
    pub tc_ns: f64,
    /// Time of the fast path in the driver.
    pub xdp_ns: f64,
    /// Time of the engine on its own core for the whole way of a packet, its drivers included.
    pub external_ns: f64,
    /// Time that NAT adds in Linux's stack; 0 without NAT.
    pub slow_nat_ns: f64,
    /// Time that a packet of TCP takes in Linux's stack in addition to one of UDP: connection tracking follows its
    /// windows.
    pub slow_tcp_ns: f64,
}
