//! The rig: a router between a generator and a sink, and the CPU time of its threads.

use crate::rig::{
    pinning::pin,
    sample::Sample,
    setting::{Family, Setting},
};
use anyhow::{Context, ensure};
use serde::Serialize;
use shunt_gen::Grid;
use shunt_lab::load::{PollThreads, RunTime};
use shunt_testkit::{Host, NetNs, Segment, Topology, wait_for};
use shunt_traffic::{Count, Generator, Sink};
use shunt_wire::line::FCS_BYTES;
use std::{
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    thread,
    time::{Duration, Instant},
};

/// Number of frames per batch: as many as a NAPI poll takes from a NIC under load.
pub const BATCH: u32 = 64;
/// Duration of a slice: many batches, and less than most disturbances of the machine.
const SLICE: Duration = Duration::from_millis(10);
/// A slice with fewer packets does not count: the generator was between two runs.
const SLICE_PACKETS_MIN: u64 = 1000;
/// Flows per near address.
const LOWS: u16 = 1000;

/// The CPUs of the router and of everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// One CPU for all. The router's threads have priority, so each batch is forwarded completely before the next is
    /// made: no losses, no partial batches, no cache traffic between CPUs.
    OneCpu,
    /// CPU 1 for the router and CPU 0 for everything else. The two sides wait for each other at times, and rings
    /// overflow.
    TwoCpus,
}

/// A router with ten rules, or a bridge without rules, between a generator and a sink.
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

/// Time between two bursts of [`Rig::sample_paced`].
const BURST: Duration = Duration::from_millis(2);

/// What packets at a given rate have cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paced {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// CPU time of the router's polling threads; 0 without them.
    pub router_ns: u64,
    /// CPU time of the hosts' polling threads; 0 without them.
    pub hosts_ns: u64,
    /// CPU time of the sending thread, with the softirqs that it ran.
    pub sender_ns: u64,
}

/// Polling threads of the router's ports, and of the hosts.
type Threads = (Vec<PollThreads>, Vec<PollThreads>);

/// The network of the bench: masquerade and ten rules.
pub fn topology() -> Topology {
    Setting::default().topology()
}

/// A bridge between the two hosts, with no iptables called for bridged packets.
pub fn bridge() -> Topology {
    let wan = Segment { label: "wan", nic: "wan0", port: "r1", ..Segment::SECOND_LAN };
    let lab = Topology::new(&[Segment::LAN.bridged("br0"), wan.bridged("br0")]);
    lab.router()
        .run("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo 0 > $f; done");
    lab.pin_neighbours();
    lab
}

impl<'a> Rig<'a> {
    /// A rig with 64-byte packets (60 without FCS) of this number of flows.
    pub fn new(lab: &'a Topology, flows: u32, placement: Placement) -> anyhow::Result<Self> {
        Self::with_setting(lab, Setting::default(), flows, placement)
    }

    /// A rig with the smallest packets of this number of flows, in a network with this setting.
    pub fn with_setting(
        lab: &'a Topology,
        setting: Setting,
        flows: u32,
        placement: Placement,
    ) -> anyhow::Result<Self> {
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

    /// Sends this number of flows from now on; the first ones if they are fewer.
    pub fn send_only(&mut self, flows: u32) -> anyhow::Result<()> {
        let forward = grid(self.lab, self.setting, flows)?;
        self.forward = generator(self.lab.lan(), &forward, None)?;
        self.flows = forward.count();
        Ok(())
    }

    /// Sends the flows of samples in a random order with this seed from now on; other packets still come in turn.
    pub fn shuffle(&mut self, seed: u64) -> anyhow::Result<()> {
        let forward = grid(self.lab, self.setting, u32::try_from(self.flows)?)?;
        self.shuffled = Some(generator(self.lab.lan(), &forward, Some(seed))?);
        Ok(())
    }

    /// Sends the flows of samples in turn from now on.
    pub fn in_turn(&mut self) {
        self.shuffled = None;
    }

    /// Number of flows.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// The router's namespace.
    pub fn router(&self) -> &'a NetNs {
        self.lab.router()
    }

    /// Number of packets that the sink has received.
    pub fn delivered(&self) -> anyhow::Result<u64> {
        Ok(self.sink.count()?.packets)
    }

    /// Finds the polling threads and pins them to one CPU, where nothing is lost. Call this first after attaching or
    /// detaching programs.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.settled = Some(threads(self.lab, Placement::OneCpu)?);
        Ok(())
    }

    /// Pins the polling threads as the placement says.
    pub fn place(&mut self) -> anyhow::Result<()> {
        if self.placement != Placement::OneCpu {
            self.settled = Some(threads(self.lab, self.placement)?);
        }
        Ok(())
    }

    /// Sends both directions of every flow, so that conntrack has all of them as established, or the bridge knows both
    /// hosts.
    pub fn establish(&mut self) -> anyhow::Result<()> {
        let flows = self.flows;
        self.send(flows)?;
        let lab = self.lab;
        let replies = &mut self.replies;
        pinned_in(&lab.wan().ns, Placement::OneCpu, || replies.run(flows))??;
        if self.bridged {
            return Ok(());
        }
        let count =
            || lab.router().run("cat /proc/sys/net/netfilter/nf_conntrack_count").trim().parse::<u64>().ok();
        let all = wait_for(Duration::from_secs(5), || count().filter(|count| *count >= flows));
        ensure!(all.is_some(), "conntrack has {:?} of {flows} connections", count());
        Ok(())
    }

    /// Sends this number of packets through the router.
    pub fn send(&mut self, packets: u64) -> anyhow::Result<()> {
        let forward = &mut self.forward;
        let before = self.sink.count()?.packets;
        pinned_in(&self.lab.lan().ns, Placement::OneCpu, || forward.run(packets))??;
        drained(&self.sink, before + packets)
    }

    /// Loads the router for this time. Slices are recorded after every flow has sent a packet and the caches are warm.
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
            let before = RunTime::of_this_thread()?;
            Ok((forward.run_for(duration)?, RunTime::of_this_thread()?.since(before)))
        };
        let (sent, generator) = thread::scope(|scope| -> anyhow::Result<_> {
            let generator = scope.spawn(move || pinned_in(ns, placement, send));
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
            engine: None,
            slices_ns_per_packet: slices,
        })
    }

    /// Sends frames of this size, with FCS, from now on.
    pub fn send_frames_of(&mut self, frame_bytes: u32) -> anyhow::Result<()> {
        let flows = u32::try_from(self.flows)?;
        let forward = Grid { frame_bytes, ..grid(self.lab, self.setting, flows)? };
        self.forward = generator(self.lab.lan(), &forward, None)?;
        self.frame_bytes = frame_bytes - FCS_BYTES;
        Ok(())
    }

    /// Lets softirqs poll all devices instead of threads. Call this after [`Rig::settle`].
    pub fn poll_in_softirqs(&mut self) -> anyhow::Result<()> {
        self.settled = None;
        for host in self.lab.hosts() {
            for (ns, name) in [(self.lab.router(), host.port), (&host.ns, host.nic)] {
                ns.try_run(&format!("echo 0 > /sys/class/net/{name}/threaded"))?;
            }
        }
        Ok(())
    }

    /// Sends so many packets a second, in bursts of some milliseconds.
    pub fn sample_paced(&mut self, packets_per_s: u64, duration: Duration) -> anyhow::Result<Paced> {
        let threads = |which: fn(&Threads) -> &Vec<PollThreads>| -> anyhow::Result<u64> {
            let Some(settled) = &self.settled else { return Ok(0) };
            which(settled).iter().try_fold(0, |sum, threads| Ok(sum + threads.run_time()?.ran_ns))
        };
        let router = || threads(|(router, _)| router);
        let hosts = || threads(|(_, hosts)| hosts);
        let (before, router_before, hosts_before) = (self.sink.count()?.packets, router()?, hosts()?);
        let forward = &mut self.forward;
        let burst = ((packets_per_s as f64 * BURST.as_secs_f64()) as u32).max(1);
        let send = || -> anyhow::Result<(u64, u64)> {
            let (start, cpu) = (Instant::now(), RunTime::of_this_thread()?);
            let mut sent = 0;
            while start.elapsed() < duration {
                forward.burst(burst)?;
                sent += u64::from(burst);
                let due = start + Duration::from_secs_f64(sent as f64 / packets_per_s as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok((sent, RunTime::of_this_thread()?.since(cpu).ran_ns))
        };
        let (sent, sender_ns) = pinned_in(&self.lab.lan().ns, Placement::OneCpu, send)??;
        drained(&self.sink, before + sent)?;
        let packets = self.sink.count()?.packets - before;
        Ok(Paced {
            sent,
            packets,
            router_ns: router()? - router_before,
            hosts_ns: hosts()? - hosts_before,
            sender_ns,
        })
    }

    /// As [`Rig::sample`], with all packets counted and dropped at the router's first port.
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

/// The packets of this number of flows from the LAN to the WAN.
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

/// Gives the router permanent neighbour entries for all senders, so that it sends no ARP requests during a run.
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
        let threads = PollThreads::start(ns, ifname)?;
        for id in threads.ids() {
            pin(*id, cpu)?;
        }
        if placement == Placement::OneCpu {
            threads.go_first()?;
        }
        Ok(threads)
    };
    for host in lab.hosts() {
        // A veth whose peer has TSO is not polled. Without RPS its packets would be received on the CPU that sent them,
        // which is the router's.
        host.ns.receive_on(host.nic, host_cpu);
    }
    let ports = lab.hosts().iter().map(|host| of(lab.router(), host.port, router_cpu));
    let nics = lab.hosts().iter().map(|host| of(&host.ns, host.nic, host_cpu));
    Ok((ports.collect::<Result<_, _>>()?, nics.collect::<Result<_, _>>()?))
}

impl Placement {
    /// The CPU of the router and the CPU of the hosts.
    pub const fn cpus(self) -> (usize, usize) {
        match self {
            Self::OneCpu => (0, 0),
            Self::TwoCpus => (1, 0),
        }
    }
}

/// Runs `work` in a namespace, on the CPU of the hosts. Programs that it starts stay there.
pub fn pinned_in<T: Send>(
    ns: &NetNs,
    placement: Placement,
    work: impl FnOnce() -> T + Send,
) -> anyhow::Result<T> {
    ns.within(|| {
        pin(0, placement.cpus().1)?;
        Ok(work())
    })
}

/// Waits until the sink has received this many packets, or receives no more.
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
