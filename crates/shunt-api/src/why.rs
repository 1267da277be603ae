//! What `shunt why` shows.

use crate::{
    flows::{DirectionName, Tuple},
    status::Engine,
};
use serde::{Deserialize, Serialize};

/// Connections, and why they are fast or slow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The first of those that were asked for.
    pub connections: Vec<Explained>,
    /// How many more there are.
    pub more: u64,
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explained {
    /// The number of its protocol.
    pub protocol: u8,
    /// Whether conntrack knows it.
    pub tracked: bool,
    /// What conntrack calls its state, of TCP and SCTP.
    pub state: Option<String>,
    /// The original direction and the reply direction.
    pub directions: Vec<Why>,
}

/// One direction, and why it is fast or slow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    /// Which direction it is.
    pub dir: DirectionName,
    /// `src`, `dst`, `sport`, `dport`: as on the wire where its packets come in.
    #[serde(flatten)]
    pub tuple: Tuple,
    /// Whether its packets take the fast path.
    pub fast: bool,
    /// Since when, as far as that is known.
    pub since_s: Option<u64>,
    /// How its packets are sent on the fast path.
    pub engine: Option<Engine>,
    /// Where they come in, if that is known.
    pub in_port: Option<String>,
    /// Where they leave, if that is known.
    pub out_port: Option<String>,
    /// Why it is slow.
    pub because: Option<Because>,
}

/// A reason in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Because {
    /// Its name, as in [`crate::Status::reasons`] and [`crate::Status::refusals`].
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// What is known of this connection; may be empty.
    pub detail: String,
    /// What would change it.
    pub remedy: String,
}
