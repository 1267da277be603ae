//! Connections, and hosts. Each number occurs once, so that a test can find it in the text.

use crate::{commands::hosts::totals::HostTotal, golden::sample};
use shunt_api::Connection;

/// The two connections below.
pub(crate) fn connections() -> Vec<Connection> {
    sample(include_str!("golden/flows.json"))
}

/// A masqueraded TCP connection from a VLAN, with both directions on the fast path by different engines.
pub(crate) fn tcp() -> Connection {
    connections().swap_remove(0)
}

/// An untranslated UDP connection that leaves with QinQ tags. Only one direction has a flow, and it is not yet in use.
pub(crate) fn udp6() -> Connection {
    connections().swap_remove(1)
}

/// A host with a name, and one without.
pub(crate) fn hosts() -> Vec<HostTotal> {
    sample(include_str!("golden/flows-by-host.json"))
}
