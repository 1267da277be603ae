//! The test bed: a router of our own, or a device under test between two devices of this machine.

use super::{Error, TrafficSpec, neighbour::resolve, station::Station};
use crate::{
    Nic,
    net::{NetNs, Segment, Topology},
};
use shunt_gen::Addresses;
use shunt_wire::{Mac, line::LinkSpeed};
use std::net::IpAddr;

const DEFAULT_MTU: u32 = 1500;
/// Masquerade of traffic to the WAN, in both families.
pub(crate) const MASQUERADE: &str = "table inet nat { chain postrouting { type nat hook postrouting priority srcnat; \
    oifname \"r1\" masquerade; }; }";
/// Keeps packets to the address of a masquerading router from taking the ports of connections that are not yet open.
const ANSWERS_ONLY: &str = "table inet answers { chain input { type filter hook input priority filter; \
    iifname \"r1\" meta l4proto udp ct state new drop; }; }";
/// Timeout of translated connections, longer than any measurement.
const TIMEOUT_S: u32 = 86_400;

/// The device under test and the devices around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Testbed {
    /// A router of our own in a namespace, between two hosts; Linux routes.
    Own,
    /// A device under test between two devices of this machine.
    Nics(Nics),
}

/// Two devices of this machine with the device under test between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nics {
    /// Device that sends.
    pub tx: String,
    /// Device that receives.
    pub rx: String,
    /// The router's address at `tx`; None if there is no router and packets go to the MAC of `rx`.
    pub gateway: Option<IpAddr>,
    /// The router's address at `rx`, for packets that `rx` sends.
    pub rx_gateway: Option<IpAddr>,
    /// Destination MAC of packets from `tx`; overrides the gateway.
    pub next_hop: Option<Mac>,
}

/// The network of a test bed; a network of our own is deleted on drop.
pub(super) enum Network {
    Own(Box<Topology>),
    Here(Nics),
}

impl Testbed {
    /// Speed of the sending link: the given speed, or else the one that the driver reports.
    pub fn speed(&self, given: Option<LinkSpeed>) -> Option<LinkSpeed> {
        match self {
            Self::Nics(nics) => given.or_else(|| LinkSpeed::new(Nic::read(&nics.tx).speed_mbps? * 1_000_000)),
            Self::Own => given,
        }
    }

    /// Speed of the slower line: the given speed, or else the one that the drivers report. None for virtual links.
    pub(super) fn line_speed(&self, given: Option<LinkSpeed>, nics: &[Nic]) -> Option<LinkSpeed> {
        let slowest = || nics.iter().filter_map(|nic| LinkSpeed::new(nic.speed_mbps? * 1_000_000)).min();
        match self {
            Self::Nics(_) => given.or_else(slowest),
            Self::Own => given,
        }
    }

    pub(super) fn network(&self, spec: &TrafficSpec) -> Result<Network, Error> {
        let nics = match self {
            Self::Nics(nics) => return Ok(Network::Here(nics.clone())),
            Self::Own => Topology::try_new(&[Segment::LAN, Segment::WAN])?,
        };
        nics.try_pin_neighbours()?;
        let mtu = l3_bytes(spec);
        if mtu > DEFAULT_MTU {
            for host in nics.hosts() {
                host.ns.try_run(&format!("ip link set {} mtu {mtu}", host.nic))?;
                nics.router().try_run(&format!("ip link set {} mtu {mtu}", host.port))?;
            }
        }
        if spec.nat {
            masquerade(nics.router())?;
        }
        Ok(Network::Own(Box::new(nics)))
    }
}

impl Network {
    /// The router, if it is one of our own.
    pub(super) fn router(&self) -> Option<&NetNs> {
        match self {
            Self::Own(topology) => Some(topology.router()),
            Self::Here(_) => None,
        }
    }

    /// The address to which the second port sends, if it is that of a masquerading router.
    pub(super) fn translated(&self, spec: &TrafficSpec) -> Option<Addresses> {
        match self {
            Self::Own(topology) if spec.nat => {
                let wan = topology.wan();
                let own: IpAddr = if spec.is_ipv4() { wan.gateway_v4.into() } else { wan.gateway_v6.into() };
                Some(Addresses::one(own))
            }
            _ => None,
        }
    }

    pub(super) fn stations(&self, spec: &TrafficSpec) -> Result<(Station<'_>, Station<'_>), Error> {
        match self {
            Self::Own(topology) => {
                Ok((Station::for_host(topology.lan())?, Station::for_host(topology.wan())?))
            }
            Self::Here(nics) => {
                if spec.both && nics.gateway.is_some() && nics.rx_gateway.is_none() {
                    let why = format!(
                        "both directions need --rx-gateway, too: the router's address at {}",
                        nics.rx
                    );
                    return Err(Error::Asked(why));
                }
                let (mtu, shape) = (l3_bytes(spec), &spec.shape);
                let (mut tx, mut rx) = (Station::here(&nics.tx, mtu)?, Station::here(&nics.rx, mtu)?);
                (tx.next_hop, rx.next_hop) = (rx.mac, tx.mac);
                if let Some(gateway) = nics.gateway.filter(|_| nics.next_hop.is_none()) {
                    tx.next_hop = resolve(&tx, gateway, &shape.source, &shape.tags)?;
                }
                if let Some(gateway) = nics.rx_gateway.filter(|_| spec.both) {
                    rx.next_hop = resolve(&rx, gateway, &shape.destination, &shape.tags)?;
                }
                tx.next_hop = nics.next_hop.unwrap_or(tx.next_hop);
                tx.routed = nics.next_hop.is_some() || nics.gateway.is_some();
                Ok((tx, rx))
            }
        }
    }
}

fn masquerade(router: &NetNs) -> Result<(), Error> {
    for rules in [MASQUERADE, ANSWERS_ONLY] {
        router.try_run(&format!("nft '{rules}'"))?;
    }
    for timeout in ["udp_timeout", "udp_timeout_stream"] {
        router.try_sysctl(&format!("netfilter/nf_conntrack_{timeout}"), TIMEOUT_S)?;
    }
    Ok(())
}

/// Size of the largest L3 packet.
fn l3_bytes(spec: &TrafficSpec) -> u32 {
    if let Some(replay) = &spec.replay {
        return replay.capture.l3_bytes() as u32;
    }
    let frame = spec.shape.sizes.largest();
    spec.shape.encapsulation().in_frame(frame).map_or(frame, |sizes| sizes.l3)
}
