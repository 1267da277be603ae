//! What the probes cost: measured with packets on the loopback device of a network namespace of their own, with and
//! without probes.

use super::{
    TraceError,
    abi::{TraceEvent, TracePlan, TraceRecord},
    machine::netns,
    programs::Programs,
};
use nix::sched::{CloneFlags, setns, unshare};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    mem::offset_of,
    net::{Ipv4Addr, UdpSocket},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const ROUNDS: usize = 3;
const BATCHES: usize = 10;
const PACKETS: usize = 100;
/// No packet is traced: the namespace with this number is nobody's.
const NO_NETNS: u32 = 0;
const NEVER: u32 = 1 << 30;

/// What the probes cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// A probe that a packet passes which is not traced.
    pub probe_ns: f64,
    /// An event of a packet that is traced, in addition.
    pub event_ns: f64,
    /// Time of a packet on loopback without probes, for comparison.
    pub packet_without_ns: f64,
    /// Probes that such a packet passes.
    pub probes: usize,
}

impl Cost {
    /// Cost that tracing adds to each packet that passes `probes` probes, if one in `sample` is traced.
    pub fn per_packet_ns(&self, probes: f64, sample: u32) -> f64 {
        probes * (self.probe_ns + self.event_ns / f64::from(sample.max(1)))
    }

    /// Measures on the calling thread, which is in another network namespace meanwhile.
    pub(super) fn measure() -> Result<Self, TraceError> {
        let failed = |e: io::Error| TraceError::Cost(e.to_string());
        let home = File::open("/proc/thread-self/ns/net").map_err(failed)?;
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| failed(e.into()))?;
        let measured = measure_here();
        // The thread must not go on in a namespace that nobody knows.
        setns(home, CloneFlags::CLONE_NEWNET).map_err(|e| failed(e.into()))?;
        measured
    }
}

fn measure_here() -> Result<Cost, TraceError> {
    let failed = |e: io::Error| TraceError::Cost(e.to_string());
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).stdin(Stdio::null()).status();
    if !up.map_err(failed)?.success() {
        return Err(TraceError::Cost("cannot set `lo` up in a network namespace of its own".to_owned()));
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(failed)?;
    let to = socket.local_addr().map_err(failed)?;
    let time = |after_batch: &mut dyn FnMut()| -> Result<Vec<f64>, TraceError> {
        let mut times = Vec::with_capacity(BATCHES);
        let mut buffer = [0; 64];
        for _ in 0..BATCHES {
            let began = Instant::now();
            for _ in 0..PACKETS {
                socket.send_to(&buffer[..18], to).and_then(|_| socket.recv(&mut buffer)).map_err(failed)?;
            }
            times.push(began.elapsed().as_nanos() as f64 / PACKETS as f64);
            after_batch();
        }
        Ok(times)
    };
    let netns = netns().map_err(failed)?;
    let mut idle = Programs::load(TracePlan { netns: NO_NETNS, sample: NEVER, ..TracePlan::default() }, &[])?;
    let mut tracing = Programs::load(TracePlan { netns, sample: 1, ..TracePlan::default() }, &[])?;
    let (mut events, mut packets) = (0, 0);
    let mut times: [Vec<f64>; 3] = Default::default();
    time(&mut || ())?;
    // In turns, so that what else happens on this machine meets all three alike.
    for _ in 0..ROUNDS {
        times[0].extend(time(&mut || ())?);
        idle.on()?;
        times[1].extend(time(&mut || ())?);
        idle.off()?;
        tracing.on()?;
        times[2].extend(time(&mut || {
            packets += PACKETS;
            events += tracing.take().iter().map(|record| events_of(record)).sum::<usize>();
        })?);
        tracing.off()?;
    }
    let [without, attached, traced] = times.map(|mut batches| {
        batches.sort_by(f64::total_cmp);
        // Other work on this CPU only makes batches longer.
        batches[batches.len() / 4]
    });
    let (probes, events) = (idle.on_loopback.max(1), events as f64 / packets as f64);
    Ok(Cost {
        probe_ns: ((attached - without) / probes as f64).max(0.0),
        event_ns: ((traced - attached) / events.max(1.0)).max(0.0),
        packet_without_ns: without,
        probes,
    })
}

fn events_of(record: &[u8]) -> usize {
    record.len().saturating_sub(offset_of!(TraceRecord, event)) / size_of::<TraceEvent>()
}

#[cfg(test)]
mod tests {
    use super::Cost;

    #[test]
    fn sampling_divides_the_cost_of_events_and_not_that_of_probes() {
        let cost = Cost { probe_ns: 5.0, event_ns: 64.0, ..Cost::default() };
        assert_eq!(cost.per_packet_ns(10.0, 1), 690.0);
        assert_eq!(cost.per_packet_ns(10.0, 64), 60.0);
    }
}
