//! The router between the two ends of iperf3: one of our own, made for each column and round, or one between two
//! devices of this machine.

use super::{Cell, Column, DevicePair};
use crate::{
    net::{Borrowed, Host, NetNs, Segment, Topology},
    throughput::RunningShunt,
    traffic::{Error, masquerade, track},
};
use shunt_wire::Tag;
use std::{
    net::IpAddr,
    process::{Command, Stdio},
};

/// The VLAN on the LAN side.
const VLANS: &[Tag] = &[Tag::vlan(5)];

/// The two devices around a router, while they are in namespaces of our own.
#[derive(Debug)]
pub(crate) struct Devices {
    both: [Borrowed; 2],
    gateways: Vec<IpAddr>,
}

/// The router and its hosts.
#[derive(Debug)]
pub(crate) enum Rig<'d> {
    /// A LAN host, a router with a stateful firewall and the settings of the cell, and a WAN host.
    Own(Box<Topology>),
    /// A router between two devices.
    DevicePair(&'d Devices),
}

/// A host that runs iperf3.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'r> {
    pub(crate) ns: &'r NetNs,
    pub(crate) nic: &'r str,
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

impl Devices {
    pub(crate) fn borrow(between: &DevicePair) -> Result<Self, Error> {
        let take = |label, wired: &super::Wired| {
            Borrowed::try_new(label, &wired.device, &wired.gateways)
                .map_err(|why| Error::Asked(why.to_string()))
        };
        let both = [take("lan", &between.lan)?, take("wan", &between.wan)?];
        Ok(Self { both, gateways: [&between.lan.gateways[..], &between.wan.gateways].concat() })
    }

    fn ends(&self) -> [End<'_>; 2] {
        self.both.each_ref().map(|device| End {
            ns: device.ns(),
            nic: device.device(),
            v4: device.address(false),
            v6: device.address(true),
        })
    }

    /// The reason why this traffic is impossible here; None if it is possible.
    pub(crate) fn lack(&self, cell: &Cell) -> Option<String> {
        if let Some(why) = self.ends().iter().find_map(|end| end.address(cell.v6).err()) {
            return Some(why.to_string());
        }
        let is_routed =
            self.gateways.is_empty() || self.gateways.iter().any(|gateway| gateway.is_ipv6() == cell.v6);
        (!is_routed).then(|| format!("no {} --gateway was given", family(cell.v6)))
    }
}

impl<'d> Rig<'d> {
    /// Sets up the router for a cell.
    pub(crate) fn new(devices: Option<&'d Devices>, of: Cell) -> Result<Self, Error> {
        Ok(match devices {
            Some(devices) => Self::DevicePair(devices),
            None => Self::Own(Box::new(topology(of)?)),
        })
    }

    /// The host on the LAN side and the host on the WAN side.
    pub(crate) fn ends(&self) -> [End<'_>; 2] {
        match self {
            Self::Own(topology) => [topology.lan(), topology.wan()].map(End::for_host),
            Self::DevicePair(devices) => devices.ends(),
        }
    }

    /// Applies the settings of a column until the returned value is dropped.
    pub(crate) fn arrange<'n>(&'n self, column: &'n Column) -> Result<Option<RunningShunt<'n>>, Error> {
        let router = match self {
            Self::Own(topology) => Some(topology.router()),
            Self::DevicePair(_) => None,
        };
        if let Some(line) = &column.command {
            let mut command = router.map_or_else(|| Command::new("sh"), |router| router.command("sh"));
            command.args(["-c", line]).stdin(Stdio::null());
            let [lan, wan] = self.ends().map(|end| end.ns);
            for (name, ns) in [("SHUNT_ROUTER", router), ("SHUNT_LAN", Some(lan)), ("SHUNT_WAN", Some(wan))] {
                command.env(name, ns.map_or("", NetNs::name));
            }
            let output = command.output()?;
            if !output.status.success() {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let why = format!("`{line}` ended with {}: {}", output.status, stderr.trim());
                return Err(Error::Machine(why.trim_end_matches(": ").to_owned()));
            }
        }
        RunningShunt::new(router, column.engine.as_ref())
    }
}

fn topology(of: Cell) -> Result<Topology, Error> {
    let lan = if of.vlan { Segment::LAN.tagged(VLANS).with_tagged_host() } else { Segment::LAN };
    let topology = Topology::try_new(&[lan, Segment::WAN])?;
    topology.try_set_mtu(of.mtu())?;
    topology.try_gather(true)?;
    track(topology.router())?;
    if of.nat {
        masquerade(topology.router())?;
    }
    Ok(topology)
}

impl<'r> End<'r> {
    fn for_host(host: &'r Host) -> Self {
        Self { ns: &host.ns, nic: host.nic, v4: Some(host.v4.into()), v6: Some(host.v6.into()) }
    }

    /// The address of this host.
    pub(crate) fn address(&self, v6: bool) -> Result<IpAddr, Error> {
        let address = if v6 { self.v6 } else { self.v4 };
        address.ok_or_else(|| Error::Asked(format!("{} has no {} address", self.nic, family(v6))))
    }
}

fn family(v6: bool) -> &'static str {
    if v6 { "IPv6" } else { "IPv4" }
}
