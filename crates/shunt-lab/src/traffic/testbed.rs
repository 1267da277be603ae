//! The test bed: a router of our own, or a device under test between two devices of this machine.

use super::{Error, TrafficSpec, neighbour::resolve, ruleset::masquerade, station::Station, vlan};
use crate::{
    Nic,
    net::{NetNs, Topology},
};
use shunt_gen::Addresses;
use shunt_wire::{
    Mac,
    line::{Encapsulation, LinkSpeed},
};
use std::net::IpAddr;

const DEFAULT_MTU: u32 = 1500;
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
pub(crate) enum Network {
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

    pub(crate) fn network(&self, spec: &TrafficSpec) -> Result<Network, Error> {
        let nics = match self {
            Self::Nics(nics) => return Ok(Network::Here(nics.clone())),
            Self::Own => vlan::topology(spec)?,
        };
        nics.try_pin_neighbours()?;
        let mtu = spec.mtu.unwrap_or_else(|| l3_bytes(spec).max(DEFAULT_MTU));
        if mtu != DEFAULT_MTU {
            nics.try_set_mtu(mtu)?;
        }
        if spec.nat {
            masquerade(nics.router())?;
        }
        Ok(Network::Own(Box::new(nics)))
    }
}

impl Network {
    /// The router, if it is one of our own.
    pub(crate) fn router(&self) -> Option<&NetNs> {
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

    /// Checks that the devices can send and receive the packets of a spec.
    pub(super) fn check_devices(&self, spec: &TrafficSpec) -> Result<(), Error> {
        if let Self::Here(nics) = self {
            nics.check_apart()?;
            for device in [&nics.tx, &nics.rx] {
                Station::here(device, l3_bytes(spec))?;
            }
        }
        Ok(())
    }

    pub(crate) fn stations(&self, spec: &TrafficSpec) -> Result<(Station<'_>, Station<'_>), Error> {
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
                nics.check_apart()?;
                let (mtu, shape) = (l3_bytes(spec), &spec.shape);
                let (mut tx, mut rx) = (Station::here(&nics.tx, mtu)?, Station::here(&nics.rx, mtu)?);
                (tx.next_hop, rx.next_hop) = (rx.mac, tx.mac);
                if let Some(gateway) = nics.gateway.filter(|_| nics.next_hop.is_none()) {
                    tx.next_hop = resolve(&tx, gateway, &shape.source, &shape.tags)?;
                }
                if let Some(gateway) = nics.rx_gateway.filter(|_| spec.both) {
                    rx.next_hop = resolve(&rx, gateway, &shape.destination, &spec.far_tags)?;
                }
                tx.next_hop = nics.next_hop.unwrap_or(tx.next_hop);
                tx.routed = nics.next_hop.is_some() || nics.gateway.is_some();
                Ok((tx, rx))
            }
        }
    }
}

impl Nics {
    /// Fails if both names are the same: a device does not receive what it sends.
    fn check_apart(&self) -> Result<(), Error> {
        let Self { tx, rx, .. } = self;
        if tx != rx {
            return Ok(());
        }
        Err(Error::Asked(format!(
            "--tx {tx} --rx {rx}: a device does not receive what it sends; name the device at the other side for --rx"
        )))
    }
}

/// Size of the largest L3 packet.
fn l3_bytes(spec: &TrafficSpec) -> u32 {
    match &spec.replay {
        Some(replay) => replay.capture.l3_bytes() as u32,
        None => spec.l3_bytes(spec.shape.sizes.largest()),
    }
}

impl TrafficSpec {
    /// Size of the L3 packet in frames of this size, on the link with fewer tags.
    pub(crate) fn l3_bytes(&self, frame: u32) -> u32 {
        let tags = self.shape.tags.len().min(self.far_tags.len()) as u32;
        let encapsulation = Encapsulation { tags, ..self.shape.encapsulation() };
        encapsulation.in_frame(frame).map_or(frame, |sizes| sizes.l3)
    }
}
