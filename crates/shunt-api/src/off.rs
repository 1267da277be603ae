//! Connections for which somebody has turned the fast path off: the messages of `/v1/off`.

use crate::selection::Selection;
use serde::{Deserialize, Serialize};

/// A rule: all packets of its connections take the slow path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OffRule {
    /// The connections that have a direction which meets all conditions.
    pub which: Selection,
    /// Seconds until the rule ends by itself; absent if it holds until somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_s: Option<u64>,
}

/// The body of `POST /v1/off`. A rule for the same connections is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OffRequest {
    /// The connections; at least one condition.
    pub which: Selection,
    /// After this many seconds the rule ends by itself; absent if it holds until somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
}

/// The body of `DELETE /v1/off`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct OffRemoval {
    /// The connections of the rule to remove; absent for all rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub which: Option<Selection>,
}

impl OffRule {
    /// The most rules of an instance.
    pub const MOST: usize = 32;
    /// The longest `for_s`: a year.
    pub const LONGEST_S: u64 = 365 * 86_400;
}
