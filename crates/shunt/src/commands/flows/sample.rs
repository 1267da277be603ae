//! Connections, and hosts. Each number occurs once, so that a test can find it in the text.

use crate::{
    commands::{hosts::totals::HostTotal, listed::Listed},
    golden::sample,
};
use shunt_api::{Connection, SlowConnection};

/// The three connections below.
pub(crate) fn connections() -> Vec<Listed> {
    sample(include_str!("golden/flows.json"))
}

/// A masqueraded TCP connection from a VLAN, with both directions on the fast path by different engines.
pub(crate) fn tcp() -> Connection {
    match connections().swap_remove(0) {
        Listed::Fast(tcp) => tcp,
        Listed::Slow(_) => panic!("the first one is fast"),
    }
}

/// An untranslated UDP connection that leaves with QinQ tags. Only one direction has a flow, and it is not yet in use.
pub(crate) fn udp6() -> Connection {
    match connections().swap_remove(1) {
        Listed::Fast(udp) => udp,
        Listed::Slow(_) => panic!("the second one is fast"),
    }
}

/// A TCP connection that Linux forwards in both directions.
pub(crate) fn slow() -> SlowConnection {
    match connections().swap_remove(2) {
        Listed::Slow(slow) => slow,
        Listed::Fast(_) => panic!("the third one is slow"),
    }
}

/// A host with a name, and one without.
pub(crate) fn hosts() -> Vec<HostTotal> {
    sample(include_str!("golden/flows-by-host.json"))
}
