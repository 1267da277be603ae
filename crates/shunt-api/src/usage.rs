//! Who used the line: the answer of `GET /v1/usage`.

use crate::tracked::Counted;
use serde::{Deserialize, Serialize};
use shunt_wire::Mac;
use std::net::IpAddr;

/// A period that the ledger is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum UsageSpan {
    /// The last 60 minutes, by minute.
    Hour,
    /// The last 24 hours, by hour.
    #[default]
    Day,
    /// The last 7 days, by hour.
    Week,
    /// The last 31 days, by day.
    Month,
}

/// The size of the steps of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum StepSize {
    /// Minutes; the last 60 are kept.
    Minute,
    /// Hours; the last 168 are kept.
    Hour,
    /// Days of UTC; the last 31 are kept.
    Day,
}

/// What is asked for: the parameters of the query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct UsageQuery {
    /// The period, until now; `day` if absent. Not together with `from`.
    #[cfg_attr(feature = "openapi", param(inline))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<UsageSpan>,
    /// The period, in seconds until now. Not together with `span` or `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_s: Option<u64>,
    /// Seconds since 1970 at which the period begins. The last 60 minutes, 168 hours and 31 days are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The size of the steps; if absent, the finest that reach as far back.
    #[cfg_attr(feature = "openapi", param(inline))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepSize>,
    /// Seconds since 1970 at which the period ends; now if absent. Needs `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Only the host with this name, MAC or address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether each host is listed by step, too.
    pub steps: bool,
}

/// What hosts sent and received in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Seconds since 1970 at which the period begins: that of its first step.
    pub from: u64,
    /// Seconds since 1970 at which the period ends: not later than `now`, though the last step may go on.
    pub to: u64,
    /// Seconds since 1970 of the last reading: the present, or, if no daemon runs, when the last one ended or wrote its
    /// file.
    #[serde(default)]
    pub now: u64,
    /// Seconds of a step: 60, 3600 or 86400 (days of UTC).
    pub step_s: u64,
    /// Seconds of the period in which the daemon counted.
    pub counted_s: u64,
    /// Whether a daemon ended in the period without writing what it had counted, as after a crash: all counts are too
    /// small. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Whether conntrack counts packets now (net.netfilter.nf_conntrack_acct). If not, only the fast path is counted.
    pub accounting: bool,
    /// The hosts, those with most bytes first; those without a packet in the period are left out.
    pub hosts: Vec<HostUsage>,
    /// The sum of hosts that are no longer listed, and of local addresses without a neighbour.
    pub others: UsageCount,
    /// Hosts that `others` includes; 0 if the ledger still had room for every host.
    pub merged_hosts: u64,
    /// What the router itself sent and received.
    pub router: UsageCount,
    /// What the ports received, and how much of it is attributed.
    pub total: UsageTotal,
    /// The whole period by step, oldest first.
    pub steps: Vec<UsageStep>,
}

/// A host of the local side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostUsage {
    /// The name from a DHCP lease or /etc/hosts; absent if neither has an address of the host.
    pub name: Option<String>,
    /// The MAC; absent for hosts behind a port without layer 2.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mac: Option<Mac>,
    /// The addresses, the latest first; at most [`HostUsage::ADDRESSES_MAX`].
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub addresses: Vec<IpAddr>,
    /// Seconds since 1970 at which the host was last seen to send or receive.
    pub seen: u64,
    /// What it sent and received in the period.
    #[serde(flatten)]
    pub count: UsageCount,
    /// The same by step, in the order of [`Usage::steps`]; null for steps that were not counted; empty unless asked
    /// for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Option<UsageCount>>,
}

/// What was sent (upload) and received (download), as the host sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageCount {
    /// Sent by the host.
    pub sent: Counted,
    /// Received by the host.
    pub received: Counted,
    /// The part of both that took the fast path; the rest took the slow path. Absent if part of the period was counted
    /// by a version that did not tell the paths apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<FastCount>,
}

/// The part of a count that took the fast path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FastCount {
    /// Sent by the host.
    pub sent: Counted,
    /// Received by the host.
    pub received: Counted,
}

/// The ports' counters, and how far the ledger explains them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageTotal {
    /// Everything that the ports received.
    pub received: Counted,
    /// Part of it between two hosts of the local side, or a host and the router: counted for both.
    pub local: Counted,
    /// Part of it without a host of the local side at either end.
    pub transit: Counted,
    /// Part of it that no connection explains.
    pub not_attributed: Counted,
    /// Part of it that took the fast path; absent if part of the period was counted by a version that did not tell the
    /// paths apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<Counted>,
}

/// A step of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageStep {
    /// Seconds since 1970 at which the step begins.
    pub at: u64,
    /// Seconds of the step in which the daemon counted. With 0, the counts below are null: nobody knows them.
    pub counted_s: u64,
    /// Sent by the selected hosts, and, unless a host was asked for, by `others` and the router.
    pub sent: Option<Counted>,
    /// Received by the same.
    pub received: Option<Counted>,
    /// The part of both that took the fast path; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<FastCount>,
    /// The ports' counters.
    pub total: Option<UsageTotal>,
    /// As for the whole period: a daemon ended in this step without writing what it had counted. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

impl HostUsage {
    /// The most addresses of a host that are remembered.
    pub const ADDRESSES_MAX: usize = 8;
}

impl UsageCount {
    /// Bytes, sent and received.
    pub const fn bytes(&self) -> u64 {
        self.sent.bytes.saturating_add(self.received.bytes)
    }
}

impl FastCount {
    /// Bytes, sent and received.
    pub const fn bytes(&self) -> u64 {
        self.sent.bytes.saturating_add(self.received.bytes)
    }
}

impl UsageStep {
    /// What was counted; none if nobody counted.
    pub fn count(&self) -> Option<UsageCount> {
        Some(UsageCount { sent: self.sent?, received: self.received?, fast: self.fast })
    }
}

impl UsageQuery {
    /// The query of a request: `span=month&steps=true`.
    pub fn query(&self) -> String {
        let Self { span, last_s, step, from, to, host, steps } = self;
        let step = step.map(|step| match step {
            StepSize::Minute => "minute",
            StepSize::Hour => "hour",
            StepSize::Day => "day",
        });
        let given = [
            step.map(|step| format!("step={step}")),
            span.map(|span| format!("span={}", span.name())),
            last_s.map(|last_s| format!("last_s={last_s}")),
            from.map(|from| format!("from={from}")),
            to.map(|to| format!("to={to}")),
            host.as_ref().map(|host| format!("host={}", host.replace('%', "%25").replace(':', "%3A"))),
            steps.then(|| "steps=true".to_owned()),
        ];
        given.into_iter().flatten().collect::<Vec<_>>().join("&")
    }
}

impl UsageSpan {
    /// The name, as in a query.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}
