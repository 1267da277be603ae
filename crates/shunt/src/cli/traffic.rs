//! What can be typed to send traffic.

use super::time;
use clap::Args;
use shunt_gen::{Addresses, Ports, Rate, Shape, Sizes};
use shunt_lab::traffic::{Means, MeansChoice, Nics, PcapOut, Place, Replay, Wanted};
use shunt_wire::{Mac, Tag, Tcp, line::LinkSpeed};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

const DURATION: Duration = Duration::from_secs(2);
const DEFAULT_RATE: Rate = Rate::Pps(10_000.0);

/// Without --tx and --rx it makes a LAN host, a router and a WAN host in namespaces of their own, and Linux routes between them.
#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    /// How much is offered in each direction: 100kpps, 300Mbit (frames with FCS), 1GbitL1 (with preamble and gap), 80% of the
    /// link, or max [default: 10kpps, or of --pcap-in as it was captured].
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// How long [default: 2s, or until --count, or once through --pcap-in].
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// How many packets in each direction.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Frame size with FCS, 64 to 9018: one size, imix (7 of 64, 4 of 570, 1 of 1518), or as 64:7,570:4,1518:1.
    #[arg(long, default_value = "64")]
    size: Sizes,
    /// How many packets are sent back to back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    burst: u32,
    /// Traffic before the measurement, which is not counted.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = time)]
    warm_up: Duration,
    /// Both directions at once.
    #[arg(long)]
    both: bool,
    /// Use IPv6, where no address tells the version.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// TCP segments of connections that seem to be established, instead of UDP.
    #[arg(long)]
    tcp: bool,
    /// A VLAN tag; twice for QinQ, outermost first.
    #[arg(long = "vlan", value_name = "ID", value_parser = clap::value_parser!(u16).range(0..4096))]
    vlans: Vec<u16>,
    /// Source addresses: ADDRESS, FIRST-LAST, or ADDRESS/LENGTH [default: of the port that sends].
    #[arg(long, value_name = "ADDRESSES")]
    src: Option<Addresses>,
    /// Destination addresses [default: of the port that receives].
    #[arg(long, value_name = "ADDRESSES")]
    dst: Option<Addresses>,
    /// Source ports.
    #[arg(long, value_name = "PORTS", default_value = "1024")]
    sport: Ports,
    /// Destination ports.
    #[arg(long, value_name = "PORTS", default_value = "5001")]
    dport: Ports,
    /// No more flows than these, of all that the ranges give. Source ports change first.
    #[arg(long, value_name = "N")]
    flows: Option<u32>,
    /// Flows in an order drawn from this seed, instead of in turn.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// TTL or hop limit.
    #[arg(long, default_value_t = 64)]
    ttl: u8,
    /// UDP over IPv4 without a checksum.
    #[arg(long)]
    no_checksum: bool,
    /// The device that sends, to measure what is between it and --rx, instead of a router in a namespace between two hosts.
    #[arg(long, value_name = "PORT", requires = "rx")]
    tx: Option<String>,
    /// The device that receives.
    #[arg(long, value_name = "PORT", requires = "tx")]
    rx: Option<String>,
    /// The router's address at --tx. Without it frames are for the MAC of --rx, as with a cable or a bridge between them.
    #[arg(long, value_name = "ADDRESS", requires = "tx")]
    gateway: Option<IpAddr>,
    /// The router's address at --rx, for --both.
    #[arg(long, value_name = "ADDRESS", requires = "rx")]
    rx_gateway: Option<IpAddr>,
    /// The destination MAC of frames from --tx, instead of asking for it (ARP, ND).
    #[arg(long, value_name = "MAC", requires = "tx")]
    dmac: Option<Mac>,
    /// The link's speed, where the device does not know it.
    #[arg(long, value_name = "SPEED")]
    speed: Option<LinkSpeed>,
    /// Who sends: live XDP frames, or a socket, which any device and size can.
    #[arg(long, default_value = "auto", value_parser = ["auto", "xdp", "socket"])]
    sender: String,
    /// Do not measure the latency that the generator adds by itself.
    #[arg(long)]
    no_floor: bool,
    /// Send the frames of this capture, pcap or pcapng, from --tx to --rx. With a router they are for its MAC; else they stay as they are.
    /// What is accounted is what comes of the same kind: EtherType, protocol, and type of ICMP.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "burst", "warm_up", "both", "ipv6", "tcp", "vlans", "src", "dst",
        "sport", "dport", "flows", "shuffle", "ttl", "no_checksum"])]
    pub(crate) pcap_in: Option<PathBuf>,
    /// Send the capture this many times as fast as it was captured; 1 is its own timing.
    #[arg(long, value_name = "N", requires = "pcap_in", conflicts_with = "rate", value_parser = positive)]
    pub(crate) multiplier: Option<f64>,
    /// Send the capture this many times, one after the other.
    #[arg(long, value_name = "N", requires = "pcap_in", default_value_t = 1, conflicts_with_all = ["time", "count"],
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) r#loop: u32,
    /// Write what --rx receives of it to this file, as pcap with nanoseconds.
    #[arg(long, value_name = "FILE", conflicts_with = "both")]
    pcap_out: Option<PathBuf>,
    /// No more frames than these in --pcap-out, which has them in memory until the end.
    #[arg(long, value_name = "N", requires = "pcap_out", default_value_t = 100_000)]
    pcap_limit: u64,
    /// Keep the results in this file, which `shunt compare` reads; a file that is there already gets these runs, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
}

impl GenArgs {
    /// With what was read of --pcap-in.
    pub(crate) fn wanted(&self, replay: Option<Replay>) -> Result<(Wanted, Place), String> {
        let tags = match self.vlans[..] {
            [] => Vec::new(),
            [one] => vec![Tag::vlan(one)],
            [outer, inner] => vec![Tag::service(outer), Tag::vlan(inner)],
            _ => return Err(format!("{} VLAN tags: 2 are the most, which is QinQ", self.vlans.len())),
        };
        let v6 = [self.src, self.dst].into_iter().flatten().next().map_or(self.ipv6, |a| a.first.is_ipv6());
        let own: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let shape = Shape {
            tcp: self.tcp.then_some(Tcp::ACK),
            tags,
            source: self.src.unwrap_or(Addresses::one(own)),
            destination: self.dst.unwrap_or(Addresses::one(own)),
            source_ports: self.sport,
            destination_ports: self.dport,
            flows: self.flows,
            shuffled: self.shuffle,
            sizes: self.size.clone(),
            checksum: !self.no_checksum,
            hop_limit: self.ttl,
        };
        let place = match (&self.tx, &self.rx) {
            (Some(tx), Some(rx)) => Place::Nics(Nics {
                tx: tx.clone(),
                rx: rx.clone(),
                gateway: self.gateway,
                rx_gateway: self.rx_gateway,
                next_hop: self.dmac,
            }),
            _ => Place::Own,
        };
        let bounded = self.count.is_some() || replay.is_some();
        let wanted = Wanted {
            shape,
            rate: self.rate.unwrap_or(DEFAULT_RATE),
            speed: self.speed,
            duration: self.time.or(if bounded { None } else { Some(DURATION) }),
            packets: self.count,
            warm_up: if replay.is_some() { Duration::ZERO } else { self.warm_up },
            burst: self.burst,
            both: self.both,
            means: match self.sender.as_str() {
                "xdp" => MeansChoice::Only(Means::XdpLive),
                "socket" => MeansChoice::Only(Means::Socket),
                _ => MeansChoice::Auto,
            },
            floor: !self.no_floor && replay.is_none(),
            replay,
            answered: false,
            pcap_out: self.pcap_out.clone().map(|path| PcapOut { path, limit: self.pcap_limit }),
        };
        Ok((wanted, place))
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "a number above 0".to_owned())
}
