//! The arguments of `shunt gen`.
//!
//! Without --tx and --rx, the traffic crosses a Linux router between a LAN host and a WAN host, all three in network
//! namespaces that are made for the run.

use super::{packets::PacketArgs, streams::StreamDefaults};
use crate::{
    client::candidates,
    commands::arguments::{address, duration},
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use shunt_gen::{FrameSizes, Rate};
use shunt_lab::traffic::{
    Nics, PcapOut, Replay, SendMethod, SendMethodChoice, StreamsSpec, Testbed, TrafficSpec,
};
use shunt_wire::{Mac, line::LinkSpeed};
use std::{net::IpAddr, path::PathBuf, time::Duration};

const DURATION: Duration = Duration::from_secs(2);
const DEFAULT_RATE: Rate = Rate::Pps(10_000.0);

/// Send traffic through a router and account for every packet: loss, duplicates, order, latency.
#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    /// Offered rate in each direction: 100kpps, 300M or 300Mbps (frames with FCS), 1GbitL1 (with preamble and gap), 80%
    /// of the link speed, or max [default: 10kpps; with --pcap-in, the timing of the capture].
    #[arg(long, help_heading = "Traffic")]
    pub(super) rate: Option<Rate>,
    /// Duration [default: 2s; with --count or --pcap-in, until all packets are sent].
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = duration, help_heading = "Traffic")]
    time: Option<Duration>,
    /// Number of packets in each direction.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Traffic")]
    count: Option<u64>,
    /// Frame size with FCS, 64 to 9018: one size, imix (7 of the least size, 4 of 570, 1 of 1518), or as
    /// 64:7,570:4,1518:1 [default: the least that has room: 64, or 78 for UDP over IPv6].
    #[arg(long, help_heading = "Traffic")]
    size: Option<FrameSizes>,
    /// Number of packets sent back to back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Traffic")]
    burst: u32,
    /// Duration of the traffic before the measurement; it is not counted.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration, help_heading = "Traffic")]
    warm_up: Duration,
    /// Send in both directions at once.
    #[arg(long, help_heading = "Traffic")]
    both: bool,
    #[command(flatten)]
    packets: PacketArgs,
    /// The sending device: measure whatever connects it to --rx, instead of a router in a namespace.
    #[arg(long, value_name = "DEV", add = ArgValueCandidates::new(candidates::devices), requires = "rx", help_heading = "The router to measure")]
    tx: Option<String>,
    /// The receiving device.
    #[arg(long, value_name = "DEV", add = ArgValueCandidates::new(candidates::devices), requires = "tx", help_heading = "The router to measure")]
    rx: Option<String>,
    /// The router's address on the link of --tx. Without it, frames are addressed to the MAC of --rx, for a cable or a
    /// bridge.
    #[arg(long, value_name = "ADDRESS", requires = "tx", help_heading = "The router to measure", value_parser = address)]
    gateway: Option<IpAddr>,
    /// The router's address on the link of --rx; needed for --both.
    #[arg(long, value_name = "ADDRESS", requires = "rx", help_heading = "The router to measure", value_parser = address)]
    rx_gateway: Option<IpAddr>,
    /// The destination MAC of frames from --tx, instead of resolving it by ARP or ND.
    #[arg(long, value_name = "MAC", requires = "tx", help_heading = "The router to measure")]
    dmac: Option<Mac>,
    /// The speed of the link, if the device does not report it.
    #[arg(long, value_name = "SPEED", help_heading = "The router to measure")]
    speed: Option<LinkSpeed>,
    /// How packets are sent: as live XDP frames, which is faster, or by a socket, which works with any device and frame
    /// size.
    #[arg(long, default_value = "auto", value_parser = ["auto", "xdp", "socket"], help_heading = "Traffic")]
    sender: String,
    /// Do not measure the latency that the generator itself adds.
    #[arg(long, help_heading = "Traffic")]
    no_floor: bool,
    /// Send the frames of this capture, pcap or pcapng, from --tx to --rx. With --gateway, frames are addressed to the
    /// MAC of the router; otherwise they are sent unchanged. Received frames count if they are of the same kind as the
    /// sent frames: EtherType, protocol, and ICMP type.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "burst", "warm_up", "both", "ipv6", "tcp", "vlans", "src", "dst",
        "sport", "dport", "flows", "shuffle", "ttl", "dscp", "no_checksum"], help_heading = "Captures")]
    pub(super) pcap_in: Option<PathBuf>,
    /// Replay the capture at this multiple of its speed; 1 keeps its timing.
    #[arg(long, value_name = "N", requires = "pcap_in", conflicts_with = "rate", value_parser = positive, help_heading = "Captures")]
    pub(super) multiplier: Option<f64>,
    /// Replay the capture this many times, one after the other.
    #[arg(long, value_name = "N", requires = "pcap_in", default_value_t = 1, conflicts_with_all = ["time", "count"],
        value_parser = clap::value_parser!(u32).range(1..), help_heading = "Captures")]
    pub(super) r#loop: u32,
    /// Write the frames of this traffic that --rx receives to this file: pcap with nanosecond timestamps.
    #[arg(long, value_name = "FILE", conflicts_with = "both", help_heading = "Captures")]
    pcap_out: Option<PathBuf>,
    /// Largest number of frames in --pcap-out; they are held in memory until the end.
    #[arg(
        long,
        value_name = "N",
        requires = "pcap_out",
        default_value_t = 100_000,
        help_heading = "Captures"
    )]
    pcap_limit: u64,
    /// Send the streams of this file, TOML, all at once: each [[stream]] has a name, options of `Packets`, a rate, and
    /// a ramp (docs/guide/streams.md).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "count", "size", "burst", "both", "ipv6", "tcp", "vlans", "src",
        "dst", "sport", "dport", "flows", "shuffle", "ttl", "dscp", "no_checksum", "pcap_in", "pcap_out", "script"], help_heading = "Streams")]
    pub(super) streams: Option<PathBuf>,
    /// Read requests from this file, or from standard input if it is -: JSON, one request a line, each answered by a
    /// line. Requests start, change and stop streams and read their counters; the end of the file stops all of them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "time", "warm_up", "count", "size", "burst", "both", "ipv6", "tcp",
        "vlans", "src", "dst", "sport", "dport", "flows", "shuffle", "ttl", "dscp", "no_checksum", "pcap_in", "pcap_out", "keep"],
        help_heading = "Streams")]
    pub(super) script: Option<PathBuf>,
    /// Number of CPUs that send the streams of each direction; each stream is sent by one CPU.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32), help_heading = "Streams")]
    cpus: u32,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
}

impl GenArgs {
    /// The traffic, and the devices between which it is sent. `replay` is the capture of --pcap-in.
    pub(super) fn traffic(&self, replay: Option<Replay>) -> Result<(TrafficSpec, Testbed), String> {
        let shape = self.packets.shape(self.size.as_ref())?;
        let testbed = self.testbed();
        // The router in a namespace takes the tags of the LAN off.
        let far_tags = if testbed == Testbed::Own { Vec::new() } else { shape.tags.clone() };
        let bounded = self.count.is_some() || replay.is_some();
        let spec = TrafficSpec {
            shape,
            far_tags,
            rate: self.rate.unwrap_or(DEFAULT_RATE),
            speed: self.speed,
            duration: self.time.or(if bounded { None } else { Some(DURATION) }),
            packets: self.count,
            warm_up: if replay.is_some() { Duration::ZERO } else { self.warm_up },
            burst: self.burst,
            both: self.both,
            method: self.method(),
            floor: !self.no_floor && replay.is_none(),
            replay,
            answered: false,
            nat: false,
            mtu: None,
            pcap_out: self.pcap_out.clone().map(|path| PcapOut { path, limit: self.pcap_limit }),
        };
        Ok((spec, testbed))
    }

    /// The devices between which traffic is sent.
    fn testbed(&self) -> Testbed {
        match (&self.tx, &self.rx) {
            (Some(tx), Some(rx)) => Testbed::Nics(Nics {
                tx: tx.clone(),
                rx: rx.clone(),
                gateway: self.gateway,
                rx_gateway: self.rx_gateway,
                next_hop: self.dmac,
            }),
            _ => Testbed::Own,
        }
    }

    fn method(&self) -> SendMethodChoice {
        match self.sender.as_str() {
            "xdp" => SendMethodChoice::Only(SendMethod::XdpLive),
            "socket" => SendMethodChoice::Only(SendMethod::Socket),
            _ => SendMethodChoice::Auto,
        }
    }

    /// What streams of --streams and --script share, and the devices.
    pub(super) fn streams(&self) -> (StreamsSpec, Testbed) {
        (StreamsSpec { speed: self.speed, method: self.method(), cpus: self.cpus }, self.testbed())
    }

    /// What holds for streams that do not say otherwise.
    pub(super) fn stream_defaults(&self) -> StreamDefaults {
        StreamDefaults { time: self.time, warm_up: self.warm_up }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}
