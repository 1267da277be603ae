//! Where packets go in and come out.

use super::{Error, Wanted, neighbour::resolve};
use crate::{
    Nic,
    net::{Host, NetNs, Segment, Topology},
};
use serde::Deserialize;
use shunt_wire::{Mac, line::LinkSpeed};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
};

const DEFAULT_MTU: u32 = 1500;

/// What is measured, and by which devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A router of our own in a namespace, between two hosts; Linux routes.
    Own,
    /// Whatever is between these devices.
    Nics(Nics),
}

/// Devices of this machine with the device under test between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nics {
    /// Sends.
    pub tx: String,
    /// Receives.
    pub rx: String,
    /// The router's address at `tx`; none: there is no router, and packets go to the MAC of `rx`.
    pub gateway: Option<IpAddr>,
    /// The router's address at `rx`, for what is sent there.
    pub rx_gateway: Option<IpAddr>,
    /// The MAC that packets from `tx` go to, whatever else.
    pub next_hop: Option<Mac>,
}

/// What was made, until it is dropped.
pub(super) enum Network {
    Own(Box<Topology>),
    Here(Nics),
}

/// One end.
#[derive(Debug, Clone)]
pub(super) struct Station<'n> {
    pub(super) ns: Option<&'n NetNs>,
    pub(super) ifname: String,
    pub(super) ifindex: u32,
    pub(super) mac: Mac,
    pub(super) next_hop: Mac,
    /// The next hop is a router, or was named: frames that were captured are for it.
    pub(super) routed: bool,
    pub(super) v4: Option<Ipv4Addr>,
    pub(super) v6: Option<Ipv6Addr>,
}

/// Of `ip -json address show`.
#[derive(Debug, Deserialize)]
struct Shown {
    ifindex: u32,
    flags: Vec<String>,
    mtu: u32,
    #[serde(default)]
    address: String,
    addr_info: Vec<ShownAddress>,
}

#[derive(Debug, Deserialize)]
struct ShownAddress {
    local: Option<IpAddr>,
    scope: String,
}

impl Place {
    /// The speed of the link that packets go out by, unless it was given.
    pub fn speed(&self, given: Option<LinkSpeed>) -> Option<LinkSpeed> {
        match self {
            Self::Nics(nics) => given.or_else(|| LinkSpeed::new(Nic::of(&nics.tx).speed_mbps? * 1_000_000)),
            Self::Own => given,
        }
    }

    /// The speed of the slower of the lines between these devices, unless it was given. Virtual links have none.
    pub(super) fn line_speed(&self, given: Option<LinkSpeed>, nics: &[Nic]) -> Option<LinkSpeed> {
        let slowest = || nics.iter().filter_map(|nic| LinkSpeed::new(nic.speed_mbps? * 1_000_000)).min();
        match self {
            Self::Nics(_) => given.or_else(slowest),
            Self::Own => given,
        }
    }

    pub(super) fn network(&self, wanted: &Wanted) -> Result<Network, Error> {
        let nics = match self {
            Self::Nics(nics) => return Ok(Network::Here(nics.clone())),
            Self::Own => Topology::try_of(&[Segment::LAN, Segment::WAN])?,
        };
        nics.try_pin_neighbours()?;
        let mtu = l3_bytes(wanted);
        if mtu > DEFAULT_MTU {
            for host in nics.hosts() {
                host.ns.try_run(&format!("ip link set {} mtu {mtu}", host.nic))?;
                nics.router().try_run(&format!("ip link set {} mtu {mtu}", host.port))?;
            }
        }
        Ok(Network::Own(Box::new(nics)))
    }
}

impl Network {
    /// The router, where it is ours.
    pub(super) fn router(&self) -> Option<&NetNs> {
        match self {
            Self::Own(topology) => Some(topology.router()),
            Self::Here(_) => None,
        }
    }

    pub(super) fn stations(&self, wanted: &Wanted) -> Result<(Station<'_>, Station<'_>), Error> {
        match self {
            Self::Own(topology) => Ok((Station::of(topology.lan())?, Station::of(topology.wan())?)),
            Self::Here(nics) => {
                if wanted.both && nics.gateway.is_some() && nics.rx_gateway.is_none() {
                    let why = format!(
                        "both directions need --rx-gateway, too: the router's address at {}",
                        nics.rx
                    );
                    return Err(Error::Asked(why));
                }
                let (mtu, shape) = (l3_bytes(wanted), &wanted.shape);
                let (mut tx, mut rx) = (Station::here(&nics.tx, mtu)?, Station::here(&nics.rx, mtu)?);
                (tx.next_hop, rx.next_hop) = (rx.mac, tx.mac);
                if let Some(gateway) = nics.gateway.filter(|_| nics.next_hop.is_none()) {
                    tx.next_hop = resolve(&tx, gateway, &shape.source, &shape.tags)?;
                }
                if let Some(gateway) = nics.rx_gateway.filter(|_| wanted.both) {
                    rx.next_hop = resolve(&rx, gateway, &shape.destination, &shape.tags)?;
                }
                tx.next_hop = nics.next_hop.unwrap_or(tx.next_hop);
                tx.routed = nics.next_hop.is_some() || nics.gateway.is_some();
                Ok((tx, rx))
            }
        }
    }
}

impl<'n> Station<'n> {
    fn of(host: &'n Host) -> io::Result<Self> {
        Ok(Self {
            ns: Some(&host.ns),
            ifname: host.nic.to_owned(),
            ifindex: host.ns.try_ifindex(host.nic)?,
            mac: host.mac,
            next_hop: host.gateway_mac,
            routed: true,
            v4: Some(host.v4),
            v6: Some(host.v6),
        })
    }

    /// A device of this namespace, up and large enough.
    fn here(ifname: &str, l3_bytes: u32) -> Result<Self, Error> {
        let all: Vec<Shown> =
            ip(&["address", "show", "dev", ifname]).ok_or_else(|| Error::NoDevice(ifname.to_owned()))?;
        // Old versions of ip print empty objects for devices that were left out.
        let shown = all.into_iter().next().ok_or_else(|| Error::NoDevice(ifname.to_owned()))?;
        let is = |flag: &str| shown.flags.iter().any(|given| given == flag);
        if !is("UP") {
            return Err(Error::Asked(format!("{ifname}: it is down; `ip link set {ifname} up`")));
        }
        if !is("LOWER_UP") {
            return Err(Error::Asked(format!("{ifname}: no link; is the cable in, and the other side up?")));
        }
        if shown.mtu < l3_bytes {
            let mtu = shown.mtu;
            return Err(Error::Asked(format!(
                "{ifname}: its MTU is {mtu}, and packets of {l3_bytes} bytes are to go; `ip link set {ifname} mtu {l3_bytes}`"
            )));
        }
        let mac = shown.address.parse();
        let mac = mac.map_err(|_| Error::Asked(format!("{ifname}: it is no Ethernet device")))?;
        let global = || shown.addr_info.iter().filter(|a| a.scope == "global").filter_map(|a| a.local);
        Ok(Self {
            ns: None,
            ifname: ifname.to_owned(),
            ifindex: shown.ifindex,
            mac,
            next_hop: mac,
            routed: false,
            v4: global().find_map(|a| if let IpAddr::V4(a) = a { Some(a) } else { None }),
            v6: global().find_map(|a| if let IpAddr::V6(a) = a { Some(a) } else { None }),
        })
    }

    /// Its address of the family that this one has.
    pub(super) fn address_like(&self, ip: IpAddr) -> Result<IpAddr, Error> {
        let own = if ip.is_ipv4() { self.v4.map(IpAddr::V4) } else { self.v6.map(IpAddr::V6) };
        own.ok_or_else(|| {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            let name = &self.ifname;
            Error::Asked(format!("{name}: it has no {family} address; give it one, or name --src and --dst"))
        })
    }

    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.ns {
            Some(ns) => ns.within(work),
            None => work(),
        }
    }
}

/// The largest L3 packet.
fn l3_bytes(wanted: &Wanted) -> u32 {
    if let Some(replay) = &wanted.replay {
        return replay.capture.l3_bytes() as u32;
    }
    let frame = wanted.shape.sizes.largest();
    wanted.shape.encapsulation().in_frame(frame).map_or(frame, |sizes| sizes.l3)
}

fn ip<T: serde::de::DeserializeOwned>(words: &[&str]) -> Option<T> {
    let output = Command::new("ip").arg("-json").args(words).output().ok()?;
    if !output.status.success() {
        return None;
    }
    serde_json::from_slice(&output.stdout).ok()
}
