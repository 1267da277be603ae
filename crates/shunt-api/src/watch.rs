//! What `shunt watch` shows.

use crate::flows::{Proto, Tuple};
use serde::{Deserialize, Serialize};

/// Something that happened, as it happened; a line of JSON each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum WatchEvent {
    /// An action was proved and put into the table.
    Learn(FlowEvent),
    /// The flow is in use from this packet on.
    Activate(FlowEvent),
    /// A packet of a flow of the table went to Linux.
    Punt(FlowEvent),
    /// Linux forwarded a packet that taught nothing.
    Refuse(FlowEvent),
    /// The flow was taken out of use.
    Retire(FlowEvent),
    /// Every learned action is to be proved anew.
    Epoch {
        /// Microseconds since 1970.
        at_us: u64,
        /// The new epoch.
        epoch: u32,
        /// What changed.
        cause: String,
    },
    /// Events were not told: they came faster than they were read.
    Lost {
        /// How many.
        count: u64,
    },
}

/// What happened to one direction of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowEvent {
    /// Microseconds since 1970.
    pub at_us: u64,
    /// TCP or UDP.
    pub proto: Proto,
    /// `src`, `dst`, `sport`, `dport`: as on the wire where its packets come in.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// Where they come in.
    pub port: String,
    /// With these tags, outermost first.
    pub vlans: Vec<u16>,
    /// Why, where there is a reason.
    pub reason: Option<String>,
}

impl WatchEvent {
    /// Its name and, if it is about one, its flow.
    pub const fn parts(&self) -> (&'static str, Option<&FlowEvent>) {
        match self {
            Self::Learn(flow) => ("learn", Some(flow)),
            Self::Activate(flow) => ("activate", Some(flow)),
            Self::Punt(flow) => ("punt", Some(flow)),
            Self::Refuse(flow) => ("refuse", Some(flow)),
            Self::Retire(flow) => ("retire", Some(flow)),
            Self::Epoch { .. } => ("epoch", None),
            Self::Lost { .. } => ("lost", None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
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
