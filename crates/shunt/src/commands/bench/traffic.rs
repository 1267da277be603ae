//! The generated traffic of a measurement: protocol, IP version, number of flows, NAT, tags and frame sizes.

use super::{
    goodput::args::{Switch, on_or_off},
    testbed::TestbedArgs,
};
use crate::{commands::arguments::ip_version, failure::usage};
use clap::Args;
use shunt_api::Failure;
use shunt_gen::{FLOWS_MAX, FrameSizes, Ports, Shape, Sizes, Wrong};
use shunt_lab::traffic::TrafficSpec;
use shunt_wire::{
    Tag, Tcp,
    line::{IpVersion, LinkSpeed, MIN_FRAME_BYTES},
};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// The ports that are not reserved for services.
pub(super) const UNRESERVED_PORTS: Ports = Ports { first: 1024, count: 64512 };
/// The first destination port.
const DESTINATION_PORT: u16 = 5001;

#[derive(Debug, Args)]
pub(crate) struct TrafficArgs {
    /// The IP version.
    #[arg(long, value_name = "4|6", default_value = "4", value_parser = ip_version)]
    pub(super) ip: IpVersion,
    /// Number of flows, which differ in their ports; each is a connection of its own [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(FLOWS_MAX)))]
    pub(super) flows: Option<u32>,
    /// Whether the router in a namespace masquerades traffic to the WAN; the WAN host then sends to the router's
    /// address [default: off].
    #[arg(long, value_name = "on|off", value_parser = on_or_off, num_args = 0..=1, default_missing_value = "on",
        conflicts_with = "tx")]
    pub(super) nat: Option<Switch>,
    /// Tags that the router takes off and puts on: 10 if frames on the LAN (--tx) have a tag of VLAN 10, 10:20 if those
    /// on the WAN (--rx) have another one, :20 if only those on the WAN have one.
    #[arg(long, value_name = "LAN[:WAN]")]
    pub(super) vlan: Option<Vlans>,
    /// Send TCP segments of seemingly established connections instead of UDP.
    #[arg(long)]
    pub(super) tcp: bool,
}

/// VLAN IDs on both sides of a router; at least one side has a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vlans {
    lan: Option<u16>,
    wan: Option<u16>,
}

impl FromStr for Vlans {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = |text: &str| match text.parse() {
            Ok(id @ 1..=4094) => Ok(id),
            _ => Err("expected VLAN IDs from 1 to 4094, such as 10, 10:20 or :20"),
        };
        let (lan, wan) = text.split_once(':').map_or((text, None), |(lan, wan)| (lan, Some(wan)));
        let lan = if lan.is_empty() && wan.is_some() { None } else { Some(id(lan)?) };
        Ok(Self { lan, wan: wan.map(id).transpose()? })
    }
}

impl TrafficArgs {
    /// This traffic through a router. Without `sizes`, all frames are as small as their headers allow.
    pub(super) fn traffic(
        &self,
        router: &TestbedArgs,
        both: bool,
        sizes: Option<&FrameSizes>,
    ) -> Result<TrafficSpec, Failure> {
        let flows = self.flows.unwrap_or(1);
        if let Some(table) = conntrack_max().filter(|table| router.tx.is_none() && flows > *table) {
            return Err(usage(format!(
                "--flows {flows}: conntrack tracks at most {table} connections (nf_conntrack_max)"
            )));
        }
        let least = Sizes::fixed(MIN_FRAME_BYTES).map_err(unfit)?;
        let mut spec = udp_traffic(self.ip, router.speed, both, least);
        let source_ports = UNRESERVED_PORTS.count.min(u16::try_from(flows).unwrap_or(u16::MAX));
        spec.shape.source_ports.count = source_ports;
        // At most 66, since FLOWS_MAX bounds the number of flows.
        spec.shape.destination_ports.count = flows.div_ceil(source_ports.into()) as u16;
        spec.shape.flows = Some(flows);
        spec.shape.tcp = self.tcp.then_some(Tcp::ACK);
        if let Some(Vlans { lan, wan }) = self.vlan {
            let tags = |id: Option<u16>| id.into_iter().map(Tag::vlan).collect();
            (spec.shape.tags, spec.far_tags) = (tags(lan), tags(wan));
        }
        spec.shape.sizes = spec.fit(sizes).map_err(unfit)?;
        spec.nat = self.nat.is_some_and(|nat| nat.0);
        Ok(spec)
    }
}

/// UDP of one flow between the addresses of the ports.
pub(super) fn udp_traffic(ip: IpVersion, speed: Option<LinkSpeed>, both: bool, sizes: Sizes) -> TrafficSpec {
    let own: IpAddr = match ip {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let [from, to] = [UNRESERVED_PORTS.first, DESTINATION_PORT].map(|port| SocketAddr::new(own, port));
    TrafficSpec { speed, both, ..TrafficSpec::for_shape(Shape::udp(from, to, sizes)) }
}

pub(super) fn unfit(why: Wrong) -> Failure {
    usage(why.to_string())
}

/// nf_conntrack_max of this machine; none if conntrack is not loaded.
pub(super) fn conntrack_max() -> Option<u32> {
    fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").ok()?.trim().parse().ok()
}
