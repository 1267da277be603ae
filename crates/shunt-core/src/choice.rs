//! What the configuration asks of the policy.

use shunt_api::{CaptureChoice, EngineChoice, LimitChoice};

/// The part of the configuration that the policy follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The names of the ports; empty for all devices that forward traffic.
    pub ports: Vec<String>,
    /// The engine that ports use where they can.
    pub engine: EngineChoice,
    /// The ports of the external engine, if `engine` is another one.
    pub external_ports: Vec<String>,
    /// The treatment of the flows of a port while a packet socket captures there.
    pub captures: CaptureChoice,
    /// The treatment of traffic that rules drop by its rate, its amount or its connections.
    pub limits: LimitChoice,
    /// The most ports, if this machine has no memory for as many as an instance can have.
    pub ports_max: Option<usize>,
}
