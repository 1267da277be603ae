//! The arguments of `shunt gen`.
//!
//! Without --tx and --rx, the traffic crosses a Linux router between a LAN host and a WAN host, all three in network
//! namespaces that are made for the run.

use crate::{client::candidates, commands::arguments::duration};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use shunt_gen::{Addresses, FrameSizes, Ports, Rate, Shape, Sizes};
use shunt_lab::traffic::{Nics, PcapOut, Replay, SendMethod, SendMethodChoice, Testbed, TrafficSpec};
use shunt_wire::{
    Mac, Tag, Tcp,
    line::{LinkSpeed, MIN_FRAME_BYTES},
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

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
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Traffic")]
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
    /// Use IPv6, if neither --src nor --dst is given.
    #[arg(short = '6', long, help_heading = "Packets")]
    ipv6: bool,
    /// Send TCP segments instead of UDP, all with the same sequence number. `shunt bench tcp` opens connections.
    #[arg(long, help_heading = "Packets")]
    tcp: bool,
    /// A VLAN tag; give it twice for QinQ, outermost first.
    #[arg(long = "vlan", value_name = "ID", value_parser = clap::value_parser!(u16).range(0..4096), help_heading = "Packets")]
    vlans: Vec<u16>,
    /// Source addresses: ADDRESS, FIRST-LAST, or ADDRESS/LENGTH [default: the address of the sending port].
    #[arg(long, value_name = "ADDRESSES", help_heading = "Packets")]
    src: Option<Addresses>,
    /// Destination addresses [default: the address of the receiving port].
    #[arg(long, value_name = "ADDRESSES", help_heading = "Packets")]
    dst: Option<Addresses>,
    /// Source ports.
    #[arg(long, value_name = "PORTS", default_value = "1024", help_heading = "Packets")]
    sport: Ports,
    /// Destination ports.
    #[arg(long, value_name = "PORTS", default_value = "5001", help_heading = "Packets")]
    dport: Ports,
    /// Use at most this many flows of those that the ranges give. Source ports vary first.
    #[arg(long, value_name = "N", help_heading = "Packets")]
    flows: Option<u32>,
    /// Send the flows in a random order drawn from this seed, instead of in turn.
    #[arg(long, value_name = "SEED", help_heading = "Packets")]
    shuffle: Option<u64>,
    /// TTL or hop limit.
    #[arg(long, default_value_t = 64, help_heading = "Packets")]
    ttl: u8,
    /// Send UDP over IPv4 without a checksum.
    #[arg(long, help_heading = "Packets")]
    no_checksum: bool,
    /// The sending device: measure whatever connects it to --rx, instead of a router in a namespace.
    #[arg(long, value_name = "DEV", add = ArgValueCandidates::new(candidates::devices), requires = "rx", help_heading = "The router to measure")]
    tx: Option<String>,
    /// The receiving device.
    #[arg(long, value_name = "DEV", add = ArgValueCandidates::new(candidates::devices), requires = "tx", help_heading = "The router to measure")]
    rx: Option<String>,
    /// The router's address on the link of --tx. Without it, frames are addressed to the MAC of --rx, for a cable or a
    /// bridge.
    #[arg(long, value_name = "ADDRESS", requires = "tx", help_heading = "The router to measure")]
    gateway: Option<IpAddr>,
    /// The router's address on the link of --rx; needed for --both.
    #[arg(long, value_name = "ADDRESS", requires = "rx", help_heading = "The router to measure")]
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
        "sport", "dport", "flows", "shuffle", "ttl", "no_checksum"], help_heading = "Captures")]
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
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,
}

impl GenArgs {
    /// The traffic, and the devices between which it is sent. `replay` is the capture of --pcap-in.
    pub(super) fn traffic(&self, replay: Option<Replay>) -> Result<(TrafficSpec, Testbed), String> {
        let tags = match self.vlans[..] {
            [] => Vec::new(),
            [tag] => vec![Tag::vlan(tag)],
            [outer, inner] => vec![Tag::service(outer), Tag::vlan(inner)],
            _ => return Err(format!("--vlan: {} tags given; the most is 2 (QinQ)", self.vlans.len())),
        };
        let v6 = [self.src, self.dst].into_iter().flatten().next().map_or(self.ipv6, |a| a.first.is_ipv6());
        let own: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let mut shape = Shape {
            tcp: self.tcp.then_some(Tcp::ACK),
            tags,
            source: self.src.unwrap_or(Addresses::one(own)),
            destination: self.dst.unwrap_or(Addresses::one(own)),
            source_ports: self.sport,
            destination_ports: self.dport,
            flows: self.flows,
            shuffled: self.shuffle,
            listed: false,
            sizes: Sizes::fixed(MIN_FRAME_BYTES).map_err(|why| why.to_string())?,
            checksum: !self.no_checksum,
            hop_limit: self.ttl,
        };
        shape.sizes = shape.fit(self.size.as_ref()).map_err(|why| why.to_string())?;
        let testbed = match (&self.tx, &self.rx) {
            (Some(tx), Some(rx)) => Testbed::Nics(Nics {
                tx: tx.clone(),
                rx: rx.clone(),
                gateway: self.gateway,
                rx_gateway: self.rx_gateway,
                next_hop: self.dmac,
            }),
            _ => Testbed::Own,
        };
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
            method: match self.sender.as_str() {
                "xdp" => SendMethodChoice::Only(SendMethod::XdpLive),
                "socket" => SendMethodChoice::Only(SendMethod::Socket),
                _ => SendMethodChoice::Auto,
            },
            floor: !self.no_floor && replay.is_none(),
            replay,
            answered: false,
            nat: false,
            mtu: None,
            pcap_out: self.pcap_out.clone().map(|path| PcapOut { path, limit: self.pcap_limit }),
        };
        Ok((spec, testbed))
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}
