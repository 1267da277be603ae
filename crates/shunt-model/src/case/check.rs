//! Which parameters are possible.

use super::Case;
use thiserror::Error;

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

impl Case {
    /// Checks that a board with these parameters can be.
    ///
    /// # Errors
    /// Fails with the first parameter that cannot be, and what can.
    pub fn check(&self) -> Result<(), Impossible> {
        self.check_numbers()?;
        self.check_traffic()?;
        self.check_sizes()
    }

    fn check_traffic(&self) -> Result<(), Impossible> {
        let t = &self.traffic;
        if t.ip != 4 && t.ip != 6 {
            return refuse("traffic.ip", t.ip, "use 4 or 6");
        }
        if t.payload == 0 || t.payload > 65_000 {
            return refuse("traffic.payload", t.payload, "a packet has 1 to 65000 bytes of payload");
        }
        if t.tags > 2 {
            return refuse("traffic.tags", t.tags, "a frame has at most 2 VLAN tags");
        }
        if t.seconds > 600.0 {
            return refuse("traffic.seconds", t.seconds, "a run lasts at most 600 seconds");
        }
        if t.window < t.payload {
            return refuse("traffic.window", t.window, format!("a segment has {} bytes", t.payload));
        }
        let counts = [
            ("traffic.burst", t.burst),
            ("traffic.ack_every", t.ack_every),
            ("ring.rx", self.ring.rx),
            ("ring.tx", self.ring.tx),
            ("driver.budget", self.driver.budget),
            ("cpu.socket_packets", self.cpu.socket_packets),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => refuse(name, 0, "use at least 1"),
            None => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<(), Impossible> {
        let frame = self.traffic.frame_bytes(self.traffic.payload);
        let Self { fifo, ring, switch, .. } = self;
        if fifo.bytes < frame {
            return refuse("fifo.bytes", fifo.bytes, format!("a frame has {frame} bytes"));
        }
        for (name, bytes) in [("fifo.resume", fifo.resume), ("fifo.almost_full", fifo.almost_full)] {
            if bytes > fifo.bytes {
                return refuse(name, bytes, format!("the FIFO has {} bytes", fifo.bytes));
            }
        }
        if fifo.pause && fifo.unpause_at() > fifo.pause_at() {
            let wanted = format!("the pause begins at {}", fifo.pause_at());
            return refuse("fifo.almost_empty", fifo.almost_empty, wanted);
        }
        let descriptors = ring.descriptors(frame);
        if ring.rx < descriptors {
            return refuse("ring.rx", ring.rx, format!("a frame takes {descriptors} descriptors"));
        }
        if switch.buffer > 0 && switch.buffer < frame {
            return refuse("switch.buffer", switch.buffer, format!("a frame has {frame} bytes"));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Impossible> {
        for name in ["traffic.rate", "link.rate", "bus.rx_rate", "bus.tx_rate"] {
            let rate = self.number(name).unwrap_or(f64::NAN);
            if !(1.0..=1e15).contains(&rate) {
                return refuse(name, rate, "use 1 to 1e15 bit/s");
            }
        }
        if !self.traffic.seconds.is_finite() || self.traffic.seconds <= 0.0 {
            return refuse("traffic.seconds", self.traffic.seconds, "use a number above 0");
        }
        for (name, number) in self.numbers() {
            if !(0.0..=1e15).contains(&number) {
                return refuse(&name, number, "use a number that is not negative");
            }
        }
        if self.cpu.base_load >= 1.0 {
            return refuse("cpu.base_load", self.cpu.base_load, "use a part of one core, below 1");
        }
        Ok(())
    }
}
