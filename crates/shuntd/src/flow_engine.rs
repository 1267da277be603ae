//! Which engine sends the packets of a flow, and why it is not that of its ports.

use shunt_api::Engine;
use shunt_bpf::{DataPlane, XdpProgram, abi};

/// What decides about the flows that arrive or leave through a port.
#[derive(Debug, Clone)]
pub(crate) struct PortEngine {
    pub(crate) name: String,
    /// The engine that sends out of the port, and why.
    pub(crate) sends: Engine,
    pub(crate) reason: String,
    /// The engine whose XDP program the port has; `None` if tc gets all packets.
    pub(crate) program: Option<Engine>,
    /// The same, but `None` if all packets so far have gone past the program.
    pub(crate) before_tc: Option<Engine>,
}

impl PortEngine {
    /// The engine that sends the packets which arrive through this port.
    pub(crate) fn engine_of_flow(&self, flow_flags: u8) -> Engine {
        self.before_tc.filter(|_| flow_flags & abi::FLOW_XDP != 0).unwrap_or(Engine::Tc)
    }

    /// Why tc sends packets that arrive through this port and leave through `out`; `None` if another engine does, or if
    /// tc sends out of both ports.
    pub(crate) fn why_tc(&self, out: &Self, flow_flags: u8) -> Option<String> {
        if self.engine_of_flow(flow_flags) != Engine::Tc
            || (self.sends, out.sends) == (Engine::Tc, Engine::Tc)
        {
            return None;
        }
        let Self { name, sends, reason, .. } = self;
        Some(match (self.program, out.sends) {
            (_, Engine::Tc) => format!("{} sends by tc: {}", out.name, out.reason),
            (None, _) if *sends == Engine::Tc => format!("tc receives on {name}: {reason}"),
            (None, _) => format!("tc receives on {name}, which has no XDP program now"),
            (Some(program), _) if program != out.sends => {
                format!("{name} receives by {program}, and {} sends by {}", out.name, out.sends)
            }
            _ if flow_flags & abi::FLOW_XDP == 0 => {
                format!(
                    "its last proof was for tc; the next one decides again whether {} takes it",
                    out.sends
                )
            }
            _ => format!(
                "so far all packets of {name} have gone past its XDP program, as aggregates (GRO, GSO) do"
            ),
        })
    }
}

/// The engine whose XDP program a port has; `None` if tc gets all packets.
pub(crate) fn engine_of_program(plane: &DataPlane, ifindex: u32) -> Option<Engine> {
    Some(match plane.xdp_program(ifindex)? {
        XdpProgram::Forward | XdpProgram::ForwardTags => Engine::Xdp,
        XdpProgram::External => Engine::External,
    })
}

/// The engine that gets the packets of a port before tc; `None` if tc gets all. A flow may be meant for XDP while only
/// tc sees its packets: the port runs no XDP program, or its packets are aggregates, which do not pass XDP. Only the
/// port's counters tell.
pub(crate) fn engine_before_tc(plane: &DataPlane, ifindex: u32) -> Option<Engine> {
    let counted = plane.counters(ifindex).unwrap_or_default();
    let engine = engine_of_program(plane, ifindex)?;
    let sent = if engine == Engine::External { counted.external_pkts } else { counted.xdp_pkts };
    (sent > 0 || counted.tc_pkts == 0).then_some(engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_of_tc_beside_another_engine_has_a_reason() {
        let port = |name: &str, sends, program: Option<Engine>| PortEngine {
            name: name.to_owned(),
            sends,
            reason: format!("why {name}"),
            program,
            before_tc: program,
        };
        let (xdp, tc) = (Engine::Xdp, Engine::Tc);
        let lan = port("lan0", xdp, Some(xdp));
        let why = |into: &PortEngine, out: &PortEngine, flags| into.why_tc(out, flags).unwrap_or_default();
        let by_xdp = abi::FLOW_XDP;
        assert_eq!(why(&lan, &port("lan1", xdp, Some(xdp)), by_xdp), "");
        assert_eq!(why(&port("a", tc, None), &port("b", tc, None), 0), "");
        let wan = port("wan0", tc, None);
        assert_eq!(why(&lan, &wan, 0), "wan0 sends by tc: why wan0");
        assert_eq!(why(&wan, &lan, by_xdp), "tc receives on wan0: why wan0");
        assert_eq!(
            why(&port("b", xdp, None), &lan, by_xdp),
            "tc receives on b, which has no XDP program now"
        );
        let external = port("e", Engine::External, Some(Engine::External));
        assert_eq!(why(&external, &lan, 0), "e receives by external, and lan0 sends by xdp");
        assert!(why(&lan, &lan, 0).contains("the next one decides again whether xdp"));
        let past = PortEngine { before_tc: None, ..lan.clone() };
        assert!(why(&past, &lan, by_xdp).contains("past its XDP program"));
    }
}
