//! Figures of a daemon's status, by their names.

use shunt_api::{Engine, Status};

/// Number of times the epoch moved for this cause.
#[must_use]
pub fn epoch_moves(status: &Status, cause: &str) -> u64 {
    status.epoch_moves.get(cause).copied().unwrap_or(0)
}

/// Number of packets that went to Linux for this reason.
#[must_use]
pub fn punts(status: &Status, reason: &str) -> u64 {
    status.reasons.get(reason).copied().unwrap_or(0)
}

/// Number of packets from which nothing was learned for this reason.
#[must_use]
pub fn refusals(status: &Status, reason: &str) -> u64 {
    status.refusals.get(reason).copied().unwrap_or(0)
}

/// Number of packets that this engine forwarded, over all ports.
#[must_use]
pub fn sent_by(engine: Engine, status: &Status) -> u64 {
    let by_port = status.ports.iter().map(|port| match engine {
        Engine::Tc => port.packets.tc,
        Engine::Xdp => port.packets.xdp,
        Engine::External => port.packets.external,
    });
    by_port.sum()
}

/// The engine that sends packets out of a port.
///
/// # Panics
/// If Shunt has no port of this name.
#[must_use]
#[track_caller]
pub fn port_engine(status: &Status, name: &str) -> Engine {
    let found = status.ports.iter().find(|port| port.name == name);
    found.unwrap_or_else(|| panic!("Shunt has no port {name}: {status:#?}")).engine
}

/// Whether packets from the other ports leave through a port by an engine. XDP takes them only where they arrive at its
/// program.
///
/// # Panics
/// If Shunt has no port of this name.
#[must_use]
#[track_caller]
pub fn is_sent_by(status: &Status, name: &str, engine: Engine) -> bool {
    let mut others = status.ports.iter().filter(|port| port.name != name);
    port_engine(status, name) == engine && (engine == Engine::Tc || others.any(|port| port.xdp_attached))
}
