//! TCP connections through a router: both ends of each are the lab's own, so that each segment, loss and time is known.
//!
//! Engines are measured in turn, each in a new router, and again for each run.

mod router;
mod saving;
mod wire;

pub use router::Tracked;

use crate::{
    Distribution, Doubt, Nic, Progress, Results, ResultsFile,
    throughput::{Engine, RunningShunt},
    traffic::{Error, Testbed, TrafficSpec, require_root},
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use shunt_gen::{
    Addresses, Ports, Shape, Sizes,
    tcp::{Failures, Fleet, FleetSpec, Outcome, Profile, Way},
};
use shunt_wire::{Tcp, line::IpVersion};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use wire::Ran;

/// The name of this measurement in files of results.
pub const WHAT: &str = "TCP connections";

/// A frame of an MTU of 1500, FCS included.
const FRAME_BYTES: u32 = 1518;
const MTU: u16 = 1500;
const TCP_HEADER_BYTES: u16 = 20;
/// A sender that opened connections at less than this share of the rate was too slow.
const OPENED_WANTED: f64 = 0.99;

/// The plan of a measurement.
#[derive(Debug, Clone)]
pub struct TcpPlan {
    /// What each connection carries.
    pub profile: Profile,
    /// Number of connections.
    pub connections: u32,
    /// Connections opened per second.
    pub per_second: f64,
    /// The version of IP.
    pub ip: IpVersion,
    /// Whether a router of our own masquerades.
    pub nat: bool,
    /// Time without an acknowledgement after which a connection is given up.
    pub patience: Duration,
    /// The test bed.
    pub testbed: Testbed,
    /// Engines in a router of our own, by name; None for Linux without Shunt.
    pub engines: Vec<(String, Option<Engine>)>,
    /// Number of runs of each engine.
    pub runs: u32,
    /// Seed of sizes and sequence numbers.
    pub seed: u64,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The routers, in the order in which they were measured.
    pub routers: Vec<Measured>,
    /// All readings, with doubts and conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// The measurement of a router in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the router: the engine, or `dut`.
    pub device: String,
    /// Number of this run of the router, from 1.
    pub run: u32,
    /// Time from the first SYN to the end of the last connection, in seconds.
    pub seconds: f64,
    /// Connections opened per second, as asked.
    pub per_second: f64,
    /// Connections whose SYN was sent.
    pub opened: u64,
    /// Connections whose handshake the client has completed.
    pub established: u64,
    /// Connections with all requests and responses, closed by FIN of both ends.
    pub completed: u64,
    /// Connections that ended otherwise.
    pub failed: FailedConnections,
    /// Connections that were neither complete nor failed when the run was interrupted.
    pub unfinished: u64,
    /// Most connections that were open at once.
    pub open_most: u64,
    /// From clients to the server.
    pub to_server: SegmentCounts,
    /// From the server to clients.
    pub to_client: SegmentCounts,
    /// Segments that arrived and fit no connection.
    pub stray: u64,
    /// Times from SYN to the answer; absent without an established connection.
    pub handshake: Option<Distribution>,
    /// Times from a request to the last byte of its response; absent without one.
    pub exchange: Option<Distribution>,
    /// What conntrack of a router of our own says; absent for other routers.
    pub tracked: Option<Tracked>,
    /// Share of the packets on the fast path; absent without an engine.
    pub fast_share: Option<f64>,
    /// Reasons why the figures may be wrong.
    pub doubts: Vec<Doubt>,
}

/// Failed connections, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedConnections {
    /// A reset or an ICMP error answered the SYN.
    pub refused: u64,
    /// A reset ended an established connection.
    pub reset: u64,
    /// No answer to the SYN.
    pub unanswered: u64,
    /// An established connection whose segments were no longer acknowledged.
    pub silent: u64,
    /// Bytes arrived in a place where they were not sent.
    pub corrupted: u64,
}

/// The segments of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounts {
    /// Segments sent.
    pub sent: u64,
    /// Segments that did not arrive.
    pub lost: u64,
    /// Segments sent that repeat bytes, SYN or FIN.
    pub retransmitted: u64,
    /// Bytes of payload that arrived, each counted once.
    pub bytes: u64,
}

impl FailedConnections {
    /// Number of failed connections.
    pub fn sum(&self) -> u64 {
        self.refused + self.reset + self.unanswered + self.silent + self.corrupted
    }
}

impl From<Failures> for FailedConnections {
    fn from(Failures { refused, reset, unanswered, silent, corrupted }: Failures) -> Self {
        Self { refused, reset, unanswered, silent, corrupted }
    }
}

impl SegmentCounts {
    /// `missed` segments arrived and could not be read.
    fn new(way: &Way, missed: u64) -> Self {
        let Way { sent, retransmitted, bytes, .. } = *way;
        Self { sent, lost: way.lost().saturating_sub(missed), retransmitted, bytes }
    }
}

impl TcpPlan {
    /// Measures each router in turn, `runs` times. When `stop` is set, the report has the figures until then.
    ///
    /// # Errors
    /// Fails if the request is not possible, the machine refuses, or the file cannot be written. The setup is undone,
    /// and finished runs stay in the file.
    pub fn perform(
        &self,
        mut file: ResultsFile,
        stop: &AtomicBool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        require_root()?;
        let total = u64::from(self.runs) * self.engines.len() as u64;
        let turns = (1..=self.runs).flat_map(|run| self.engines.iter().map(move |engine| (run, engine)));
        let mut routers = Vec::new();
        for (done, (run, (device, engine))) in (0..).zip(turns) {
            if stop.load(Ordering::Relaxed) && !routers.is_empty() {
                break;
            }
            show(Progress { done, total, now: device.clone() });
            let measured = self.measure(device, run, engine.as_ref(), &mut file, stop)?;
            measured.save(&mut file)?;
            file.save()?;
            routers.push(measured);
        }
        let results = file.end(!stop.load(Ordering::Relaxed))?;
        Ok(Report { routers, results })
    }

    fn measure(
        &self,
        device: &str,
        run: u32,
        engine: Option<&Engine>,
        file: &mut ResultsFile,
        stop: &AtomicBool,
    ) -> Result<Measured, Error> {
        let spec = self.frames()?;
        let network = self.testbed.network(&spec)?;
        let (near, far) = network.stations(&spec)?;
        let nics = [&near, &far].map(|station| station.within(|| Nic::read(&station.ifname)));
        let own = network.router();
        if let Some(router) = own {
            router::set_up(router, self.nat)?;
        }
        let up = RunningShunt::new(own, engine)?;
        let before = own.map(Tracked::read).transpose()?;
        let any = spec.shape.source.first;
        let fleet = self.fleet(near.address_like(any)?, far.address_like(any)?, run);
        let ran = wire::run(fleet, [&near, &far], stop)?;
        let tracked = own.map(Tracked::read).transpose()?;
        let tracked = tracked.zip(before).map(|(after, before)| after.since(before));
        let packets = up.as_ref().map(RunningShunt::packets).transpose()?;
        let fast_share = packets.map(|(fast, all)| fast as f64 / all.max(1) as f64);
        up.map_or(Ok(()), RunningShunt::down)?;
        let virtual_links = nics.iter().any(|nic| nic.driver.as_deref() == Some("veth"));
        file.set_nics(&nics);
        let mut measured = self.measured(device, run, ran, tracked, fast_share);
        measured.doubts.extend(virtual_links.then_some(Doubt::VirtualLinks));
        measured.doubts.extend(stop.load(Ordering::Relaxed).then_some(Doubt::Interrupted));
        Ok(measured)
    }

    /// The traffic by which the test bed is set up.
    fn frames(&self) -> Result<TrafficSpec, Error> {
        let own: IpAddr = match self.ip {
            IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
            IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut shape = Shape::udp((own, 0).into(), (own, 0).into(), Sizes::fixed(FRAME_BYTES)?);
        shape.tcp = Some(Tcp::ACK);
        (shape.source, shape.destination) = (Addresses::one(own), Addresses::one(own));
        (shape.source_ports, shape.destination_ports) = (Fleet::client_ports(), Ports::one(0));
        Ok(TrafficSpec { both: true, ..TrafficSpec::for_shape(shape) })
    }

    fn fleet(&self, client: IpAddr, server: IpAddr, run: u32) -> FleetSpec {
        let Self { profile, connections, per_second, patience, seed, .. } = *self;
        let ip_header_bytes = if client.is_ipv4() { 20 } else { 40 };
        let segment_bytes = MTU - ip_header_bytes - TCP_HEADER_BYTES;
        FleetSpec { profile, connections, per_second, client, server, segment_bytes, patience, seed, run }
    }

    fn measured(
        &self,
        device: &str,
        run: u32,
        Ran { outcome, took, missed, opening }: Ran,
        tracked: Option<Tracked>,
        fast_share: Option<f64>,
    ) -> Measured {
        let unfinished = outcome.unfinished();
        let Outcome { opened, established, completed, failed, open_most, stray, .. } = outcome;
        let mut doubts: Vec<Doubt> = fast_share.and_then(Doubt::slow_path).into_iter().collect();
        let achieved = (opened.max(2) - 1) as f64 / opening.as_secs_f64().max(1e-9) / self.per_second;
        if opened > 1 && achieved < OPENED_WANTED {
            doubts.push(Doubt::SentLess { percent: achieved * 100.0 });
        }
        let connections = failed.sum();
        doubts.extend((connections > 0).then_some(Doubt::ConnectionsFailed { connections }));
        let missed_all: u64 = missed.iter().sum();
        doubts.extend((missed_all > 0).then_some(Doubt::ReceiverOverrun { frames: missed_all }));
        if let Some(tracked) = tracked.filter(|tracked| connections == 0 && tracked.connections != opened) {
            let percent = tracked.connections.abs_diff(opened) as f64 / opened.max(1) as f64 * 100.0;
            doubts.push(Doubt::ConntrackDiffers { percent });
        }
        Measured {
            device: device.to_owned(),
            run,
            seconds: took.as_secs_f64(),
            per_second: self.per_second,
            opened,
            established,
            completed,
            failed: failed.into(),
            unfinished,
            open_most,
            to_server: SegmentCounts::new(&outcome.to_server, missed[1]),
            to_client: SegmentCounts::new(&outcome.to_client, missed[0]),
            stray,
            handshake: distribution(&outcome.handshake_ns),
            exchange: distribution(&outcome.exchange_ns),
            tracked,
            fast_share,
            doubts,
        }
    }
}

fn distribution(times: &[u64]) -> Option<Distribution> {
    let mut histogram = Histogram::new(3).ok()?;
    times.iter().try_for_each(|ns| histogram.record(*ns)).ok()?;
    Distribution::from_histogram("ns", &histogram)
}
