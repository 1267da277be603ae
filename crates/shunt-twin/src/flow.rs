//! The flows of an episode: their ends, and how the router translates them.
//!
//! Every flow has a source port that no other flow has, and a public and an inner port where it needs them. So Linux
//! never has to choose a port, which it would do at random.

use crate::site::Site;
use shunt_wire::Mac;
use std::{fmt, net::SocketAddr};

/// How a flow crosses the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Routed,
    Masquerade,
    /// SNAT to another address and port.
    PortMap,
    /// DNAT to another address and port.
    Forwarded,
    /// DNAT and masquerade.
    Both,
    /// DNAT and masquerade, out of the bridge on which it arrived.
    Hairpin,
    /// Bridged between two stations, not routed.
    Bridged,
    Routed6,
    Masquerade6,
    PortMap6,
    Forwarded6,
    Bridged6,
}

/// The protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Speech {
    Udp,
    /// UDP without answers.
    OneWay,
    Tcp,
    /// ICMP echo.
    Echo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) number: u16,
    pub(crate) kind: Kind,
    pub(crate) speech: Speech,
    pub(crate) from: Site,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// Destination after DNAT.
    pub(crate) inner: Option<SocketAddr>,
    /// Source after SNAT.
    pub(crate) outer: Option<SocketAddr>,
}

/// The number of kinds has no divisor in common with the other numbers that are used to choose by a flow's number.
const KINDS: [Kind; 13] = [
    Kind::Masquerade,
    Kind::Routed,
    Kind::Forwarded,
    Kind::Bridged,
    Kind::Routed6,
    Kind::PortMap,
    Kind::Masquerade6,
    Kind::Both,
    Kind::Bridged6,
    Kind::PortMap6,
    Kind::Bridged,
    Kind::Hairpin,
    Kind::Forwarded6,
];

/// Two thirds are UDP or TCP flows that may be fast.
const SPEECHES: [Speech; 8] = [
    Speech::Udp,
    Speech::Tcp,
    Speech::Udp,
    Speech::Tcp,
    Speech::OneWay,
    Speech::Tcp,
    Speech::Udp,
    Speech::Echo,
];

/// First source port. Changes name flows by ranges of source ports.
pub(crate) const SOURCES: u16 = 10_000;
/// First public port of the router.
const PUBLIC: u16 = 20_000;
/// First source port after SNAT.
const OUTER: u16 = 30_000;
/// First destination port after DNAT.
const INNER: u16 = 40_000;

impl Flow {
    pub(crate) fn new(number: u16) -> Self {
        let kind = KINDS[usize::from(number) % KINDS.len()];
        let speech = SPEECHES[usize::from(number) / KINDS.len() % SPEECHES.len()];
        // The maps of ports cannot translate ICMP.
        let mapped = !matches!(
            kind,
            Kind::Routed
                | Kind::Masquerade
                | Kind::Bridged
                | Kind::Routed6
                | Kind::Masquerade6
                | Kind::Bridged6
        );
        let speech = if speech == Speech::Echo && mapped { Speech::Udp } else { speech };
        let alternate = number / 7 % 2 == 1;
        let far = number.is_multiple_of(3);
        let (from, to) = ends(kind, alternate);
        let v6 = kind.is_v6();
        let source = from.at(v6, SOURCES + number);
        let far_end = if far { to.far(v6) } else { to.address(v6) };
        let (mut destination, mut inner, mut outer) = ((far_end, 5000 + number % 4).into(), None, None);
        match kind {
            Kind::Forwarded | Kind::Forwarded6 => {
                inner = Some(to.at(v6, INNER + number));
                destination = (from.gateway(v6), PUBLIC + number).into();
            }
            Kind::Both | Kind::Hairpin => {
                inner = Some(to.at(v6, INNER + number));
                destination = (Site::Wan.gateway(v6), PUBLIC + number).into();
            }
            Kind::PortMap | Kind::PortMap6 => outer = Some((Site::Wan.gateway(v6), OUTER + number).into()),
            Kind::Routed
            | Kind::Masquerade
            | Kind::Bridged
            | Kind::Routed6
            | Kind::Masquerade6
            | Kind::Bridged6 => {}
        }
        Self { number, kind, speech, from, source, destination, inner, outer }
    }

    /// Destination MAC of the client's packets.
    pub(crate) fn next_hop(&self) -> Mac {
        match (self.kind, self.from) {
            (Kind::Bridged | Kind::Bridged6, Site::Lan) => Site::Lan2.mac(),
            (Kind::Bridged | Kind::Bridged6, _) => Site::Lan.mac(),
            (_, from) => from.gateway_mac(),
        }
    }

    /// The protocol, as commands name it. Changes treat an echo flow as UDP, which then has no such packets.
    pub(crate) fn protocol(&self) -> &'static str {
        if self.speech == Speech::Tcp { "tcp" } else { "udp" }
    }

    /// The source port, by which changes name the flow.
    pub(crate) fn port(&self) -> u16 {
        self.source.port()
    }
}

impl Kind {
    pub(crate) fn is_v6(self) -> bool {
        matches!(self, Self::Routed6 | Self::Masquerade6 | Self::PortMap6 | Self::Forwarded6 | Self::Bridged6)
    }
}

/// The sites of client and server. The rules in ruleset.rs translate by these.
fn ends(kind: Kind, alternate: bool) -> (Site, Site) {
    match kind {
        Kind::Masquerade | Kind::PortMap => (if alternate { Site::Lan } else { Site::Lan2 }, Site::Wan),
        Kind::Routed if alternate => (Site::Wan, Site::Dmz),
        Kind::Routed => (Site::Dmz, Site::Wan),
        Kind::Forwarded => (Site::Wan, if alternate { Site::Lan } else { Site::Dmz }),
        Kind::Both => (Site::Lan, if alternate { Site::Wan } else { Site::Wan2 }),
        Kind::Hairpin => (Site::Lan, Site::Lan2),
        Kind::Bridged | Kind::Bridged6 if alternate => (Site::Lan2, Site::Lan),
        Kind::Bridged | Kind::Bridged6 => (Site::Lan, Site::Lan2),
        Kind::Routed6 if alternate => (Site::Wan, Site::Lan),
        Kind::Routed6 => (Site::Lan2, Site::Wan),
        Kind::Masquerade6 | Kind::PortMap6 => (Site::Dmz, Site::Wan),
        Kind::Forwarded6 => (Site::Wan, if alternate { Site::Lan } else { Site::Lan2 }),
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, speech, from, source, destination, .. } = self;
        write!(f, "flow {number} ({kind:?}, {speech:?}) from {from:?}: {source} > {destination}")
    }
}
