//! What can happen, and how it is told in one sentence.

use crate::{
    engine::Engine,
    off::{OffBy, OffEnd},
};
use serde::{Deserialize, Serialize};
use shunt_wire::units::{count, time};
use std::{fmt, net::IpAddr};

/// What happened, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happening {
    /// The daemon started.
    Started {
        /// Its version.
        version: String,
        /// Whether an earlier daemon of this instance ended without a stop: it was killed, or the machine lost its
        /// power. What it counted since its last file is lost.
        after_crash: bool,
    },
    /// The daemon was stopped.
    Stopped {
        /// Who stopped it, such as `signal` or `shunt down`.
        by: String,
        /// Flows that were active: Linux forwards their packets from then on, unless a restart takes them over. Absent
        /// if an older daemon noted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flows: Option<u64>,
    },
    /// Packets leave through a port by another engine.
    Engine {
        /// The port.
        port: String,
        /// The engine before; absent for a port that was added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Engine>,
        /// The engine from now on.
        to: Engine,
        /// The reason for the engine, in one sentence.
        why: String,
    },
    /// A device is no longer a port.
    PortRemoved {
        /// The device.
        port: String,
    },
    /// A port is up and has a carrier.
    PortUp {
        /// The port.
        port: String,
    },
    /// A port is down or has no carrier.
    PortDown {
        /// The port.
        port: String,
    },
    /// The last packet socket that captured on these ports was closed.
    CaptureEnded {
        /// The ports.
        ports: Vec<String>,
    },
    /// Rules stop learning, for some traffic at least.
    Held {
        /// The traffic or the first rule.
        why: String,
    },
    /// No rule stops learning any more.
    Released,
    /// All learned flows, or those that depend on something, were invalidated by a change.
    Invalidated {
        /// The kind of change, such as `ruleset` or `route`.
        cause: String,
        /// The device that changed, or that the change is about; absent if it is about no single device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// The table, chain, rule, set or route that changed, in words, as far as the kernel tells.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<String>,
    },
    /// A default route was added, changed or removed. Listed only if no [`Happening::Invalidated`] names the change.
    Route {
        /// The device that it leads to; absent if it leads to none, or to several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// The route and what became of it, in words.
        object: String,
    },
    /// A qdisc, or a TCX program of another, was added, changed or removed.
    Tc {
        /// The device.
        device: String,
        /// The object, its device and what became of it, in words of `tc`.
        object: String,
    },
    /// A neighbour has another MAC than when Linux knew it last: another network card, or another host with its
    /// address.
    Neighbour {
        /// The device.
        device: String,
        /// The address of the neighbour.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        address: IpAddr,
        /// Its MAC from now on.
        mac: String,
        /// The MAC that it had.
        was: String,
    },
    /// The daemon took over the flows of the one before, in a restart.
    FlowsKept {
        /// Entries of the flow tables: two for a connection.
        flows: u64,
        /// How long no daemon was in charge, in milliseconds.
        gap_ms: u64,
    },
    /// The daemon began without the flows of the one before, in a restart.
    FlowsLost {
        /// Why they could not be taken over.
        why: String,
    },
    /// The queues of a port were changed: its shaper, its classes or its policer.
    Queues {
        /// The port.
        port: String,
        /// What was changed, in words; absent if the port has no queues any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Who asked for it, such as `shunt qos`.
        by: String,
    },
    /// The fast path was turned off for some connections.
    OffAdded {
        /// The connections, in words of `shunt off`.
        which: String,
        /// Who turned it off.
        #[serde(default, skip_serializing_if = "OffBy::is_owner")]
        by: OffBy,
        /// Seconds after which the rule ends by itself; absent if it has no end, or if a measuring command added it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_s: Option<u64>,
    },
    /// The fast path was turned on again for these, or the time of the rule was over.
    OffRemoved {
        /// The connections, in words of `shunt off`.
        which: String,
        /// Who had turned it off.
        #[serde(default, skip_serializing_if = "OffBy::is_owner")]
        by: OffBy,
        /// Why the rule ended; absent if an older daemon noted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<OffEnd>,
    },
    /// `shunt verify` compared the fast path with the slow one.
    Verified {
        /// Its verdict.
        verdict: Verdict,
        /// How many connections it compared.
        connections: u16,
    },
    /// The configuration was read again.
    Reloaded {
        /// Who asked for it, such as `SIGHUP` or `shunt reload`.
        by: String,
        /// The keys that were changed; empty if there was nothing to change.
        keys: Vec<String>,
    },
    /// The configuration was read again and not applied.
    ReloadRefused {
        /// Who asked for it.
        by: String,
        /// What is wrong with the file, or what needs a restart.
        why: String,
    },
    /// A station changed its port or its address several times within a minute.
    Moving {
        /// The MAC of the station.
        station: String,
    },
    /// A station keeps changing its port or its address, so its traffic stays slow.
    Unstable {
        /// The MAC of the station; absent for all others, when many were named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        station: Option<String>,
    },
    /// The daemon has a fault.
    Fault {
        /// The fault, in one sentence.
        what: String,
    },
    /// The clock was set. The rows and events of the running daemon were moved with it.
    ClockSet {
        /// By how many seconds; negative if it was set back.
        by_s: i64,
    },
}

/// The body of `POST /v1/history`: what `shunt verify` has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Verified {
    /// Its verdict.
    pub verdict: Verdict,
    /// How many connections it compared.
    pub connections: u16,
}

/// Whether the two paths send the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every packet that was compared left as it should, in order, and none was lost, except those that Linux dropped.
    Equal,
    /// At least one did not.
    Differs,
    /// The run does not carry an answer.
    CannotTell,
}

/// An object and its device, unless the words of the object have it: a route or a sysctl.
fn about(object: Option<&str>, device: Option<&str>) -> String {
    let has = |object: &str, device: &str| {
        let dev = format!(" dev {device}");
        object.split_once(&dev).is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
            || object.contains(&format!(".conf.{device}."))
    };
    let is_new = |device: &&str| object.is_none_or(|object| !has(object, device));
    object.into_iter().chain(device.filter(is_new)).collect::<Vec<_>>().join(", ")
}

/// The kind of change as an owner calls it. `is_named` says whether the change itself follows.
fn in_words(cause: &str, is_named: bool) -> &str {
    match cause {
        "netconf" if is_named => "a setting of a device",
        "capture" => "a capture of packets on a port",
        "config" => "the configuration",
        "fdb" => "the table of a bridge",
        "filter" if is_named => "tc",
        "filter" => "a tc class, filter or program of another",
        "flush" => "`shunt flush`",
        "ipsec" => "an IPsec policy",
        "netconf" => "a setting of a device: a sysctl, or its port in a bridge",
        "nexthop" => "a nexthop",
        "off" => "`shunt off` or `shunt on`",
        "overrun" if is_named => "changes that were not seen",
        "overrun" => "messages of the kernel were lost",
        "quality" => "`shunt quality --off`",
        "rule" => "a policy rule (ip rule)",
        "verify" => "`shunt verify`",
        other => other,
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { version, after_crash: false } => {
                write!(f, "the daemon started, version {version}")
            }
            Self::Started { version, after_crash: true } => write!(
                f,
                "the daemon started, version {version}; the one before was killed or lost its power, and its last \
                 minutes are \
                 missing"
            ),
            Self::Stopped { by, flows: None } => write!(f, "the daemon was stopped by {by}"),
            Self::Stopped { by, flows: Some(flows) } => {
                let were = if *flows == 1 { "was" } else { "were" };
                write!(
                    f,
                    "the daemon was stopped by {by}; {} {were} fast at the last count",
                    count(*flows, "flow")
                )
            }
            Self::FlowsKept { flows, gap_ms } => {
                write!(
                    f,
                    "the restart kept {}; no daemon was in charge for {gap_ms} ms",
                    count(*flows, "flow")
                )
            }
            Self::FlowsLost { why } => {
                write!(f, "the restart lost all flows, which are learned again: {why}")
            }
            Self::Queues { port, to: Some(to), by } => write!(f, "{port}: queues changed ({by}): {to}"),
            Self::Queues { port, to: None, by } => write!(f, "{port}: queues removed ({by})"),
            Self::Engine { port, from: None, to, why } => write!(f, "{port}: a port, engine {to}: {why}"),
            Self::Engine { port, from: Some(from), to, why } => {
                write!(f, "{port}: engine {to} instead of {from}: {why}")
            }
            Self::PortRemoved { port } => write!(f, "{port}: no longer a port"),
            Self::PortUp { port } => write!(f, "{port}: link up"),
            Self::PortDown { port } => write!(f, "{port}: link down"),
            Self::CaptureEnded { ports } => write!(f, "{}: the capture of packets ended", ports.join(", ")),
            Self::Held { why } => write!(f, "learning off: {why}"),
            Self::Released => f.write_str("learning on again: no rule stops it"),
            Self::Invalidated { cause, device, object } => {
                f.write_str("flows had to prove themselves again; cause: ")?;
                let about = about(object.as_deref(), device.as_deref());
                let says_cause =
                    object.as_ref().is_some_and(|object| object.starts_with(&format!("{cause} ")));
                match (in_words(cause, object.is_some()), about.as_str()) {
                    (words, "") => f.write_str(words),
                    (_, about) if says_cause => f.write_str(about),
                    (words, about) => write!(f, "{words} ({about})"),
                }
            }
            Self::Route { device, object } => f.write_str(&about(Some(object), device.as_deref())),
            Self::Tc { object, .. } => f.write_str(object),
            Self::Neighbour { device, address, mac, was } => {
                write!(f, "neighbour {address} dev {device} has another MAC: {mac} (was {was})")
            }
            Self::OffAdded { which, by: OffBy::Owner, for_s: None } => {
                write!(f, "fast path turned off for {which}")
            }
            Self::OffAdded { which, by: OffBy::Owner, for_s: Some(for_s) } => {
                write!(f, "fast path turned off for {which}, for {}", time(*for_s))
            }
            Self::OffAdded { which, by: OffBy::Verify, .. } => {
                write!(f, "`shunt verify` compares the slow path: fast path paused for {which}")
            }
            Self::OffAdded { which, by: OffBy::Quality, .. } => {
                write!(f, "`shunt quality --off` measures on the slow path: fast path paused for {which}")
            }
            Self::OffRemoved { which, by, end } => {
                let what = match (by, end) {
                    (_, Some(OffEnd::Replaced)) => {
                        return write!(f, "the rule of `{}` for {which} was replaced", by.command());
                    }
                    (OffBy::Owner, Some(OffEnd::Removed)) => "`shunt on`",
                    (OffBy::Owner, Some(OffEnd::Time)) => "the time of `shunt off` is over",
                    (OffBy::Owner, Some(OffEnd::TimeWithoutDaemon)) => {
                        "the time of `shunt off` was over while Shunt did not run"
                    }
                    (OffBy::Owner, None) => return write!(f, "fast path on again for {which}"),
                    (OffBy::Verify, Some(OffEnd::Removed) | None) => {
                        "`shunt verify` has compared the slow path"
                    }
                    (OffBy::Quality, Some(OffEnd::Removed) | None) => {
                        "`shunt quality --off` has measured on the slow path"
                    }
                    (OffBy::Verify, Some(_)) => "`shunt verify` did not end its pause, whose time is over",
                    (OffBy::Quality, Some(_)) => {
                        "`shunt quality --off` did not end its pause, whose time is over"
                    }
                };
                write!(f, "{what}: fast path on again for {which}")
            }
            Self::Verified { verdict, connections } => {
                let what = match verdict {
                    Verdict::Equal => "equal",
                    Verdict::Differs => "different",
                    Verdict::CannotTell => "cannot tell",
                };
                let connections = count(u64::from(*connections), "connection");
                write!(f, "`shunt verify` compared both paths of {connections}: {what}")
            }
            Self::Reloaded { by, keys } if keys.is_empty() => {
                write!(f, "configuration read again ({by}): nothing changed")
            }
            Self::Reloaded { by, keys } => {
                write!(f, "configuration read again ({by}): {} changed", keys.join(", "))
            }
            Self::ReloadRefused { by, why } => write!(f, "configuration not read again ({by}): {why}"),
            Self::Moving { station } => write!(
                f,
                "station {station} changes its port or its address again and again; each time, its flows have to prove \
                 themselves again"
            ),
            Self::Unstable { station: Some(station) } => {
                write!(f, "station {station} keeps changing its port or its address; its traffic stays slow")
            }
            Self::Unstable { station: None } => f.write_str(
                "further stations keep changing their ports or addresses; their traffic stays slow",
            ),
            Self::Fault { what } => f.write_str(what),
            Self::ClockSet { by_s } if *by_s < 0 => write!(f, "the clock was set back by {} s", -by_s),
            Self::ClockSet { by_s } => write!(f, "the clock was set forward by {by_s} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_and_counts_are_in_words_of_an_owner() {
        let invalidated =
            |cause: &str| Happening::Invalidated { cause: cause.to_owned(), device: None, object: None };
        assert!(
            invalidated("netconf")
                .to_string()
                .ends_with("cause: a setting of a device: a sysctl, or its port in a bridge")
        );
        assert!(invalidated("route").to_string().ends_with("cause: route"));
        let stopped =
            |flows| Happening::Stopped { by: "a signal".to_owned(), flows: Some(flows) }.to_string();
        assert!(stopped(1).ends_with("a signal; 1 flow was fast at the last count"));
        assert!(stopped(0).ends_with("0 flows were fast at the last count"));
        let kept = Happening::FlowsKept { flows: 3, gap_ms: 40 }.to_string();
        assert_eq!(kept, "the restart kept 3 flows; no daemon was in charge for 40 ms");
    }

    #[test]
    fn a_change_is_told_with_its_route_setting_or_device() {
        let told = |cause: &str, device: &str, object: &str| {
            let [device, object] =
                [device, object].map(|text| Some(text.to_owned()).filter(|t| !t.is_empty()));
            let text = Happening::Invalidated { cause: cause.to_owned(), device, object }.to_string();
            text.strip_prefix("flows had to prove themselves again; cause: ").unwrap().to_owned()
        };
        let route = "default via 192.0.2.1 dev wan0 metric 50 removed";
        assert_eq!(told("route", "wan0", route), format!("route ({route})"));
        assert_eq!(told("route", "wan", route), format!("route ({route}, wan)"));
        assert_eq!(
            told("netconf", "lan0", "net.ipv4.conf.lan0.rp_filter = 1"),
            "a setting of a device (net.ipv4.conf.lan0.rp_filter = 1)"
        );
        assert_eq!(told("link", "lan0", "MTU 1400 instead of 1500"), "link (MTU 1400 instead of 1500, lan0)");
        assert_eq!(told("address", "lan0", "address 192.0.2.7/24 added"), "address 192.0.2.7/24 added, lan0");
        assert_eq!(told("ruleset", "", "ruleset loaded: 1 table"), "ruleset loaded: 1 table");
        assert_eq!(told("overrun", "", "no daemon ran"), "changes that were not seen (no daemon ran)");
        assert_eq!(told("overrun", "", ""), "messages of the kernel were lost");
    }

    #[test]
    fn links_captures_and_verdicts_are_one_line_each() {
        let port = || "lan0".to_owned();
        assert_eq!(Happening::PortDown { port: port() }.to_string(), "lan0: link down");
        assert_eq!(Happening::PortUp { port: port() }.to_string(), "lan0: link up");
        let ended = Happening::CaptureEnded { ports: vec![port(), "wan0".to_owned()] };
        assert_eq!(ended.to_string(), "lan0, wan0: the capture of packets ended");
        let verified = |verdict, connections| Happening::Verified { verdict, connections };
        assert_eq!(
            verified(Verdict::Equal, 4).to_string(),
            "`shunt verify` compared both paths of 4 connections: equal"
        );
        assert!(verified(Verdict::Differs, 1).to_string().ends_with("1 connection: different"));
        assert!(verified(Verdict::CannotTell, 0).to_string().ends_with("0 connections: cannot tell"));
        let kept = serde_json::to_string(&verified(Verdict::CannotTell, 2)).unwrap();
        assert_eq!(kept, r#"{"event":"verified","verdict":"cannot-tell","connections":2}"#);
        let note = r#"{"verdict":"equal","connections":2,"text":"x"}"#;
        assert!(serde_json::from_str::<Verified>(note).is_err(), "a client adds no text");
    }

    #[test]
    fn a_route_on_which_no_flow_depends_invalidates_none() {
        let object = "default via 192.0.2.1 dev wan added";
        let route = |device| Happening::Route { device, object: object.to_owned() };
        assert_eq!(route(Some("wan".to_owned())).to_string(), object);
        assert_eq!(route(None).to_string(), object);
        let kept = serde_json::to_string(&route(None)).unwrap();
        assert_eq!(kept, format!("{{\"event\":\"route\",\"object\":\"{object}\"}}"));
    }

    #[test]
    fn the_end_of_a_rule_has_its_cause() {
        let said = |by, end| Happening::OffRemoved { which: "192.0.2.1".to_owned(), by, end }.to_string();
        let owner = |end| said(OffBy::Owner, end);
        assert_eq!(owner(None), "fast path on again for 192.0.2.1");
        assert_eq!(owner(Some(OffEnd::Removed)), "`shunt on`: fast path on again for 192.0.2.1");
        assert!(owner(Some(OffEnd::Time)).starts_with("the time of `shunt off` is over: "));
        assert!(owner(Some(OffEnd::TimeWithoutDaemon)).contains("while Shunt did not run"));
        assert_eq!(owner(Some(OffEnd::Replaced)), "the rule of `shunt off` for 192.0.2.1 was replaced");
        assert!(said(OffBy::Verify, Some(OffEnd::Time)).contains("did not end its pause"));
        let kept = Happening::OffRemoved {
            which: "x".to_owned(),
            by: OffBy::Owner,
            end: Some(OffEnd::TimeWithoutDaemon),
        };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(text, r#"{"event":"off-removed","which":"x","end":"time-without-daemon"}"#);
        let older: Happening = serde_json::from_str(r#"{"event":"off-removed","which":"x"}"#).unwrap();
        assert!(matches!(older, Happening::OffRemoved { end: None, .. }));
    }

    #[test]
    fn a_rule_that_ends_by_itself_says_after_which_time() {
        let said = |for_s| {
            Happening::OffAdded { which: "laptop (192.0.2.1)".to_owned(), by: OffBy::Owner, for_s }
                .to_string()
        };
        assert_eq!(said(Some(600)), "fast path turned off for laptop (192.0.2.1), for 10m");
        assert_eq!(said(None), "fast path turned off for laptop (192.0.2.1)");
        let older: Happening = serde_json::from_str(r#"{"event":"off-added","which":"x"}"#).unwrap();
        assert!(matches!(older, Happening::OffAdded { for_s: None, .. }));
    }

    #[test]
    fn qdiscs_and_neighbours_have_the_words_of_their_commands() {
        let neighbour = Happening::Neighbour {
            device: "lan0".to_owned(),
            address: "192.168.1.2".parse().unwrap(),
            mac: "02:00:00:00:00:02".to_owned(),
            was: "02:00:00:00:00:01".to_owned(),
        };
        assert_eq!(
            neighbour.to_string(),
            "neighbour 192.168.1.2 dev lan0 has another MAC: 02:00:00:00:00:02 (was 02:00:00:00:00:01)"
        );
        let object = "qdisc tbf 8001: added on wan0".to_owned();
        assert_eq!(Happening::Tc { device: "wan0".to_owned(), object: object.clone() }.to_string(), object);
        let filter = Happening::Invalidated {
            cause: "filter".to_owned(),
            device: None,
            object: Some("filter u32 added on ingress of wan0".to_owned()),
        };
        assert!(filter.to_string().ends_with("cause: filter u32 added on ingress of wan0"));
    }

    #[test]
    fn a_pause_is_told_by_the_command_that_asked_for_it() {
        for by in [OffBy::Verify, OffBy::Quality] {
            let which = "tcp".to_owned();
            for what in [
                Happening::OffAdded { which: which.clone(), by, for_s: None },
                Happening::OffRemoved { which, by, end: None },
            ] {
                let said = what.to_string();
                assert!(
                    said.starts_with(&format!("`{}` ", by.command())) && said.ends_with("for tcp"),
                    "{said}"
                );
            }
        }
    }
}
