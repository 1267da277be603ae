//! Which parameters are possible.

use super::Case;
use thiserror::Error;

/// Rates beyond this are mistakes.
pub(crate) const RATE_MAX: f64 = 1e13;
/// FIFOs, buffers and windows beyond this are mistakes.
pub(crate) const BYTES_MAX: u32 = 1 << 28;
/// Descriptors, packets in a burst, in a budget, in a socket's buffer.
pub(crate) const COUNT_MAX: u32 = 1 << 20;
/// A run of more frames would take minutes.
const FRAMES_MAX: f64 = 1e9;
/// Times are at most a second.
const NS_MAX: f64 = 1e9;
/// Pings are at most ten thousand in a second.
const PINGS_APART_US: f64 = 100.0;

/// A parameter that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} is {value}: {wanted}")]
pub struct Impossible {
    /// The parameter, as in a case file: `fifo.bytes`.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What is possible.
    pub wanted: String,
}

fn refuse(name: &str, value: impl ToString, wanted: impl Into<String>) -> Result<(), Impossible> {
    Err(Impossible { name: name.to_owned(), value: value.to_string(), wanted: wanted.into() })
}

/// What a number may be, by its name, and how to say so.
pub(super) fn bounds(name: &str) -> (f64, f64, &'static str) {
    match name {
        "switch.onward_rate" => (0.0, RATE_MAX, "use 0 to 1e13 bit/s"),
        "traffic.ip" => (4.0, 6.0, "use 4 or 6"),
        "ring.busiest" => (0.0, 1.0, "use a part of the packets, from 0 to 1"),
        "ring.queues" | "cpu.cores" => (1.0, 64.0, "use 1 to 64"),
        "cpu.clock" | "cpu.costs_at" => (1e-3, RATE_MAX, "use a clock in Hz, or a factor such as 2x"),
        "driver.touched_lines" | "fifo.frames" | "ring.descriptor_bytes" => {
            (0.0, f64::from(COUNT_MAX), "use 0 to 1048576")
        }
        "traffic.ack_every" => (1.0, 1e3, "use 1 to 1000"),
        "traffic.seconds" => (1e-6, 600.0, "a run lasts 1e-6 to 600 seconds"),
        "traffic.payload" => (1.0, 65_000.0, "a packet has 1 to 65000 bytes of payload"),
        "traffic.tags" => (0.0, 2.0, "a frame has at most 2 VLAN tags"),
        "traffic.window" => (1.0, f64::from(BYTES_MAX), "use 1 to 268435456 bytes"),
        "fifo.pause_quanta" => (1.0, 65_535.0, "use 1 to 65535 quanta of 512 bit times"),
        "link.gap_bytes" => (0.0, 1e6, "use 0 to 1000000 bytes"),
        "link.loss" => (0.0, 1.0, "use a part of the frames, from 0 to 1"),
        "memory.unaligned" => (1.0, 1e3, "use a factor from 1 to 1000"),
        "driver.second_port" => (0.0, 1e3, "use a factor from 0 to 1000"),
        "memory.width" => (8.0, 1024.0, "use 8 to 1024 bits"),
        "cpu.memory_share" => (0.0, 1.0, "use a part of the time, from 0 to 1"),
        "cpu.call_bytes" => (0.0, f64::from(BYTES_MAX), "use 0 to 268435456 bytes"),
        "memory.burst" | "memory.descriptor_burst" | "memory.line_bytes" => {
            (1.0, 4096.0, "use 1 to 4096 bytes")
        }
        "cpu.base_load" => (0.0, 0.99, "use a part of one core, from 0 to 0.99"),
        _ => bounds_of_unit(name),
    }
}

/// The same for numbers whose name says their unit.
fn bounds_of_unit(name: &str) -> (f64, f64, &'static str) {
    let ends = |end: &str| name.ends_with(end);
    if ends("rate") {
        (1.0, RATE_MAX, "use 1 to 1e13 bit/s")
    } else if ends("_ns") {
        (0.0, NS_MAX, "use 0 to 1e9 ns")
    } else if ends("_us") {
        (0.0, NS_MAX / 1e3, "use 0 to 1e6 us")
    } else if name.starts_with("fifo.") || ends(".buffer") {
        (0.0, f64::from(BYTES_MAX), "use 0 to 268435456 bytes")
    } else {
        (1.0, f64::from(COUNT_MAX), "use 1 to 1048576")
    }
}

impl Case {
    /// Checks that a board with these parameters can be.
    ///
    /// # Errors
    /// Fails with the first parameter that cannot be, and what can.
    pub fn check(&self) -> Result<(), Impossible> {
        if self.traffic.ip != 4 && self.traffic.ip != 6 {
            return refuse("traffic.ip", self.traffic.ip, "use 4 or 6");
        }
        for (name, number) in self.numbers() {
            let (least, most, wanted) = bounds(&name);
            if !(least..=most).contains(&number) {
                return refuse(&name, number, wanted);
            }
        }
        if !(0.01..=100.0).contains(&self.speed()) {
            let wanted = format!(
                "the costs are for a clock of {} (cpu.costs_at); use a factor such as 2x",
                self.cpu.costs_at
            );
            return refuse("cpu.clock", self.cpu.clock, wanted);
        }
        let ping_every_us = self.traffic.ping_every_us;
        if ping_every_us > 0.0 && ping_every_us < PINGS_APART_US {
            let wanted = format!("use {PINGS_APART_US} to 1e6 us, or 0 for no ping");
            return refuse("traffic.ping_every_us", ping_every_us, wanted);
        }
        self.check_sizes()?;
        self.check_length()
    }

    fn check_sizes(&self) -> Result<(), Impossible> {
        let Self { traffic, fifo, ring, switch, .. } = self;
        let frame = traffic.frame_bytes(traffic.payload);
        let fits = format!("a frame has {frame} bytes");
        if traffic.window < traffic.payload {
            return refuse(
                "traffic.window",
                traffic.window,
                format!("a segment has {} bytes", traffic.payload),
            );
        }
        if fifo.bytes < frame {
            return refuse("fifo.bytes", fifo.bytes, fits);
        }
        let even = 1.0 / f64::from(ring.queues);
        if ring.busiest > 0.0 && ring.busiest < even {
            let wanted = format!("of {} queues, the busiest gets {even:.2} or more", ring.queues);
            return refuse("ring.busiest", ring.busiest, wanted);
        }
        for (name, bytes) in [
            ("fifo.resume", fifo.resume),
            ("fifo.almost_full", fifo.almost_full),
            ("fifo.section_full", fifo.section_full),
        ] {
            if bytes > fifo.bytes {
                return refuse(name, bytes, format!("the FIFO has {} bytes", fifo.bytes));
            }
        }
        if fifo.sends_pause() && fifo.unpause_at() > fifo.pause_at() {
            let wanted = format!("the pause begins at {}", fifo.pause_at());
            return refuse("fifo.almost_empty", fifo.almost_empty, wanted);
        }
        let descriptors = ring.descriptors(frame);
        if ring.rx < descriptors {
            return refuse("ring.rx", ring.rx, format!("a frame takes {descriptors} descriptors"));
        }
        if switch.buffer < frame && (switch.buffer > 0 || switch.onward_rate > 0.0) {
            return refuse("switch.buffer", switch.buffer, fits);
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), Impossible> {
        let (traffic, link) = (&self.traffic, &self.link);
        let bytes = f64::from(traffic.frame_bytes(traffic.payload) + link.gap_bytes);
        let frames = link.rate / 8.0 / bytes * traffic.seconds;
        if frames > FRAMES_MAX {
            let wanted =
                format!("at link.rate, that is {frames:.0} frames; a run has at most {FRAMES_MAX:.0}");
            return refuse("traffic.seconds", traffic.seconds, wanted);
        }
        Ok(())
    }
}
