//! Events of flows: the answer of `GET /v1/watch`.

use crate::{
    flows::{Proto, Tuple},
    selection::Selection,
    tracked::Counted,
};
use serde::{Deserialize, Serialize};

/// An event, sent when it happens: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum WatchEvent {
    /// An action was proved, and the flow was added to the table.
    Learn(FlowEvent),
    /// The flow is in use from now on.
    Activate(FlowEvent),
    /// A packet that belongs to a flow of the table took the slow path.
    Punt(FlowEvent),
    /// Linux forwarded a packet, and nothing could be learned from it.
    Refuse(FlowEvent),
    /// The flow was taken out of use.
    Retire(FlowEvent),
    /// Conntrack has forgotten a connection. Reported five seconds later, when the counts of its flows are final.
    End(ConnectionEnd),
    /// The epoch moved: every learned action must be proved again.
    Epoch {
        /// Microseconds since 1970-01-01 UTC.
        at_us: u64,
        /// The new epoch.
        epoch: u32,
        /// The kind of change in Linux, such as `route` or `ruleset`.
        cause: String,
    },
    /// Events were lost, because they arrived faster than the client read them.
    Lost {
        /// The number of lost events.
        count: u64,
    },
}

/// The flow, which is one direction of a connection, that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowEvent {
    /// Microseconds since 1970-01-01 UTC.
    pub at_us: u64,
    /// The transport protocol.
    pub proto: Proto,
    /// `src`, `dst`, `sport` and `dport` of arriving packets, before any translation.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// The name of the port through which packets arrive.
    pub port: String,
    /// The VLAN tags of arriving packets, outermost first; empty without tags.
    pub vlans: Vec<u16>,
    /// The name of the reason; absent for events without one.
    pub reason: Option<String>,
}

/// A connection that has ended, with all packets of its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConnectionEnd {
    /// Microseconds since 1970-01-01 UTC at which conntrack forgot the connection.
    pub at_us: u64,
    /// The IP protocol number, such as 6 for TCP.
    pub protocol: u8,
    /// The original direction: that of the first packet.
    pub orig: EndedDirection,
    /// The reply direction.
    pub reply: EndedDirection,
}

/// One direction of a connection that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndedDirection {
    /// Addresses and ports as in conntrack; the ports are 0 for protocols without ports.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// All packets of this direction, slow and fast; absent if conntrack did not count those that Linux forwarded.
    pub count: Option<Counted>,
    /// The packets that took the fast path while the daemon ran.
    pub fast: Counted,
}

impl WatchEvent {
    /// The name of the event, as in JSON, and its flow; no flow for `end`, `epoch` and `lost`.
    pub const fn parts(&self) -> (&'static str, Option<&FlowEvent>) {
        match self {
            Self::Learn(flow) => ("learn", Some(flow)),
            Self::Activate(flow) => ("activate", Some(flow)),
            Self::Punt(flow) => ("punt", Some(flow)),
            Self::Refuse(flow) => ("refuse", Some(flow)),
            Self::Retire(flow) => ("retire", Some(flow)),
            Self::End(_) => ("end", None),
            Self::Epoch { .. } => ("epoch", None),
            Self::Lost { .. } => ("lost", None),
        }
    }

    /// Whether the event is about a selected flow, or about no flow. A selection matches the addresses and ports of
    /// either direction, as packets come in: translated ones are not known here.
    pub fn is_selected(&self, selection: &Selection) -> bool {
        if let Self::End(ConnectionEnd { protocol, orig, reply, .. }) = self {
            let proto = selection.proto.is_none_or(|proto| proto.number() == *protocol);
            return proto && [orig, reply].iter().any(|direction| selection.has_ends(&direction.tuple));
        }
        self.parts().1.is_none_or(|flow| {
            let Tuple { src, dst, sport, dport } = flow.tuple;
            selection.has(flow.proto, &[flow.tuple, Tuple { src: dst, dst: src, sport: dport, dport: sport }])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_json_object() {
        let text = r#"{"event":"retire","at_us":5,"proto":"tcp","src":"192.0.2.1","dst":"2001:db8::1","sport":1,
            "dport":2,"port":"eth0","vlans":[7],"reason":"tcp-flags"}"#;
        let event: WatchEvent = serde_json::from_str(text).unwrap();
        assert_eq!(event.parts().0, "retire");
        assert_eq!(event.parts().1.unwrap().tuple.sport, 1);
        let back = serde_json::to_value(&event).unwrap();
        assert_eq!(back, serde_json::from_str::<serde_json::Value>(text).unwrap());
        let lost = serde_json::to_string(&WatchEvent::Lost { count: 3 }).unwrap();
        assert_eq!(lost, r#"{"event":"lost","count":3}"#);
    }
}
