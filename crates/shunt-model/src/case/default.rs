//! An ideal board: what a case file leaves out costs nothing and limits nothing.

use super::{
    Bus, Cpu, Direction, Driver, Fifo, Interrupt, Link, Memory, Pacing, Protocol, Receive, Ring, Switch,
    Traffic,
};

impl Default for Traffic {
    fn default() -> Self {
        Self {
            protocol: Protocol::Udp,
            direction: Direction::Rx,
            ip: 4,
            tags: 0,
            payload: 1472,
            rate: 1e9,
            pacing: Pacing::Cbr,
            burst: 1,
            sender_ns: 0.0,
            sleep_us: 0.0,
            sleep_jitter_us: 0.0,
            stall_us: 0.0,
            stall_every_us: 0.0,
            obeys_pause: true,
            seconds: 2.0,
            window: 256 << 10,
            flows: 1,
            ping_every_us: 0.0,
            peer_us: 50.0,
            peer_interrupt_us: 0.0,
            ack_every: 2,
            ack_gap_us: 0.0,
            ack_gap_back_us: 0.0,
        }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self { rate: 1e9, gap_bytes: 20, propagation_ns: 100.0, loss: 0.0 }
    }
}

impl Default for Switch {
    fn default() -> Self {
        Self { buffer: 0, pause: true, onward_rate: 0.0 }
    }
}

impl Default for Fifo {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            section_full: 64,
            resume: 0,
            recover_us: 0.0,
            passes_errors: false,
            pause: false,
            xoff: true,
            frames: 0,
            almost_full: 0,
            almost_empty: 0,
            pause_quanta: 0xffff,
            obeys_pause: true,
        }
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self { rx_rate: 1e12, tx_rate: 1e12, frame_ns: 0.0, shared: false }
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self { rx: 256, tx: 256, buffer: 0, descriptor_bytes: 0, queues: 1, busiest: 0.0 }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            uncached: false,
            uncached_ns: 0.0,
            burst: 1,
            descriptor_burst: 4,
            maintain_ns: 0.0,
            line_bytes: 32,
            cold_ns: 0.0,
            cached_ns: 0.0,
            unaligned: 1.0,
            rate: 1e13,
            width: 32,
            checksum_ns: 0.0,
        }
    }
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            receive: Receive::Fragments,
            interrupt: Interrupt::Napi,
            budget: 300,
            coalesce_us: 0.0,
            rx_ns: 0.0,
            fragment_ns: 0.0,
            descriptor_ns: 0.0,
            buffer_ns: 0.0,
            recycle: false,
            touched_lines: 0,
            tx_ns: 0.0,
            second_port: 1.0,
            complete_ns: 0.0,
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            clock: 1.0,
            costs_at: 1.0,
            cores: 1,
            irq_ns: 0.0,
            stack_rx_ns: 0.0,
            stack_tx_ns: 0.0,
            ack_ns: 0.0,
            socket_ns: 0.0,
            socket_tx_ns: 0.0,
            call_bytes: 0,
            memory_share: 0.0,
            socket_packets: 128,
            own_core: false,
            idle_after_us: 0.0,
            idle_exit_us: 0.0,
            base_load: 0.0,
        }
    }
}
