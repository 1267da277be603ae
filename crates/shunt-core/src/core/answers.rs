//! What others ask about the state.

use super::Core;
use crate::{LinkLayer, PortView, Traffic, external::NO_ETHERNET, ports};
use shunt_api::RulesetStatus;
use shunt_wire::Mac;
use std::{net::IpAddr, time::Duration};

impl Core {
    /// The ports, in the order of their ifindex.
    pub fn ports(&self) -> impl Iterator<Item = (&crate::Link, &PortView)> {
        self.ports.iter().filter_map(|(ifindex, view)| Some((self.network.links.get(ifindex)?, view)))
    }

    /// Whether native XDP programs can run on a device, and whether frames can be redirected to it; `None` if the
    /// kernel has not reported it.
    pub fn xdp(&self, ifindex: u32) -> Option<(bool, bool)> {
        self.network.xdp.get(&ifindex).map(|xdp| (xdp.native, xdp.target))
    }

    /// The reason why a device cannot send by XDP whatever Shunt does; `None` if it can, or may be able to once a
    /// program is attached.
    pub fn lacks_xdp(&self, link: &crate::Link) -> Option<&'static str> {
        match self.xdp(link.ifindex) {
            _ if link.layer != LinkLayer::Ethernet => Some(NO_ETHERNET),
            Some((false, _)) => Some("the driver has no native XDP"),
            Some((true, false)) if link.kind.as_deref() == Some("veth") => Some(
                "its veth peer accepts no redirected frames (turn GRO on there, or attach an XDP program)",
            ),
            // Without features (before Linux 6.3) nobody knows; the port uses tc, and its reason says so.
            None | Some(_) => None,
        }
    }

    /// Whether the programs of a device are read.
    pub(crate) fn reads_programs_of(&self, ifindex: u32) -> bool {
        self.program_devices[0].contains(&ifindex)
    }

    /// The shortest time after which a bridge of the ports forgets a silent station, or a set an address that no packet
    /// refreshes; `None` without such bridges and sets.
    pub fn shortest_memory(&self) -> Option<Duration> {
        let ageing = self.network.ageing(self.ports.keys().copied());
        ageing.into_iter().chain(self.ruleset.shortest_timeout(&self.network, &self.ports)).min()
    }

    /// All devices.
    pub fn links(&self) -> impl Iterator<Item = &crate::Link> {
        self.network.links.values()
    }

    /// The addresses of the neighbours that have this MAC.
    pub fn neighbours_with(&self, mac: Mac) -> Vec<IpAddr> {
        self.network.addresses_of(mac).collect()
    }

    /// The effect of the ruleset on the fast path.
    pub fn ruleset(&self) -> RulesetStatus {
        self.ruleset.view(&self.network, &self.ports)
    }

    /// The rule for which none of this traffic may be learned, or why the rules are not known.
    pub fn holding_rule(&self, traffic: Traffic) -> String {
        self.ruleset.holding_rule(traffic, &self.network, &self.ports)
    }

    /// The device with this name.
    pub fn link(&self, name: &str) -> Option<&crate::Link> {
        self.network.links.values().find(|link| link.name == name)
    }

    /// The reason why a device cannot be a port, and the devices to name instead; `None` if the device can be a port.
    pub fn unfit(&self, link: &crate::Link) -> Option<String> {
        ports::unfit(&self.network, link)
    }

    /// The reason why a device is not a port; `None` if it is one.
    pub fn why_no_port(&self, link: &crate::Link) -> Option<String> {
        (!self.ports.contains_key(&link.ifindex)).then(|| self.choice.why_no_port(&self.network, link))
    }

    /// The device with this ifindex.
    pub fn link_at(&self, ifindex: u32) -> Option<&crate::Link> {
        self.network.links.get(&ifindex)
    }
}
