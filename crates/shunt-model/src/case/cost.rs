//! What the parameters of a case amount to: sizes of frames, levels of the FIFO, times per packet.

use super::{Case, Fifo, Memory, Path, Protocol, Receive, Ring, Traffic};

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
    /// Time to read a byte that DMA has written, the first time.
    fn first_read_ns(&self) -> f64 {
        if self.uncached { self.uncached_ns / f64::from(self.burst) } else { self.cold_ns }
    }

    /// Time of a copy in the driver.
    fn driver_copy_ns(&self, receive: Receive, bytes: f64) -> f64 {
        let unaligned = match receive {
            Receive::Fragments => return 0.0,
            Receive::Copy => self.unaligned,
            Receive::CopyAligned => 1.0,
        };
        bytes * (self.first_read_ns() + self.cached_ns * unaligned)
    }

    /// Time to check the checksum and copy the payload to the program.
    fn user_copy_ns(&self, receive: Receive, bytes: f64) -> f64 {
        let first = match receive {
            Receive::Fragments => self.first_read_ns(),
            Receive::Copy | Receive::CopyAligned => 0.0,
        };
        bytes * (first + self.cached_ns)
    }
}

impl Case {
    /// Time of the driver per received frame, without interrupts.
    pub(crate) fn driver_rx_ns(&self, bytes: u32) -> f64 {
        let descriptors = f64::from(self.ring.descriptors(bytes));
        let buffer = if self.driver.recycle { 0.0 } else { self.driver.buffer_ns };
        self.driver.rx_ns
            + (self.driver.descriptor_ns + buffer) * descriptors
            + self.memory.driver_copy_ns(self.driver.receive, f64::from(bytes))
    }

    /// Time of the program that receives a packet.
    pub(crate) fn receive_ns(&self, payload: u32) -> f64 {
        let bytes = f64::from(payload);
        self.cpu.socket_ns
            + bytes * self.memory.checksum_ns
            + self.memory.user_copy_ns(self.driver.receive, bytes)
    }

    /// Time of the program, the stack and the driver that send a packet.
    pub(crate) fn send_ns(&self, payload: u32) -> f64 {
        let bytes = f64::from(payload);
        self.cpu.socket_ns
            + self.cpu.stack_tx_ns
            + self.driver.tx_ns
            + bytes * (self.memory.cached_ns + self.memory.checksum_ns)
    }

    /// Time to forward a packet on the CPU.
    pub(crate) fn forward_ns(&self) -> f64 {
        let path = match self.forward.path {
            Path::Slow => self.forward.slow_ns + self.forward.slow_nat_ns,
            Path::Tc => self.forward.tc_ns,
            Path::Xdp => self.forward.xdp_ns,
            Path::External => self.forward.external_ns,
        };
        path + self.driver.tx_ns
    }
}
