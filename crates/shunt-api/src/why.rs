//! The answer of `GET /v1/why`: whether connections are fast, and why not.

use crate::{
    engine::Engine,
    flows::{DirectionName, Tuple},
};
use serde::{Deserialize, Serialize};

/// The connections that match a selection, and why each is fast or slow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The first matching connections.
    pub connections: Vec<Explained>,
    /// The number of further matching connections, which are left out; 0 if the list is complete.
    pub more: u64,
}

/// A connection, and why its directions are fast or slow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explained {
    /// The IP protocol number, such as 6 for TCP.
    pub protocol: u8,
    /// Whether the connection is in conntrack's table.
    pub tracked: bool,
    /// The state that conntrack reports, such as `ESTABLISHED`; absent for protocols without states, and for untracked
    /// connections.
    pub state: Option<String>,
    /// The directions, the original one first.
    pub directions: Vec<Why>,
}

/// One direction of a connection, and why it is fast or slow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    /// The direction.
    pub dir: DirectionName,
    /// `src`, `dst`, `sport` and `dport` of arriving packets, before any translation.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// Whether packets of this direction take the fast path. False while `idle` is there.
    pub fast: bool,
    /// The time without a packet; absent if packets come, or if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// Seconds since the direction became slow, or, if it is fast, since its flow was first learned: it may have been
    /// slow for a while after that. Absent if that is not known.
    pub since_s: Option<u64>,
    /// The engine that sends the packets; absent if the direction is slow.
    pub engine: Option<Engine>,
    /// The port through which packets arrive; absent if that is not known.
    pub in_port: Option<String>,
    /// The port through which packets leave; absent if that is not known.
    pub out_port: Option<String>,
    /// Why the direction is slow, or was slow before it became idle; if it is fast, why some of its packets are slow.
    /// Absent if it is fast, or was fast.
    pub because: Option<Because>,
}

/// No packet comes, so the direction is neither fast nor slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Idle {
    /// Seconds since the last packet; absent if they are not known.
    pub for_s: Option<u64>,
    /// Whether it may be longer: conntrack does not tell which direction its last packet was of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Whether packets took the fast path before; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_fast: Option<bool>,
}

impl Idle {
    /// What stands before its seconds in a sentence: "at least ", or nothing.
    pub const fn least(&self) -> &'static str {
        if self.at_least { "at least " } else { "" }
    }
}

/// A reason, explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Because {
    /// The name of the reason, as in [`crate::Status::reasons`] and [`crate::Status::refusals`].
    pub reason: String,
    /// The meaning of the reason, in one sentence.
    pub meaning: String,
    /// Further facts about this connection; may be empty.
    pub detail: String,
    /// The remedy, as an instruction to the operator.
    pub remedy: String,
}
