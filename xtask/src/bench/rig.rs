//! A loaded router under the meter.

use crate::{
    bench::record::median,
    napi::{PollThreads, RunTime, pin},
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_bpf::traffic::{Generator, Sink};
use shunt_gen::Grid;
use shunt_testkit::{NetNs, Segment, Topology, rulesets, wait_for};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Frames that the router finds at once: what a NAPI poll takes of a NIC under load.
const BATCH: u32 = 64;
/// How long a slice is.
const SLICE: Duration = Duration::from_millis(25);
/// Fewer packets than these make no slice: the generator was between two runs.
const SLICE_PACKETS_MIN: u64 = 1000;
/// Flows per near address.
const LOWS: u16 = 1000;

/// Where the router and everything else run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// One CPU for all. The router's threads go first, so each batch is forwarded to its end before the next is made:
    /// no losses, no partial batches, no cache traffic between CPUs.
    OneCpu,
    /// The router has CPU 1 for itself, and everything else is on CPU 0. Each side waits for the other at times, and
    /// rings overflow.
    TwoCpus,
}

/// A router with masquerade and ten rules between a generator and a sink; or a bridge without any.
#[derive(Debug)]
pub struct Rig<'a> {
    lab: &'a Topology,
    placement: Placement,
    forward: Generator,
    replies: Generator,
    sink: Sink,
    flows: u64,
    bridged: bool,
}

/// What was seen in one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// UDP flows, each of which sent in turn.
    pub flows: u64,
    /// Bytes of a frame without FCS.
    pub frame_bytes: usize,
    /// Packets that the generator made.
    pub sent: u64,
    /// Packets that came to the sink.
    pub delivered: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// The router's polling threads.
    pub router: RunTime,
    /// The hosts' polling threads.
    pub hosts: RunTime,
    /// Packets that the fast path sent, when there is one.
    pub fast: Option<u64>,
    /// The router's CPU time for one delivered packet, slice by slice.
    pub slices_ns_per_packet: Vec<f64>,
}

impl Sample {
    /// The router's CPU time for one delivered packet, in nanoseconds: the median of the slices, because what else the
    /// machine does comes in bursts.
    pub fn ns_per_packet(&self) -> f64 {
        median(&self.slices_ns_per_packet)
    }

    /// Delivered packets per second.
    pub fn packets_per_second(&self) -> f64 {
        self.delivered as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// The share of the delivered packets that the fast path sent.
    pub fn fast_share(&self) -> Option<f64> {
        Some(self.fast? as f64 / self.delivered.max(1) as f64)
    }
}

/// The network that is measured: masquerade and ten rules.
pub fn topology() -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::TEN_RULES);
    // Nothing may expire while something else is measured.
    for timeout in ["udp_timeout", "udp_timeout_stream"] {
        lab.router().sysctl(&format!("netfilter/nf_conntrack_{timeout}"), 600);
    }
    lab.pin_neighbours();
    lab
}

/// A bridge between the two hosts, and nobody who has iptables look at what it forwards.
pub fn bridge() -> Topology {
    let wan = Segment { label: "wan", nic: "wan0", port: "r1", ..Segment::SECOND_LAN };
    let lab = Topology::of(&[Segment::LAN.bridged("br0"), wan.bridged("br0")]);
    lab.router()
        .run("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo 0 > $f; done");
    lab.pin_neighbours();
    lab
}

impl<'a> Rig<'a> {
    /// 64-byte packets (60 without FCS) of this many flows.
    pub fn new(lab: &'a Topology, flows: u32, placement: Placement) -> anyhow::Result<Self> {
        let (lan, wan) = (lab.lan(), lab.wan());
        let lows = u16::try_from(flows).map_or(LOWS, |flows| flows.min(LOWS));
        let highs = u16::try_from(flows / u32::from(lows)).context("too many flows")?;
        let mut forward = lan.flows_to(wan.at(5000), lows, highs);
        let bridged = lan.gateway_mac == wan.gateway_mac;
        if bridged {
            forward.destination_mac = wan.mac;
        }
        let back = Grid { reply: true, source_mac: wan.mac, destination_mac: lan.mac, ..forward.clone() };
        let replies = if bridged {
            back
        } else {
            let near = (wan.gateway_v4, 1024).into();
            Grid { near, near_fixed: true, destination_mac: wan.gateway_mac, ..back }
        };
        let out = |ns: &NetNs, ifname: &str, flows: &Grid| -> anyhow::Result<Generator> {
            let ifindex = ns.ifindex(ifname);
            let traffic = flows.traffic()?;
            let mut generator = ns.within(|| Generator::new(&traffic, ifindex))?;
            generator.set_batch(BATCH);
            Ok(generator)
        };
        let sink = wan.ns.within(|| Sink::attach(wan.ns.ifindex(wan.nic)))?;
        Ok(Self {
            placement,
            forward: out(&lan.ns, lan.nic, &forward)?,
            replies: out(&wan.ns, wan.nic, &replies)?,
            sink,
            flows: forward.count(),
            bridged,
            lab,
        })
    }

    /// How many flows there are.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// Finds the polling threads and pins them where nothing is lost. To be called after programs were attached or
    /// detached, and before anything else.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        threads(self.lab, Placement::OneCpu).map(drop)
    }

    /// Sends both directions of every flow; conntrack then has them all as established, or the bridge knows both hosts.
    pub fn establish(&mut self) -> anyhow::Result<()> {
        let flows = self.flows;
        self.send(flows)?;
        let lab = self.lab;
        let replies = &mut self.replies;
        inside(&lab.wan().ns, Placement::OneCpu, || replies.run(flows))??;
        if self.bridged {
            return Ok(());
        }
        let count =
            || lab.router().run("cat /proc/sys/net/netfilter/nf_conntrack_count").trim().parse::<u64>().ok();
        let all = wait_for(Duration::from_secs(5), || count().filter(|count| *count >= flows));
        ensure!(all.is_some(), "conntrack has {:?} of {flows} connections", count());
        Ok(())
    }

    /// Sends this many packets through the router.
    pub fn send(&mut self, packets: u64) -> anyhow::Result<()> {
        let forward = &mut self.forward;
        let before = self.sink.count()?.packets;
        inside(&self.lab.lan().ns, Placement::OneCpu, || forward.run(packets))??;
        drained(&self.sink, before + packets)
    }

    /// Loads the router for about this long, and looks at it slice by slice.
    pub fn sample(&mut self, duration: Duration) -> anyhow::Result<Sample> {
        let (router, hosts) = threads(self.lab, self.placement)?;
        let run_time = |threads: &[PollThreads]| -> anyhow::Result<RunTime> {
            threads.iter().try_fold(RunTime::default(), |sum, t| Ok(sum + t.run_time()?))
        };
        let sink = &self.sink;
        let look = || -> anyhow::Result<(RunTime, u64)> { Ok((run_time(&router)?, sink.count()?.packets)) };
        let (start, hosts_start, begun) = (look()?, run_time(&hosts)?, Instant::now());
        let (forward, ns, placement) = (&mut self.forward, &self.lab.lan().ns, self.placement);
        let mut slices = Vec::new();
        let (sent, elapsed) = thread::scope(|scope| -> anyhow::Result<(u64, Duration)> {
            let generator = scope.spawn(move || inside(ns, placement, || forward.run_for(duration)));
            let mut before = start;
            while !generator.is_finished() {
                thread::sleep(SLICE);
                let now = look()?;
                let packets = now.1 - before.1;
                if packets > SLICE_PACKETS_MIN {
                    slices.push(now.0.since(before.0).ran_ns as f64 / packets as f64);
                }
                before = now;
            }
            let sent = generator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
            Ok((sent, begun.elapsed()))
        })?;
        drained(sink, start.1 + sent)?;
        let end = look()?;
        Ok(Sample {
            flows: self.flows,
            frame_bytes: 60,
            sent,
            delivered: end.1 - start.1,
            elapsed_ns: elapsed.as_nanos() as u64,
            router: end.0.since(start.0),
            hosts: run_time(&hosts)?.since(hosts_start),
            fast: None,
            slices_ns_per_packet: slices,
        })
    }
}

/// The polling threads of the router's ports and of the hosts, pinned.
pub fn threads(lab: &Topology, placement: Placement) -> anyhow::Result<(Vec<PollThreads>, Vec<PollThreads>)> {
    let (router_cpu, host_cpu) = placement.cpus();
    let of = |ns: &NetNs, ifname: &str, cpu: usize| -> anyhow::Result<PollThreads> {
        let threads = PollThreads::of(ns, ifname, cpu)?;
        if placement == Placement::OneCpu {
            threads.go_first()?;
        }
        Ok(threads)
    };
    for host in lab.hosts() {
        // A veth whose peer has TSO is not polled: its packets would go up on the CPU that sent them, the router's.
        host.ns.receive_on(host.nic, host_cpu);
    }
    let ports = lab.hosts().iter().map(|host| of(lab.router(), host.port, router_cpu));
    let nics = lab.hosts().iter().map(|host| of(&host.ns, host.nic, host_cpu));
    Ok((ports.collect::<Result<_, _>>()?, nics.collect::<Result<_, _>>()?))
}

impl Placement {
    /// The CPU of the router, and that of the hosts.
    pub const fn cpus(self) -> (usize, usize) {
        match self {
            Self::OneCpu => (0, 0),
            Self::TwoCpus => (1, 0),
        }
    }
}

fn inside<T: Send>(ns: &NetNs, placement: Placement, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    ns.within(|| {
        pin(0, placement.cpus().1)?;
        Ok(work())
    })
}

/// Waits until the sink has this many packets, or gets no more.
fn drained(sink: &Sink, packets: u64) -> anyhow::Result<()> {
    let mut last = sink.count()?.packets;
    let mut changed = Instant::now();
    while last < packets && changed.elapsed() < Duration::from_millis(30) {
        thread::sleep(Duration::from_millis(1));
        let now = sink.count()?.packets;
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    Ok(())
}
