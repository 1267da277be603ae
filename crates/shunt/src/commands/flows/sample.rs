//! Connections, and hosts. Each number occurs once, so that a test can find it in the text.

use crate::{
    commands::{hosts::totals::HostTotal, listed::Listed},
    golden::sample,
};
use shunt_api::{Connection, SlowConnection};

/// The three connections below, and one that is fast in one direction only.
pub(crate) fn connections() -> Vec<Listed> {
    sample(include_str!("golden/flows.json"))
}

/// A masqueraded TCP connection from a VLAN, with both directions on the fast path by different engines.
pub(crate) fn tcp() -> Connection {
    match connections().swap_remove(0) {
        Listed::Fast(tcp) => tcp,
        _ => panic!("the first one is fast"),
    }
}

/// An untranslated UDP connection that leaves with QinQ tags. Only one direction has a flow, and it is not yet in use.
pub(crate) fn udp6() -> Connection {
    match connections().swap_remove(1) {
        Listed::Fast(udp) => udp,
        _ => panic!("the second one is fast"),
    }
}

/// A TCP connection that Linux forwards in both directions.
pub(crate) fn slow() -> SlowConnection {
    match connections().swap_remove(2) {
        Listed::Slow(slow) => slow,
        _ => panic!("the third one is slow"),
    }
}

/// A host with a name, and one without.
pub(crate) fn hosts() -> Vec<HostTotal> {
    sample(include_str!("golden/flows-by-host.json"))
}
