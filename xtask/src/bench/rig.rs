//! A loaded router under the meter.

use crate::{
    bench::setting::{Family, Setting},
    napi::{PollThreads, RunTime, own_run_time, pin},
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_bpf::traffic::{Count, Generator, Sink};
use shunt_gen::Grid;
use shunt_lab::statistics::quantile;
use shunt_testkit::{Host, NetNs, Segment, Topology, wait_for};
use shunt_wire::line::FCS_BYTES;
use std::{
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    thread,
    time::{Duration, Instant},
};

/// Frames that the router finds at once: what a NAPI poll takes of a NIC under load.
const BATCH: u32 = 64;
/// How long a slice is: many batches, and less than what disturbs the machine lasts.
const SLICE: Duration = Duration::from_millis(10);
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

/// A router with ten rules between a generator and a sink; or a bridge without any.
#[derive(Debug)]
pub struct Rig<'a> {
    lab: &'a Topology,
    placement: Placement,
    setting: Setting,
    forward: Generator,
    shuffled: Option<Generator>,
    replies: Generator,
    sink: Sink,
    flows: u64,
    frame_bytes: u32,
    settled: Option<Threads>,
    bridged: bool,
}

/// Of the router's ports, and of the hosts.
type Threads = (Vec<PollThreads>, Vec<PollThreads>);

/// What was seen in one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// UDP flows.
    pub flows: u64,
    /// Bytes of a frame without FCS, as it comes to the router.
    pub frame_bytes: u32,
    /// Packets that the generator made.
    pub sent: u64,
    /// Packets that came to the sink.
    pub delivered: u64,
    /// Their bytes without FCS, as the sink saw them.
    pub delivered_bytes: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// The router's polling threads.
    pub router: RunTime,
    /// The hosts' polling threads.
    pub hosts: RunTime,
    /// The thread that made the packets.
    pub generator: RunTime,
    /// The share of the packets that the fast path sent, when there is one.
    pub fast_share: Option<f64>,
    /// The router's CPU time for one delivered packet, slice by slice.
    pub slices_ns_per_packet: Vec<f64>,
}

impl Sample {
    /// The router's CPU time for one delivered packet, in nanoseconds: what the best tenth of the slices took at most, because
    /// what else the machine does, and its neighbours do to its caches, only adds.
    pub fn ns_per_packet(&self) -> f64 {
        quantile(&self.slices_ns_per_packet, 0.1).unwrap_or(f64::NAN)
    }

    /// Delivered packets per second.
    pub fn packets_per_second(&self) -> f64 {
        self.delivered as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Takes a further turn of the same path in.
    pub fn add(&mut self, turn: Self) {
        self.sent += turn.sent;
        self.delivered += turn.delivered;
        self.delivered_bytes += turn.delivered_bytes;
        self.elapsed_ns += turn.elapsed_ns;
        self.router = self.router + turn.router;
        self.hosts = self.hosts + turn.hosts;
        self.generator = self.generator + turn.generator;
        self.slices_ns_per_packet.extend(turn.slices_ns_per_packet);
    }
}

/// The network that is measured: masquerade and ten rules.
pub fn topology() -> Topology {
    Setting::default().topology()
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
        Self::of(lab, Setting::default(), flows, placement)
    }

    /// The smallest packets of this many flows, in a network of this setting.
    pub fn of(lab: &'a Topology, setting: Setting, flows: u32, placement: Placement) -> anyhow::Result<Self> {
        let (lan, wan) = (lab.lan(), lab.wan());
        let forward = grid(lab, setting, flows)?;
        let bridged = is_bridged(lab);
        let router: IpAddr = match setting.family {
            Family::Ipv4 => wan.gateway_v4.into(),
            Family::Ipv6 => wan.gateway_v6.into(),
        };
        let translated = setting.nat && !bridged;
        let replies = Grid {
            near: if translated { (router, forward.near.port()).into() } else { forward.near },
            near_fixed: translated,
            reply: true,
            source_mac: wan.mac,
            destination_mac: if bridged { lan.mac } else { wan.gateway_mac },
            frame_bytes: setting.frame_bytes(wan.tags),
            ..forward.clone()
        };
        if !bridged {
            know_senders(lab, forward.near.ip(), forward.highs)?;
        }
        let sink = wan.ns.within(|| Sink::attach(wan.ns.ifindex(wan.nic)))?;
        Ok(Self {
            placement,
            setting,
            forward: generator(lan, &forward, None)?,
            shuffled: None,
            replies: generator(wan, &replies, None)?,
            sink,
            flows: forward.count(),
            frame_bytes: forward.frame_bytes - FCS_BYTES,
            settled: None,
            bridged,
            lab,
        })
    }

    /// Sends only so many of the flows from now on, the first ones, or more of them again.
    pub fn send_only(&mut self, flows: u32) -> anyhow::Result<()> {
        let forward = grid(self.lab, self.setting, flows)?;
        self.forward = generator(self.lab.lan(), &forward, None)?;
        self.flows = forward.count();
        Ok(())
    }

    /// While samples are taken the flows come in no order from now on, by this seed, and in turn as always else.
    pub fn shuffle(&mut self, seed: u64) -> anyhow::Result<()> {
        let forward = grid(self.lab, self.setting, u32::try_from(self.flows)?)?;
        self.shuffled = Some(generator(self.lab.lan(), &forward, Some(seed))?);
        Ok(())
    }

    /// How many flows there are.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// The router that is measured.
    pub fn router(&self) -> &'a NetNs {
        self.lab.router()
    }

    /// Packets that have come to the sink so far.
    pub fn delivered(&self) -> anyhow::Result<u64> {
        Ok(self.sink.count()?.packets)
    }

    /// Finds the polling threads and pins them where nothing is lost. To be called after programs were attached or
    /// detached, and before anything else.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.settled = Some(threads(self.lab, Placement::OneCpu)?);
        Ok(())
    }

    /// Pins the polling threads where they are to be measured.
    pub fn place(&mut self) -> anyhow::Result<()> {
        if self.placement != Placement::OneCpu {
            self.settled = Some(threads(self.lab, self.placement)?);
        }
        Ok(())
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

    /// Loads the router for this long, and looks at it slice by slice once every flow has sent a packet and caches hold what they can.
    pub fn sample(&mut self, duration: Duration) -> anyhow::Result<Sample> {
        let (router, hosts) = self.settled.as_ref().context("no polling threads")?;
        let run_time = |threads: &[PollThreads]| -> anyhow::Result<RunTime> {
            threads.iter().try_fold(RunTime::default(), |sum, t| Ok(sum + t.run_time()?))
        };
        let sink = &self.sink;
        let look = || -> anyhow::Result<(RunTime, Count)> { Ok((run_time(router)?, sink.count()?)) };
        let (start, hosts_start) = (look()?, run_time(hosts)?);
        let forward = self.shuffled.as_mut().unwrap_or(&mut self.forward);
        let (ns, placement, flows) = (&self.lab.lan().ns, self.placement, self.flows);
        let mut slices = Vec::new();
        let send = move || -> anyhow::Result<(u64, RunTime)> {
            let before = own_run_time()?;
            Ok((forward.run_for(duration)?, own_run_time()?.since(before)))
        };
        let (sent, generator) = thread::scope(|scope| -> anyhow::Result<_> {
            let generator = scope.spawn(move || inside(ns, placement, send));
            let mut before = start;
            while !generator.is_finished() {
                thread::sleep(SLICE);
                let now = look()?;
                let packets = now.1.packets - before.1.packets;
                if before.1.packets - start.1.packets >= flows && packets > SLICE_PACKETS_MIN {
                    slices.push(now.0.since(before.0).ran_ns as f64 / packets as f64);
                }
                before = now;
            }
            generator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
        })?;
        drained(sink, start.1.packets + sent)?;
        let end = look()?;
        Ok(Sample {
            flows: self.flows,
            frame_bytes: self.frame_bytes,
            sent,
            delivered: end.1.packets - start.1.packets,
            delivered_bytes: end.1.bytes - start.1.bytes,
            elapsed_ns: duration.as_nanos() as u64,
            router: end.0.since(start.0),
            hosts: run_time(hosts)?.since(hosts_start),
            generator,
            fast_share: None,
            slices_ns_per_packet: slices,
        })
    }

    /// The same with all packets counted and dropped where they come to the router.
    pub fn sample_without_router(&mut self, duration: Duration) -> anyhow::Result<Sample> {
        let (router, port) = (self.lab.router(), self.lab.lan().port);
        let sink = router.within(|| Sink::attach(router.ifindex(port)))?;
        self.settle()?;
        let usual = mem::replace(&mut self.sink, sink);
        let sample = self.sample(duration);
        self.sink = usual;
        sample
    }
}

/// The packets of so many flows from the LAN to the WAN.
fn grid(lab: &Topology, setting: Setting, flows: u32) -> anyhow::Result<Grid> {
    let (lan, wan) = (lab.lan(), lab.wan());
    let lows = u16::try_from(flows).map_or(LOWS, |flows| flows.min(LOWS));
    let highs = u16::try_from(flows / u32::from(lows)).context("too many flows")?;
    let far = match setting.family {
        Family::Ipv4 => wan.at(5000),
        Family::Ipv6 => wan.at6(5000),
    };
    let forward = lan.flows_to(far, lows, highs);
    let destination_mac = if is_bridged(lab) { wan.mac } else { forward.destination_mac };
    Ok(Grid { destination_mac, frame_bytes: setting.frame_bytes(lan.tags), ..forward })
}

fn is_bridged(lab: &Topology) -> bool {
    lab.lan().gateway_mac == lab.wan().gateway_mac
}

fn generator(host: &Host, flows: &Grid, shuffled: Option<u64>) -> anyhow::Result<Generator> {
    let ifindex = host.ns.ifindex(host.nic);
    let mut traffic = flows.traffic()?;
    traffic.shuffled = shuffled;
    traffic.packet = traffic.packet.with_tags(host.tags);
    let mut generator = host.ns.within(|| Generator::new(&traffic, ifindex))?;
    generator.set_batch(BATCH);
    Ok(generator)
}

/// The router knows the MAC address of all who send, so that it asks for none while it is measured.
fn know_senders(lab: &Topology, first: IpAddr, count: u16) -> anyhow::Result<()> {
    let Host { mac, gateway, .. } = lab.lan();
    let lines = (0..count).map(|nth| {
        let address: IpAddr = match first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + u32::from(nth)).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(nth)).into(),
        };
        format!("neigh replace {address} lladdr {mac} dev {gateway} nud permanent\n")
    });
    let lines: String = lines.collect();
    lab.router().try_run(&format!("echo '{lines}' | ip -batch -"))?;
    Ok(())
}

/// The polling threads of the router's ports and of the hosts, pinned.
pub fn threads(lab: &Topology, placement: Placement) -> anyhow::Result<Threads> {
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
