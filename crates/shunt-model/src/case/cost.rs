//! What the parameters of a case amount to: sizes of frames, levels of the FIFO, times per packet.

use super::{Case, Fifo, Memory, Path, Protocol, Receive, Ring, Traffic};

/// Cycles of SDRAM until the first transfer of an access: row, column, and the latency of the column.
const FIRST_CYCLES: f64 = 6.0;

impl Traffic {
    /// Size of a frame with this much L4 payload, FCS included.
    pub(crate) fn frame_bytes(&self, payload: u32) -> u32 {
        let l3 = if self.ip == 6 { 40 } else { 20 };
        let l4 = match self.protocol {
            Protocol::Udp => 8,
            // With time stamps, as Linux sends them.
            Protocol::Tcp => 32,
        };
        (14 + 4 * self.tags + l3 + l4 + payload + 4).max(64)
    }
}

impl Fifo {
    fn or_part(&self, bytes: u32, quarters: u32) -> u32 {
        if bytes == 0 { self.bytes / 4 * quarters } else { bytes }
    }

    /// The level at which frames are accepted again after an overrun.
    pub(crate) fn resume_at(&self) -> u32 {
        self.or_part(self.resume, 2)
    }

    /// Whether the MAC ever sends a pause frame.
    pub(crate) fn sends_pause(&self) -> bool {
        self.pause && self.xoff
    }

    /// The level above which the MAC asks for a pause.
    pub(crate) fn pause_at(&self) -> u32 {
        self.or_part(self.almost_full, 3)
    }

    /// The level at which the pause ends.
    pub(crate) fn unpause_at(&self) -> u32 {
        self.or_part(self.almost_empty, 2)
    }

    /// Bytes of a frame that must have arrived before DMA begins.
    pub(crate) fn section(&self, bytes: u32) -> u32 {
        if self.section_full == 0 { bytes } else { self.section_full.min(bytes) }
    }
}

impl Ring {
    /// Receive descriptors that a frame takes.
    pub(crate) fn descriptors(&self, bytes: u32) -> u32 {
        if self.buffer == 0 { 1 } else { bytes.div_ceil(self.buffer) }
    }
}

impl Memory {
    /// How much longer an access to this many bytes takes than with 32 bits of data bus.
    fn slowness(&self, bytes: f64) -> f64 {
        let cycles = |width: f64| FIRST_CYCLES + (8.0 * bytes / width).max(1.0);
        cycles(f64::from(self.width)) / cycles(32.0)
    }

    /// Time to read a byte that DMA has written, the first time.
    fn first_read_ns(&self) -> f64 {
        if self.uncached {
            self.uncached_ns / f64::from(self.burst) * self.slowness(f64::from(self.burst))
        } else {
            self.cold_ns * self.line_slowness()
        }
    }

    fn line_slowness(&self) -> f64 {
        self.slowness(f64::from(self.line_bytes))
    }

    /// Time to read a descriptor, if it is not cached.
    fn descriptor_ns(&self, bytes: u32) -> f64 {
        let accesses = f64::from(bytes.div_ceil(self.descriptor_burst));
        accesses * self.uncached_ns * self.slowness(f64::from(self.descriptor_burst))
    }
}

impl Case {
    /// How many times as fast the cores are as those that the costs are for.
    pub(crate) fn speed(&self) -> f64 {
        self.cpu.clock / self.cpu.costs_at
    }

    /// What is left of a time of driver and stack for the core's own work, and for lines of memory.
    fn own_and_memory_parts(&self) -> (f64, f64) {
        let share = self.cpu.memory_share;
        ((1.0 - share) / self.speed(), share * self.memory.line_slowness())
    }

    /// Part of the time of driver and stack that waits for memory, with this clock and this memory.
    pub(crate) fn memory_part(&self) -> f64 {
        let (own, memory) = self.own_and_memory_parts();
        if own + memory > 0.0 { memory / (own + memory) } else { 0.0 }
    }

    /// Time of driver and stack, as slow as clock and memory make it.
    fn software_ns(&self, ns: f64) -> f64 {
        let (own, memory) = self.own_and_memory_parts();
        ns * (own + memory)
    }

    /// Time to copy or to sum up bytes in the cache, which is the core's alone.
    fn cached_ns(&self, ns: f64) -> f64 {
        ns / self.speed()
    }

    /// Time of a copy in the driver.
    fn driver_copy_ns(&self, bytes: f64) -> f64 {
        let unaligned = match self.driver.receive {
            Receive::Fragments => return 0.0,
            Receive::Copy => self.memory.unaligned,
            Receive::CopyAligned => 1.0,
        };
        bytes * (self.memory.first_read_ns() + self.cached_ns(self.memory.cached_ns) * unaligned)
    }

    /// Time to check the checksum and copy the payload to the program.
    fn user_copy_ns(&self, bytes: f64) -> f64 {
        let first = match self.driver.receive {
            Receive::Fragments => self.memory.first_read_ns(),
            Receive::Copy | Receive::CopyAligned => 0.0,
        };
        bytes * (first + self.cached_ns(self.memory.cached_ns + self.memory.checksum_ns))
    }

    /// Time to invalidate or clean the lines of a frame in the cache.
    fn maintain_ns(&self, bytes: u32, forwarded: bool) -> f64 {
        let lines = bytes.div_ceil(self.memory.line_bytes);
        let lines = match self.driver.touched_lines {
            touched if forwarded && touched > 0 => lines.min(touched),
            _ => lines,
        };
        f64::from(lines) * self.memory.maintain_ns
    }

    /// Time of an interrupt.
    pub(crate) fn irq_ns(&self) -> f64 {
        self.software_ns(self.cpu.irq_ns)
    }

    /// Time of the stack per acknowledgement.
    pub(crate) fn ack_ns(&self) -> f64 {
        self.software_ns(self.cpu.ack_ns)
    }

    /// Time of the stack per received packet.
    pub(crate) fn stack_rx_ns(&self) -> f64 {
        self.software_ns(self.cpu.stack_rx_ns)
    }

    /// Time to free the descriptor of a sent frame.
    pub(crate) fn complete_ns(&self) -> f64 {
        self.software_ns(self.driver.complete_ns)
    }

    /// Time of the driver per received frame, without interrupts.
    pub(crate) fn driver_rx_ns(&self, port: usize, bytes: u32, forwarded: bool) -> f64 {
        let driver = &self.driver;
        let frame = driver.rx_ns * if port == 0 { 1.0 } else { driver.second_port };
        let descriptors = f64::from(self.ring.descriptors(bytes));
        let buffer = if driver.recycle { 0.0 } else { driver.buffer_ns };
        let fragments = if driver.receive == Receive::Fragments { driver.fragment_ns } else { 0.0 };
        let maintain = if self.memory.uncached { 0.0 } else { self.maintain_ns(bytes, forwarded) };
        self.software_ns(frame + fragments + maintain + (driver.descriptor_ns + buffer) * descriptors)
            + self.memory.descriptor_ns(self.ring.descriptor_bytes) * descriptors
            + self.driver_copy_ns(f64::from(bytes))
    }

    /// Time of system calls per packet, if one call takes `ns`.
    fn call_ns(&self, ns: f64, payload: u32) -> f64 {
        let calls = match self.cpu.call_bytes {
            bytes if bytes > payload && self.traffic.protocol == Protocol::Tcp => {
                f64::from(payload) / f64::from(bytes)
            }
            _ => 1.0,
        };
        ns * calls
    }

    /// Time of the program that receives a packet.
    pub(crate) fn receive_ns(&self, payload: u32) -> f64 {
        self.software_ns(self.call_ns(self.cpu.socket_ns, payload)) + self.user_copy_ns(f64::from(payload))
    }

    /// Time of the program, the stack and the driver that send a packet.
    pub(crate) fn send_ns(&self, payload: u32) -> f64 {
        let socket = if self.cpu.socket_tx_ns > 0.0 { self.cpu.socket_tx_ns } else { self.cpu.socket_ns };
        let bytes = self.traffic.frame_bytes(payload);
        self.software_ns(
            self.call_ns(socket, payload) + self.cpu.stack_tx_ns + self.driver_tx_ns(bytes, false),
        ) + f64::from(payload) * self.cached_ns(self.memory.cached_ns + self.memory.checksum_ns)
    }

    /// Time of the driver per sent frame.
    fn driver_tx_ns(&self, bytes: u32, forwarded: bool) -> f64 {
        self.driver.tx_ns + self.maintain_ns(bytes, forwarded)
    }

    /// Time of the stack that answers a ping.
    pub(crate) fn echo_ns(&self, bytes: u32) -> f64 {
        self.software_ns(self.cpu.stack_rx_ns + self.cpu.stack_tx_ns + self.driver_tx_ns(bytes, false))
    }

    /// Time to forward a packet, on the CPU or on the core of the external engine.
    pub(crate) fn forward_ns(&self, bytes: u32) -> f64 {
        let path = match self.forward.path {
            Path::Slow => {
                let tcp = if self.traffic.protocol == Protocol::Tcp { self.forward.slow_tcp_ns } else { 0.0 };
                self.forward.slow_ns + self.forward.slow_nat_ns + tcp
            }
            Path::Tc => self.forward.tc_ns,
            Path::Xdp => self.forward.xdp_ns,
            Path::External => return self.forward.external_ns,
        };
        self.software_ns(path + self.driver_tx_ns(bytes, true))
    }
}
