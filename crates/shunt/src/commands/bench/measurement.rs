//! The measurements of a router: what was typed, and what it resolves to.
//!
//! A new measurement is a folder with its arguments, its [`Measurement`] and its view, and a line here.

use super::{
    card::{CardArgs, CardBench},
    goodput::{GoodputBench, MatrixArgs, MatrixBench, RxtxArgs, RxtxBench},
    latency::{LatencyArgs, LatencyBench},
    nat::{NatArgs, NatBench},
    ndr::{NdrArgs, NdrBench},
    size::{SizeArgs, SizeBench},
    sweep::{SweepArgs, SweepBench},
    tcp::{TcpArgs, TcpBench},
};
use crate::commands::measure::Measurement;
use clap::{Parser, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    /// Make a router card: the figures that describe a router, in one file of results and one page.
    ///
    /// A card has the throughput without loss (NDR) and with at most 0.5 % loss (PDR) of 64-byte frames and of IMIX,
    /// the rate of new connections, whether the router holds a number of connections, and, at half the NDR of IMIX,
    /// latency and CPU time per packet. Each round measures all of them once, for one router after the other. The card
    /// also has the machine, its kernel, and how fast and how busy the machine was. A figure that cannot be measured is
    /// `cannot tell`, with the reason. `shunt compare` and `shunt report` show how two cards differ: their intervals
    /// hold for all figures together. Ctrl-C ends the measurement and keeps the figures so far.
    Card(CardArgs),
    /// Search for the highest load without loss (NDR) and with at most 0.5 % loss (PDR), by MLRsearch (RFC 9971).
    ///
    /// The search uses the settings of FD.io CSIT: trials of 1 s, 21 s for each load, of which half may exceed the loss
    /// ratio, and bounds within 0.5 % of the upper bound. The first trial, at the maximum load, is a warm-up and is not
    /// kept. Loads are frames/s of one direction. If more than 0.1 % of a trial's frames were not sent, they count as
    /// lost. A sender that other work of this machine holds up leaves out the frames due then, and the trial is
    /// repeated; if the sender is held up in each attempt at the upper bound, the result is `cannot tell`. After the
    /// search, latency is measured at 10, 50 and 90 % of the result for the last goal.
    Ndr(NdrArgs),
    /// Measure a stateful NAT as RFC 9693 says: connection establishment and tear-down rates, the capacity of the
    /// connection tracking table, and throughput by number of sessions.
    ///
    /// The initiator sends one UDP frame of each connection, with source and destination ports in a pseudo-random
    /// order. The responder notes the addresses and ports that arrive, and answers only those. A connection is
    /// established if its frame arrived translated and its answer came back to the port that it belongs to. Throughput
    /// is that of frames of established connections, both ways at once, in another pseudo-random order; it counts only
    /// if all sessions still answer afterwards. The table is emptied before each measurement and each trial of a rate.
    /// With the router in a namespace, connections do not time out, and conntrack's count is compared with what was
    /// established.
    Nat(NatArgs),
    /// Open TCP connections through a router, exchange requests and responses on them, and close them: completed and
    /// failed connections, lost and repeated segments, and the times of handshakes and exchanges.
    ///
    /// Both ends are Shunt's own: clients at the first port, servers at the second. They send SYN, data with right
    /// sequence and acknowledgement numbers and windows, and FIN, repeat lost segments as TCP does, and check each byte
    /// that arrives. A connection is complete if all of its bytes arrived and both ends were closed; failed ones are
    /// counted by cause: refused, reset, not answered, no longer acknowledged, wrong bytes. A SYN is repeated after
    /// 250 ms, then after twice that time. With the router in a namespace, conntrack checks windows, the firewall drops
    /// packets that it finds invalid, and the report has conntrack's counts.
    Tcp(TcpArgs),
    /// Measure the forwarding rate at maximum offered load (MRR) for each frame size, and how much the size matters.
    ///
    /// The generator sends as fast as it can, or as fast as the line carries; frames that arrive are counted. All sizes
    /// are measured with one engine, then with the next, and so on again for each run.
    Size(SizeArgs),
    /// Send UDP at increasing rates, and find the rate from which on a router loses packets, and which counters rise
    /// with the loss.
    ///
    /// Each step lists the counters that changed: those of `ethtool -S`, pause frames, /proc/net/dev and softnet_stat.
    /// A counter that was seen to wrap at 16 or 32 bits is marked; its increase is known only modulo that width. A step
    /// whose sender was held up by other work of this machine is repeated, and, if that does not help, not used.
    Sweep(SweepArgs),
    /// Measure TCP and UDP goodput with iperf3, and the CPU load, for each engine: IPv4 and IPv6, with and without NAT
    /// and VLAN, each way and both ways at once.
    ///
    /// Goodput is payload that arrived. UDP packets fill frames of an MTU of 1500; the offered rate is what the sender
    /// can do, or what the line of --speed carries. CPU load is the load of this whole machine, including the hosts,
    /// measured by the meter of `shunt load`, whose threads use the time that nothing else needs; the table shows
    /// /proc/stat's figure next to it. The engines are measured in turn. If this machine lacks something, such as VLAN
    /// devices, the report says what and why. Needs iperf3 3.11 or later.
    Matrix(MatrixArgs),
    /// Compare settings: TCP goodput each way, and UDP loss each way at a fixed rate, for one variant after the other,
    /// in turn.
    ///
    /// For each run of a variant, a LAN host (lan0), a router (r0 and r1) and a WAN host (wan0) are made in new
    /// namespaces. The shell runs the variant's command in the namespace of the router, before `shunt up` if there is
    /// an engine. $SHUNT_ROUTER, $SHUNT_LAN and $SHUNT_WAN name the namespaces; to change a host, use `ip netns exec
    /// $SHUNT_LAN ethtool ...`. Changes to interfaces disappear with the namespaces; other changes to the machine, such
    /// as a module parameter, are not undone. With --tx and --rx the command runs on this machine, and changes that it
    /// makes to the router, by `ssh` or otherwise, stay until the next variant changes them. Gains and losses are
    /// reported against the first variant, as `shunt compare` does. Needs iperf3 3.11 or later.
    Rxtx(RxtxArgs),
    /// Measure latency under load: the round-trip time of small UDP packets before, while and after TCP fills the
    /// router.
    ///
    /// A probe is sent every 5 ms, and the host at the other end sends it back. iperf3 loads the router with several
    /// TCP streams. The engines are measured in turn. Round-trip times include the time that both hosts take to wake
    /// up; on virtual links, hosts and router share the CPUs. `shunt report` draws the results over time. Needs iperf3
    /// 3.11 or later.
    Latency(LatencyArgs),
}

/// Parses the words after `shunt bench`, for steps of a campaign.
#[derive(Debug, Parser)]
#[command(name = "bench", no_binary_name = true, disable_help_subcommand = true)]
pub(super) struct BenchParser {
    #[command(subcommand)]
    pub(super) command: MeasureCommand,
}

impl MeasureCommand {
    pub(crate) fn resolve(&self) -> anyhow::Result<Box<dyn Measurement>> {
        Ok(match self {
            Self::Card(card) => Box::new(CardBench::resolve(card)?),
            Self::Ndr(ndr) => Box::new(NdrBench::resolve(ndr)?),
            Self::Nat(nat) => Box::new(NatBench::resolve(nat)?),
            Self::Tcp(tcp) => Box::new(TcpBench::resolve(tcp)?),
            Self::Size(size) => Box::new(SizeBench::resolve(size)?),
            Self::Sweep(sweep) => Box::new(SweepBench::resolve(sweep)?),
            Self::Matrix(matrix) => Box::new(MatrixBench(GoodputBench::resolve_matrix(matrix)?)),
            Self::Rxtx(rxtx) => Box::new(RxtxBench(GoodputBench::resolve_rxtx(rxtx)?)),
            Self::Latency(latency) => Box::new(LatencyBench::resolve(latency)?),
        })
    }
}
