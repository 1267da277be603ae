//! Probes that cross a router, alone or beside bulk traffic: how long they take, and how much leaves.

use crate::{
    reaction::probe_stream::{now, stamped_tap},
    rig::pinning::pin,
    rig::shunt::fast_packets,
};
use anyhow::{Context, bail};
use shunt_lab::statistics::quantile;
use shunt_testkit::{Shuntd, Tap, Topology};
use shunt_traffic::schedule;
use shunt_wire::Packet;
use std::{
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

/// Destination ports.
const PROBES: u16 = 5000;
const BULK: u16 = 5001;
/// DSCP EF.
const EXPEDITED: u8 = 46 << 2;
const BYTES: usize = 160;
const BULK_BYTES: usize = 1200;
const EVERY: Duration = Duration::from_millis(5);
/// Packets that still cross the router when the last one was sent.
const REST: Duration = Duration::from_millis(500);
/// Bulk traffic fills the queue before the probes begin.
const FILL: Duration = Duration::from_secs(1);
/// Longest wait for the next packet to be due, which bounds the size of bursts.
const NAP: Duration = Duration::from_millis(1);
const LESSONS: u32 = 400;

/// What left the router.
#[derive(Debug)]
pub struct ProbeFigures {
    /// One-way times of the probes, in microseconds.
    times_us: Vec<f64>,
    /// Probes that did not arrive.
    pub lost: usize,
    /// Frames without FCS, while probes were sent.
    pub bytes_per_s: f64,
}

impl ProbeFigures {
    /// The time that this share of the probes did not exceed.
    pub fn quantile_us(&self, share: f64) -> anyhow::Result<f64> {
        quantile(&self.times_us, share).context("no probe arrived")
    }
}

fn probe(lab: &Topology, number: u64) -> anyhow::Result<Packet> {
    let mut payload = [number.to_be_bytes(), now()?.to_be_bytes()].concat();
    payload.resize(BYTES, 0);
    Ok(lab.lan().udp_to(4000, lab.wan().at(PROBES)).with_class(EXPEDITED).payload(payload))
}

fn bulk(lab: &Topology) -> Packet {
    lab.lan().udp_to(4001, lab.wan().at(BULK)).payload([0; BULK_BYTES])
}

/// Sends packets of both flows until Shunt forwards them.
pub fn learn(lab: &Topology, shuntd: &Shuntd) -> anyhow::Result<()> {
    let tap = lab.lan().tap();
    for _ in 0..LESSONS {
        let before = fast_packets(shuntd)?;
        tap.send(&probe(lab, 0)?);
        tap.send(&bulk(lab));
        thread::sleep(Duration::from_millis(20));
        if fast_packets(shuntd)? >= before + 2 {
            return Ok(());
        }
    }
    bail!("Shunt does not forward the two flows: {:?}", shuntd.try_status()?.reasons)
}

/// Sends probes for a time, from one CPU, and bulk traffic of so many bytes of payload per second beside them.
pub fn send(
    lab: &Topology,
    cpu: usize,
    bulk_bytes_per_s: f64,
    time: Duration,
) -> anyhow::Result<ProbeFigures> {
    let (from, to) = (lab.lan().tap(), stamped_tap(lab.wan()));
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin(0, cpu)?;
            schedule::go_first()?;
            send_all(lab, &from, bulk_bytes_per_s, time)
        });
        pin(0, cpu)?;
        let seen = receive(&to, time);
        let sent = sender.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        let (times_us, bytes_per_s) = seen?;
        Ok(ProbeFigures { lost: sent - times_us.len().min(sent), times_us, bytes_per_s })
    })
}

/// Returns the number of probes sent.
fn send_all(lab: &Topology, from: &Tap, bulk_bytes_per_s: f64, time: Duration) -> anyhow::Result<usize> {
    let bulk = bulk(lab).to_bytes();
    let begun = Instant::now();
    let (mut probes, mut sent_bytes) = (0, 0.0);
    while begun.elapsed() < FILL + time {
        while sent_bytes < begun.elapsed().as_secs_f64() * bulk_bytes_per_s {
            from.send_bytes(&bulk);
            sent_bytes += BULK_BYTES as f64;
        }
        if begun.elapsed() >= FILL + EVERY * probes {
            from.send(&probe(lab, u64::from(probes) + 1)?);
            probes += 1;
        }
        thread::sleep(NAP);
    }
    Ok(probes as usize)
}

/// The probes' times, and the bytes per second after the queue was filled.
fn receive(to: &Tap, time: Duration) -> anyhow::Result<(Vec<f64>, f64)> {
    let (mut times_us, mut bytes, mut counted, mut last) = (Vec::new(), 0, None, Duration::ZERO);
    let wall_clock = || now().map(Duration::from_nanos);
    let count_from = wall_clock()? + FILL;
    let count_until = count_from + time;
    while wall_clock()? < count_until + REST {
        let Some((frame, arrived)) = to.next_stamped(Duration::from_millis(50)) else { continue };
        let Some(packet) = frame.packet() else { continue };
        let port = packet.destination().map(|end| end.port());
        if port == Some(PROBES) {
            let sent_ns =
                packet.payload.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let sent = Duration::from_nanos(sent_ns.context("a probe without its time")?);
            times_us.push(arrived.saturating_sub(sent).as_nanos() as f64 / 1e3);
        }
        if matches!(port, Some(PROBES | BULK)) && arrived >= count_from && arrived < count_until {
            // The first one only begins the count.
            if counted.is_some() {
                bytes += frame.bytes.len();
            }
            counted.get_or_insert(arrived);
            last = arrived;
        }
    }
    let span = last.saturating_sub(counted.context("nothing arrived")?);
    Ok((times_us, bytes as f64 / span.as_secs_f64()))
}
