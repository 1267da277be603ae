//! The lasting causes that keep traffic on the slow path: found in the state of the kernel, before any packet is
//! counted.

use crate::{Core, Link, ports::upper_kind};
use shunt_api::{Config, FilterHook, PortFilter, SlowCause};
use std::collections::BTreeSet;

/// The counters that tell whether conntrack tracks the traffic.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrackedCounts {
    /// Packets from which nothing was learned, because conntrack does not track them.
    pub untracked: u64,
    /// Flows that were learned.
    pub learned: u64,
}

/// What makes conntrack track routed packets.
const TRACKING_REMEDY: &str = "add a rule that uses `ct state`: `nft add table inet shunt_track`, \
    `nft add chain inet shunt_track forward '{ type filter hook forward priority 0; }'`, \
    `nft add rule inet shunt_track forward ct state established accept`";

/// The cause for which nothing may be learned after a start: no rule makes conntrack track routed packets.
#[must_use]
pub fn untracked_by_rules() -> SlowCause {
    cause(
        "cannot tell whether conntrack will track forwarded packets: no rule of nftables needs it, and it has no \
         connection; without tracking, nothing is learned from routed packets"
            .to_owned(),
        TRACKING_REMEDY,
    )
}

fn cause(what: String, remedy: impl Into<String>) -> SlowCause {
    SlowCause { what, remedy: remedy.into() }
}

impl Core {
    /// The lasting causes, those that concern most traffic first.
    pub fn slow_causes(&self, tracked: TrackedCounts) -> Vec<SlowCause> {
        let mut causes = self.conntrack_cause(tracked);
        causes.extend(self.ruleset_causes());
        for (link, view) in self.ports() {
            if view.setting.captured {
                causes.push(cause(
                    format!(
                        "a packet socket (tcpdump, an IDS) captures on {}: its flows stay slow",
                        link.name
                    ),
                    "end the capture, or set `captures = \"ignore\"` to hide fast packets from it",
                ));
            }
            causes.extend(view.filters.iter().map(|filter| self.filter_cause(&link.name, filter)));
        }
        causes.extend(self.beyond_cause());
        let beside = self.links_beside_ports().filter(|link| !self.beyond.contains(&link.ifindex));
        causes.extend(beside.map(|link| self.beside_cause(link)));
        causes
    }

    /// The most ports that there can be.
    pub(crate) fn ports_max(&self) -> usize {
        self.choice.ports_max.unwrap_or(Config::PORTS_MAX)
    }

    /// The cause that some devices stay slow because there are as many ports as there can be.
    pub fn beyond_cause(&self) -> Option<SlowCause> {
        const NAMED: usize = 5;
        let more = self.beyond.len().checked_sub(NAMED).filter(|more| *more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        let names = self.names(&self.beyond.iter().copied().take(NAMED).collect::<Vec<_>>()).join(", ");
        let most = self.ports_max();
        let what = format!("packets through {names}{more} stay slow: this instance has at most {most} ports");
        let remedy =
            "name the busiest devices with --port, or `ports` in shunt.toml, or run another instance";
        (!self.beyond.is_empty()).then(|| cause(what, remedy))
    }

    /// Devices that may forward traffic, but are neither ports nor on top of ports.
    pub fn links_beside_ports(&self) -> impl Iterator<Item = &Link> {
        let covered: BTreeSet<u32> = self.network.stacks(self.ports.keys().copied());
        self.network.links.values().filter(move |link| {
            let carries = !matches!(link.kind.as_deref(), Some("dummy" | "ifb" | "vrf")) && link.name != "lo";
            carries
                && link.up
                && link.carrier
                && !covered.contains(&link.ifindex)
                && self.network.has_address(link.ifindex)
        })
    }

    fn conntrack_cause(&self, tracked: TrackedCounts) -> Vec<SlowCause> {
        // If only some traffic is untracked (`notrack`), the reasons of the packets say so; this cause is for routers
        // without any tracking.
        if tracked.untracked == 0 || tracked.learned > 0 {
            return Vec::new();
        }
        vec![cause(
            "conntrack does not track the forwarded packets, so nothing is learned".to_owned(),
            TRACKING_REMEDY,
        )]
    }

    fn ruleset_causes(&self) -> Vec<SlowCause> {
        let ruleset = self.ruleset();
        let mut causes = Vec::new();
        if let Some(why) = ruleset.unread {
            causes.push(cause(
                format!("cannot read the ruleset, so nothing is learned: {why}"),
                "the daemon tries again; if the error stays, read the daemon's log",
            ));
        }
        for note in &ruleset.limits {
            causes.push(cause(
                format!(
                    "traffic by {} stays slow: `{}` in {} drops packets, or saves them from a drop, by what it counts",
                    note.traffic,
                    note.statement,
                    note.place()
                ),
                "nothing to do if the limit must hold; to let established connections be fast, accept them before the rule (`ct state \
                 established accept`) or restrict the rule (`ct state new`); to let fast packets bypass the limit, set `limits = \"ignore\"`",
            ));
        }
        for note in &ruleset.rewrites {
            causes.push(cause(
                format!(
                    "traffic by {} stays slow where `{}` in {} changes packets, because the fast path cannot repeat the change",
                    note.traffic,
                    note.statement,
                    note.place()
                ),
                "nothing to do if the rule must stay; restrict it to the packets that need it (`oifname`, `ip daddr`)",
            ));
        }
        for note in ruleset.stops {
            let families = match note.family.as_str() {
                "ip" => "IPv4",
                "ip6" => "IPv6",
                _ => "IPv4 and IPv6",
            };
            causes.push(cause(
                format!("{families} stays slow: `{}` in {} must see every packet", note.statement, note.place()),
                "nothing to do if the rule must stay; if it concerns other devices only, name them in it (`iifname`)",
            ));
        }
        causes
    }

    fn filter_cause(&self, port: &str, filter: &PortFilter) -> SlowCause {
        let ifb = self.network.links.values().find(|link| link.kind.as_deref() == Some("ifb") && link.up);
        let PortFilter { device, hook, kind, program } = filter;
        match hook {
            FilterHook::Ingress => cause(
                format!("packets that arrive through {port} stay slow: {filter}"),
                match ifb {
                    _ if program.is_some() => {
                        format!("`bpftool net show dev {device}` shows the program and its owner")
                    }
                    Some(ifb) => format!(
                        "if the filter redirects to {} to shape downloads (SQM), shape them where they leave instead: with cake \
                         or htb as root qdisc of the inner port, fast packets are shaped, too",
                        ifb.name
                    ),
                    None => format!("`tc filter show dev {device} ingress` shows what the filter is for"),
                },
            ),
            FilterHook::Qdisc => cause(
                format!("packets that leave through {port} stay slow: {filter}"),
                format!(
                    "move the qdisc to the port, where fast packets pass it: tc qdisc replace dev {port} root {kind} ..."
                ),
            ),
            FilterHook::Egress => cause(
                format!("packets that leave through {port} stay slow: {filter}"),
                match program {
                    Some(_) => format!("`bpftool net show dev {device}` shows the program and its owner"),
                    None => format!("move the filter to {port}, where packets of the engine tc pass it"),
                },
            ),
        }
    }

    fn beside_cause(&self, link: &Link) -> SlowCause {
        let name = &link.name;
        let slow = format!("{name} is not a port: packets that enter or leave through it stay slow");
        if upper_kind(link).is_some() {
            let below = "if it forwards traffic, name the devices below it with --port; `ip link show master";
            return cause(slow, format!("{below} {name}`"));
        }
        match self.unfit(link) {
            Some(why) => {
                cause(format!("{slow} ({why})"), "nothing to do: traffic between the ports can be fast")
            }
            None => cause(
                slow,
                format!("if it forwards traffic, make it a port: --port {name}, or `ports` in shunt.toml"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Choice, Event, LinkLayer, Program, Statement,
        core::tests::{link, router, started},
    };

    fn whats(core: &Core, tracked: TrackedCounts) -> Vec<String> {
        core.slow_causes(tracked).into_iter().map(|cause| cause.what).collect()
    }

    #[test]
    fn a_plain_router_has_no_causes() {
        let (core, _) = started(Choice::default(), router());
        assert_eq!(core.slow_causes(TrackedCounts { untracked: 0, learned: 0 }), []);
        assert_eq!(
            core.slow_causes(TrackedCounts { untracked: 9, learned: 3 }),
            [],
            "some traffic is exempt from tracking"
        );
    }

    #[test]
    fn a_router_that_tracks_nothing_says_so_first() {
        let mut state = router();
        let kind = Some("vti".to_owned());
        let vti = Link { layer: LinkLayer::Absent, kind, ..link(5, "vti0") };
        let address = Event::Address { ifindex: 5, addr: "10.8.0.1".parse().unwrap(), prefix: 24 };
        state.extend([Event::Link(vti), address]);
        let (core, _) = started(Choice::default(), state);
        let causes = core.slow_causes(TrackedCounts { untracked: 9, learned: 0 });
        assert!(causes[0].what.starts_with("conntrack does not track"), "{causes:?}");
        assert!(causes[0].remedy.contains("ct state"), "{causes:?}");
        assert!(causes[1].what.starts_with("vti0 is not a port"), "{causes:?}");
        assert!(causes[1].what.contains("IPsec must see each packet"), "{causes:?}");
        assert_eq!(causes.len(), 2);
    }

    #[test]
    fn a_device_that_was_not_named_is_reported_unless_it_is_idle_or_covered() {
        let mut state = router();
        let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.5") };
        let down = Link { carrier: false, ..link(7, "r3") };
        let dummy = Link { kind: Some("dummy".to_owned()), ..link(8, "d0") };
        state.extend([vlan, down, dummy].map(Event::Link));
        state.extend((6..=8).map(|ifindex| Event::Address {
            ifindex,
            addr: "10.9.0.1".parse().unwrap(),
            prefix: 24,
        }));
        let (core, _) = started(Choice { ports: vec!["r0".to_owned()], ..Choice::default() }, state);
        let causes = core.slow_causes(TrackedCounts::default());
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert!(causes[0].what.starts_with("r1 is not a port") && causes[0].remedy.contains("--port r1"));
    }

    #[test]
    fn a_redirect_to_an_ifb_is_to_be_kept_in_another_form() {
        let filter =
            Event::Filter { ifindex: 2, egress: false, kind: Some("matchall".to_owned()), change: None };
        let ifb = Link { kind: Some("ifb".to_owned()), ..link(9, "ifb4r1") };
        let remedy = |with_ifb: bool| {
            let mut state = router();
            state.push(filter.clone());
            state.extend(with_ifb.then(|| Event::Link(ifb.clone())));
            let (core, _) = started(Choice::default(), state);
            let causes = core.slow_causes(TrackedCounts::default());
            assert!(causes[0].what.contains("arrive through r1 stay slow: tc matchall filter"), "{causes:?}");
            causes[0].remedy.clone()
        };
        let sqm = remedy(true);
        assert!(sqm.contains("ifb4r1") && sqm.contains("cake") && !sqm.contains("remove"), "{sqm}");
        assert!(remedy(false).contains("tc filter show dev r1 ingress"));
    }

    #[test]
    fn rules_captures_and_foreign_programs_are_causes() {
        let (mut core, now) = started(Choice::default(), router());
        let queue = Statement {
            family: "ip".to_owned(),
            table: "fw".to_owned(),
            chain: "forward".to_owned(),
            handle: 12,
            name: "queue".to_owned(),
            ..Statement::default()
        };
        core.handle(now, Event::RulesetRead(vec![queue]));
        core.handle(now, Event::Captures([1].into()));
        core.handle(
            now,
            Event::Programs([Program { ifindex: 2, egress: true, name: "pacer".to_owned() }].into()),
        );
        let found = whats(&core, TrackedCounts::default());
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "IPv4 stays slow: `queue` in ip fw forward handle 12 must see every packet");
        assert!(found[1].contains("captures on r0"), "{found:?}");
        assert!(found[2].contains("leave through r1") && found[2].contains("pacer"), "{found:?}");
    }

    #[test]
    fn the_engine_xdp_is_refused_where_no_attachment_can_help() {
        let xdp = |native, target| Event::XdpFeatures {
            ifindex: 1,
            native,
            target,
            target_frags: true,
            vlan_tags: false,
            zero_copy: false,
        };
        let refused = |kind: Option<&str>, features: Option<Event>| {
            let port = Link { kind: kind.map(str::to_owned), ..link(1, "r0") };
            let (core, _) =
                started(Choice::default(), [Event::Link(port.clone())].into_iter().chain(features).collect());
            core.lacks_xdp(&port).is_some()
        };
        assert!(refused(None, Some(xdp(false, false))) && !refused(None, None));
        assert!(refused(Some("veth"), Some(xdp(true, false))), "the peer decides");
        assert!(
            !refused(None, Some(xdp(true, false))),
            "some drivers announce it once a program is attached"
        );
        assert!(!refused(Some("veth"), Some(xdp(true, true))));
    }
}
