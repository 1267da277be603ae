//! One end of the traffic: a device with its addresses and its next hop.

use super::Error;
use crate::net::{Host, NetNs};
use serde::Deserialize;
use shunt_wire::Mac;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
};

/// A device that sends and receives.
#[derive(Debug, Clone)]
pub(crate) struct Station<'n> {
    pub(crate) ns: Option<&'n NetNs>,
    pub(crate) ifname: String,
    pub(crate) ifindex: u32,
    pub(crate) mac: Mac,
    pub(crate) next_hop: Mac,
    /// Whether captured frames get the next hop's MAC: the next hop is a router, or was given.
    pub(super) routed: bool,
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
}

/// The JSON of `ip -json address show`.
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

impl<'n> Station<'n> {
    pub(super) fn for_host(host: &'n Host) -> io::Result<Self> {
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

    /// Reads a device of this namespace, and checks that it is up and its MTU is large enough.
    pub(super) fn here(ifname: &str, l3_bytes: u32) -> Result<Self, Error> {
        let all: Vec<Shown> =
            ip(&["address", "show", "dev", ifname]).ok_or_else(|| Error::NoDevice(ifname.to_owned()))?;
        // Old versions of ip print empty objects for devices that do not match.
        let shown = all.into_iter().next().ok_or_else(|| Error::NoDevice(ifname.to_owned()))?;
        let is = |flag: &str| shown.flags.iter().any(|given| given == flag);
        if !is("UP") {
            return Err(Error::Asked(format!("{ifname}: the device is down; `ip link set {ifname} up`")));
        }
        if !is("LOWER_UP") {
            return Err(Error::Asked(format!("{ifname}: no link; is the cable in, and the other side up?")));
        }
        if shown.mtu < l3_bytes {
            let mtu = shown.mtu;
            return Err(Error::Asked(format!(
                "{ifname}: the MTU is {mtu}, but packets have {l3_bytes} bytes; `ip link set {ifname} mtu {l3_bytes}`"
            )));
        }
        let mac = shown.address.parse();
        let mac = mac.map_err(|_| Error::Asked(format!("{ifname}: not an Ethernet device")))?;
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

    /// The device's address of the same family as `ip`.
    pub(crate) fn address_like(&self, ip: IpAddr) -> Result<IpAddr, Error> {
        let own = if ip.is_ipv4() { self.v4.map(IpAddr::V4) } else { self.v6.map(IpAddr::V6) };
        own.ok_or_else(|| {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            let name = &self.ifname;
            Error::Asked(format!(
                "{name}: the device has no {family} address; add one, or set --src and --dst"
            ))
        })
    }

    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.ns {
            Some(ns) => ns.within(work),
            None => work(),
        }
    }
}

fn ip<T: serde::de::DeserializeOwned>(words: &[&str]) -> Option<T> {
    let output = Command::new("ip").arg("-json").args(words).output().ok()?;
    if !output.status.success() {
        return None;
    }
    serde_json::from_slice(&output.stdout).ok()
}
