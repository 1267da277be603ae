//! Connections for which somebody has turned the fast path off: the messages of `/v1/off`.

use crate::{host_names::EndNames, selection::Selection};
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
    /// Who added the rule.
    #[serde(default, skip_serializing_if = "OffBy::is_owner")]
    pub by: OffBy,
    /// The names that its hosts had when it was added.
    #[serde(default, skip_serializing_if = "EndNames::are_none")]
    pub names: EndNames,
}

/// Who turned the fast path off for some connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OffBy {
    /// Somebody, by `shunt off`.
    #[default]
    Owner,
    /// `shunt verify`, which compares the slow path with the fast one.
    Verify,
    /// `shunt quality --off`, which sees all packets on the slow path.
    Quality,
}

/// Why a rule ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OffEnd {
    /// Its time was over.
    Time,
    /// Its time was over while no daemon ran.
    TimeWithoutDaemon,
    /// Somebody removed it: `shunt on`, or the command that had added it.
    Removed,
    /// Another rule for the same connections took its place.
    Replaced,
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
    /// Who asks for it.
    #[serde(default, skip_serializing_if = "OffBy::is_owner")]
    pub by: OffBy,
    /// The names of the hosts, for people who read the rules and the history.
    #[serde(default, skip_serializing_if = "EndNames::are_none")]
    pub names: EndNames,
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

impl OffBy {
    /// The command, as one types it.
    pub const fn command(&self) -> &'static str {
        match self {
            Self::Owner => "shunt off",
            Self::Verify => "shunt verify",
            Self::Quality => "shunt quality --off",
        }
    }

    /// Whether the rule is one of `shunt off`.
    pub const fn is_owner(&self) -> bool {
        matches!(self, Self::Owner)
    }
}

impl OffRule {
    /// The most rules of an instance.
    pub const MOST: usize = 32;
    /// The longest `for_s`: a year.
    pub const LONGEST_S: u64 = 365 * 86_400;
}
