//! How the traffic of a bench differs from the plainest: one flow of UDP over IPv4 through a router that does not
//! translate, without tags.

use super::{Testbed, TrafficSpec};
use crate::{Labels, Protocol};
use serde::{Deserialize, Serialize};
use shunt_gen::Schedule;
use shunt_wire::Tag;
use std::{fmt, time::Duration};

/// Number of packets of each flow before a measurement, enough for a fast path to learn it.
const WARM_UP_PACKETS: f64 = 4.0;

/// Differences from one flow of UDP over IPv4 without NAT, such as `IPv6, NAT, VLAN 10, 100 flows`; empty if there are
/// none. Readings of different variants have different names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variant(String);

impl Variant {
    /// Whether the traffic is one flow of IPv4 without NAT.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These differences, and another one.
    #[must_use]
    pub(crate) fn and(&self, other: &str) -> Self {
        Self(if self.is_empty() { other.to_owned() } else { format!("{self}, {other}") })
    }

    /// `name` with the differences, if there are any: `slow 64, NAT`.
    pub fn name(&self, name: &str) -> String {
        if self.is_empty() { name.to_owned() } else { format!("{name}, {self}") }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TrafficSpec {
    /// Number of flows in each direction.
    pub fn flows(&self) -> u32 {
        self.shape.flows.unwrap_or(1)
    }

    /// The variant of this traffic. Connections that are counted by their answers are always translated, and have none.
    pub fn variant(&self) -> Variant {
        if self.answered {
            return Variant::default();
        }
        self.with(&[])
    }

    /// As [`TrafficSpec::variant`], for figures of all directions together.
    pub(crate) fn variant_of_sum(&self) -> Variant {
        if self.answered { Variant::default() } else { self.with(&[self.both_directions()]) }
    }

    /// As [`TrafficSpec::variant_of_sum`], for figures that do not name their frame size.
    pub(crate) fn variant_with_sizes(&self) -> Variant {
        if self.answered {
            return Variant::default();
        }
        let sizes = &self.shape.sizes;
        let is_least = self.fit(None).is_ok_and(|least| least == *sizes);
        self.with(&[(!is_least).then(|| format!("{sizes} bytes")), self.both_directions()])
    }

    fn both_directions(&self) -> Option<String> {
        self.both.then(|| "both directions".to_owned())
    }

    fn with(&self, others: &[Option<String>]) -> Variant {
        let all = [
            self.shape.tcp.map(|_| "TCP".to_owned()),
            (!self.is_ipv4()).then(|| "IPv6".to_owned()),
            self.nat.then(|| "NAT".to_owned()),
            self.vlans(),
            (self.flows() > 1).then(|| format!("{} flows", self.flows())),
        ];
        let names: Vec<&str> = all.iter().chain(others).flatten().map(String::as_str).collect();
        Variant(names.join(", "))
    }

    /// The tags of both links, such as `VLAN 10` or `VLAN 10:20`; None without tags.
    fn vlans(&self) -> Option<String> {
        let ids = |tags: &[Tag]| tags.iter().map(|tag| tag.vid.to_string()).collect::<Vec<_>>().join(".");
        match [&self.shape.tags, &self.far_tags].map(|tags| ids(tags)) {
            [near, far] if near.is_empty() && far.is_empty() => None,
            [near, far] if far.is_empty() => Some(format!("VLAN {near}")),
            [near, far] => Some(format!("VLAN {near}:{far}")),
        }
    }

    /// The labels of readings of this traffic. Whether a router that is not our own translates is unknown.
    pub(crate) fn labels(&self, testbed: &Testbed) -> Labels {
        Labels {
            protocol: Some(if self.shape.tcp.is_some() { Protocol::Tcp } else { Protocol::Udp }),
            ip: Some(if self.is_ipv4() { 4 } else { 6 }),
            nat: (*testbed == Testbed::Own).then_some(self.nat),
            tags: Some(self.shape.tags.len().max(self.far_tags.len()) as u8),
            flows: Some(self.flows()),
            ..Labels::default()
        }
    }

    /// A warm-up, prolonged if it has too few packets for all flows.
    pub(crate) fn warm_up_for_all(&self, one: Schedule) -> Schedule {
        let all = one.pps.map(|pps| Duration::from_secs_f64(f64::from(self.flows()) * WARM_UP_PACKETS / pps));
        Schedule { duration: one.duration.max(all), ..one }
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.shape.source.first.is_ipv4()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_gen::Shape;
    use std::net::SocketAddr;

    fn spec(address: &str, flows: Option<u32>, nat: bool) -> TrafficSpec {
        let end: SocketAddr = address.parse().unwrap();
        let shape = Shape { flows, ..Shape::udp(end, end, "78".parse().unwrap()) };
        TrafficSpec { nat, ..TrafficSpec::for_shape(shape) }
    }

    #[test]
    fn each_variant_has_a_name_and_labels_of_its_own() {
        for (spec, name) in [
            (spec("0.0.0.0:1", None, false), "slow 64"),
            (spec("0.0.0.0:1", Some(1), false), "slow 64"),
            (spec("0.0.0.0:1", None, true), "slow 64, NAT"),
            (spec("[::]:1", Some(100), true), "slow 64, IPv6, NAT, 100 flows"),
        ] {
            assert_eq!(spec.variant().name("slow 64"), name);
            let Labels { ip, nat, flows, .. } = spec.labels(&Testbed::Own);
            let six = if name.contains("IPv6") { 6 } else { 4 };
            let many = if name.contains("flows") { 100 } else { 1 };
            assert_eq!((ip, nat, flows), (Some(six), Some(name.contains("NAT")), Some(many)));
        }
        let answered = TrafficSpec { answered: true, ..spec("0.0.0.0:1", Some(100), true) };
        assert!(answered.variant().is_empty());
    }

    #[test]
    fn a_warm_up_has_packets_of_each_flow() {
        let one =
            Schedule { pps: Some(1000.0), burst: 1, packets: None, duration: Some(Duration::from_secs(2)) };
        let seconds =
            |flows| spec("0.0.0.0:1", Some(flows), false).warm_up_for_all(one).duration.unwrap().as_secs();
        assert_eq!([1, 500, 1000].map(seconds), [2, 2, 4]);
    }
}
