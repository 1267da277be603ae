//! Settings of the router: address family, NAT, VLAN tags.

use serde::{Deserialize, Serialize};
use shunt_testkit::{Segment, Topology, rulesets};
use shunt_wire::{Tag, line::FCS_BYTES};
use std::fmt;

/// A router with ten rules between a LAN and a WAN. The default is the bench's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// Address family of the packets.
    pub family: Family,
    /// Whether traffic to the WAN is masqueraded.
    pub nat: bool,
    /// The change of the VLAN tag.
    pub tag: Tagging,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Ipv4,
    Ipv6,
}

/// The side of the router on which frames have a VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tagging {
    /// No side.
    None,
    /// The LAN: the tag of a packet to the WAN is popped.
    Popped,
    /// The WAN: a tag is pushed onto a packet to the WAN.
    Pushed,
}

/// The VLAN of tagged frames.
const TAGS: &[Tag] = &[Tag::vlan(10)];
const SMALLEST: u32 = 64;

impl Default for Setting {
    fn default() -> Self {
        Self { family: Family::Ipv4, nat: true, tag: Tagging::None }
    }
}

impl Setting {
    /// Sets up the network.
    pub fn topology(self) -> Topology {
        let (mut lan, mut wan) = (Segment::LAN, Segment::WAN);
        match self.tag {
            Tagging::None => {}
            Tagging::Popped => lan = lan.tagged(TAGS),
            Tagging::Pushed => wan = wan.tagged(TAGS),
        }
        let lab = Topology::new(&[lan, wan]);
        for (rules, wanted) in [(rulesets::TEN_RULES, true), (rulesets::MASQUERADE, self.nat)] {
            if wanted {
                lab.router().nft(&by_gateways(&lab, rules));
            }
        }
        // Keep connections while something else is measured.
        for timeout in ["udp_timeout", "udp_timeout_stream"] {
            lab.router().sysctl(&format!("netfilter/nf_conntrack_{timeout}"), 600);
        }
        lab.pin_neighbours();
        lab
    }

    /// The smallest frame with FCS on a segment with these tags: 64 bytes if the UDP headers fit, otherwise more.
    pub fn frame_bytes(self, tags: &[Tag]) -> u32 {
        let l3 = match self.family {
            Family::Ipv4 => 20,
            Family::Ipv6 => 40,
        };
        SMALLEST.max(14 + 4 * tags.len() as u32 + l3 + 8 + FCS_BYTES)
    }
}

/// Replaces port names in rules by the devices that have the addresses.
fn by_gateways(lab: &Topology, rules: &str) -> String {
    lab.hosts().iter().fold(rules.to_owned(), |rules, host| {
        rules.replace(&format!("\"{}\"", host.port), &format!("\"{}\"", host.gateway))
    })
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        };
        let tag = match self.tag {
            Tagging::None => "",
            Tagging::Popped => ", VLAN popped",
            Tagging::Pushed => ", VLAN pushed",
        };
        write!(f, "{family}{}{tag}", if self.nat { " NAT" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_of_64_bytes_where_the_headers_fit() {
        let [v4, v6] = [Family::Ipv4, Family::Ipv6].map(|family| Setting { family, ..Setting::default() });
        assert_eq!((v4.frame_bytes(&[]), v4.frame_bytes(TAGS)), (64, 64));
        // 14 + 40 + 8 + 4, and 4 for a tag.
        assert_eq!((v6.frame_bytes(&[]), v6.frame_bytes(TAGS)), (66, 70));
    }
}
