//! Changes that concern some flows only: those stop at once, and the others stay fast.

use nix::sys::signal::Signal;
use shunt_testkit::{
    ENGINES, Shuntd, Stage, Topology, daemon, daemon_with, epoch_moves, require_root, rulesets, silent,
    silent_router, stage::leaves_by, stage::nothing_leaves, wait_until,
};
use shunt_wire::{Mac, Packet};

/// Sets of all kinds that rules look up by addresses, and one that is looked up by a part of an address.
const SETS: &str = r"
table inet filter {
	set blocked { type ipv4_addr; }
	set blocked6 { type ipv6_addr; flags interval; }
	set ranges { type ipv4_addr; flags interval; }
	set pairs { type ipv4_addr . ipv4_addr . inet_service; flags interval; }
	set networks { type ipv4_addr; }
	map marks { type ipv4_addr : mark; }
	chain forward {
		type filter hook forward priority filter; policy drop;
		ip saddr @blocked drop
		ip daddr @blocked drop
		ip6 daddr @blocked6 drop
		ip daddr @ranges drop
		ip saddr . ip daddr . udp dport @pairs drop
		ip daddr & 255.255.255.0 @networks drop
		meta mark set ip daddr map @marks
		meta mark 7 drop
		ct state established,related accept
		ct state new accept
	}
}
table ip nat {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname r1 masquerade
	}
}
";

/// Two flows from the LAN, and the addresses of the second one, which the changes are about.
struct Flows {
    stage: Stage,
    other: Packet,
    concerned: Packet,
}

impl Flows {
    /// Sends packets of both flows until both are fast.
    fn teach(&self, shuntd: &Shuntd) {
        for packet in [&self.other, &self.concerned] {
            self.stage.teach(shuntd, packet);
        }
    }

    /// Makes a change that concerns neither: the epoch stays, and so the flows stay fast.
    #[track_caller]
    fn concerns_none(&self, lab: &Topology, shuntd: &Shuntd, change: &str) {
        let before = shuntd.status().epoch;
        lab.router().run(change);
        // A request that is answered after all changes that the daemon knows of.
        assert_eq!(shuntd.status().epoch, before, "{change}: {:#?}", shuntd.status());
        for packet in [&self.other, &self.concerned] {
            let fast = shuntd.status().packets.fast;
            assert!(self.stage.passes(packet), "{change}");
            // One packet of a flow may be due for a proof.
            assert!(self.stage.passes(packet), "{change}");
            assert!(shuntd.status().packets.fast > fast, "{change}: {:#?}", shuntd.status());
        }
    }

    /// Makes a change that refuses one flow while the daemon hangs: not a single packet of that flow leaves after it.
    #[track_caller]
    fn stops_one(&self, lab: &Topology, shuntd: &Shuntd, change: &str, undo: &str) {
        self.teach(shuntd);
        shuntd.signal(Signal::SIGSTOP);
        assert!(self.stage.passes(&self.concerned), "{change}: the packet does not pass before the change");
        lab.router().run(change);
        let left = self.stage.send(&self.concerned);
        let passes = self.stage.passes(&self.other);
        shuntd.signal(Signal::SIGCONT);
        assert!(nothing_leaves(&left), "{change}: {left:#?}");
        assert!(passes, "{change}: the other flow stops, too");
        self.stage.never_fast(shuntd, &self.concerned, nothing_leaves);
        lab.router().run(undo);
        self.stage.react(undo, &self.concerned, leaves_by(0));
    }
}

/// A router with two uplink networks, and a flow to each, in the family.
fn routed(v6: bool) -> (Topology, Flows) {
    let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
    let (one, two, via) = if v6 {
        ("2001:db8:a::/48", "2001:db8:b::/48", lab.wan().at6(0).ip().to_string())
    } else {
        ("203.0.113.0/24", "198.51.100.0/24", lab.wan().v4.to_string())
    };
    for network in [one, two] {
        lab.router().run(&format!("ip route add {network} via {via}"));
    }
    let to = |address: &str| lab.lan().udp_to(4000, address.parse().unwrap()).payload("from the lan");
    let (other, concerned) = if v6 {
        (to("[2001:db8:a::9]:5000"), to("[2001:db8:b::9]:5000"))
    } else {
        (to("203.0.113.9:5000"), to("198.51.100.9:5000"))
    };
    let stage = Stage::new(lab.lan(), &[lab.wan(), lab.host("wan2")]);
    (lab, Flows { stage, other, concerned })
}

#[test]
fn routes_of_other_networks_leave_flows_fast_and_those_of_a_flow_end_it() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        for v6 in [false, true] {
            let (lab, flows) = routed(v6);
            let shuntd = daemon_with(&lab, engine, "reprove = \"30s\"");
            flows.teach(&shuntd);
            let (unrelated, stopping): (&[&str], &[(&str, &str)]) = if v6 {
                (
                    &["2001:db8:c::/48", "2001:db8:b:1::/64", "2001:db8:b::8/128", "2001:db9::/32"],
                    &[
                        ("route add blackhole 2001:db8:b::9/128", "route del blackhole 2001:db8:b::9/128"),
                        ("route add blackhole 2001:db8:b::8/126", "route del blackhole 2001:db8:b::8/126"),
                        ("route add blackhole 2001:db8:b::/52", "route del blackhole 2001:db8:b::/52"),
                    ],
                )
            } else {
                (
                    &[
                        "192.0.2.0/24",
                        "198.51.101.0/24",
                        "198.51.100.8/32",
                        "100.64.0.0/10",
                        "198.51.112.0/23",
                    ],
                    &[
                        ("route add blackhole 198.51.100.9/32", "route del blackhole 198.51.100.9/32"),
                        ("route add blackhole 198.51.100.8/30", "route del blackhole 198.51.100.8/30"),
                        ("route add blackhole 198.51.100.0/25", "route del blackhole 198.51.100.0/25"),
                    ],
                )
            };
            for network in unrelated {
                flows.concerns_none(&lab, &shuntd, &format!("ip route add blackhole {network}"));
                flows.concerns_none(&lab, &shuntd, &format!("ip route del blackhole {network}"));
            }
            for (add, del) in stopping {
                flows.stops_one(&lab, &shuntd, &format!("ip {add}"), &format!("ip {del}"));
            }
            shuntd.stop();
        }
    }
}

/// Reverse path filtering looks up the source, and the reverse direction has it as the destination.
#[test]
fn a_route_to_the_source_or_a_default_route_ends_flows() {
    if !require_root() {
        return;
    }
    let (lab, flows) = routed(false);
    let shuntd = daemon(&lab, ENGINES[0]);
    for change in [
        format!("route add blackhole {}/32 table 100", lab.lan().v4),
        "route add default via 198.18.1.2".to_owned(),
        "route del default via 198.18.1.2".to_owned(),
        "route add 128.0.0.0/1 via 198.18.0.2".to_owned(),
    ] {
        flows.teach(&shuntd);
        let before = shuntd.status().epoch;
        lab.router().run(&format!("ip {change}"));
        assert_ne!(shuntd.status().epoch, before, "{change}");
    }
    shuntd.stop();
}

#[test]
fn elements_of_other_addresses_leave_flows_fast_and_those_of_a_flow_end_it() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(SETS);
        let to = |port| lab.lan().udp_to(4000, lab.wan().at(port)).payload("from the lan");
        let v6 = lab.lan().udp_to(4000, lab.wan().at6(5000)).payload("from the lan");
        let flows =
            Flows { stage: Stage::new(lab.lan(), &[lab.wan()]), other: v6.clone(), concerned: to(5000) };
        let shuntd = daemon_with(&lab, engine, "reprove = \"30s\"");
        flows.teach(&shuntd);
        let (lan, wan) = (lab.lan().v4, lab.wan().v4);
        for (set, element) in [
            ("blocked", "192.0.2.7".to_owned()),
            ("blocked", "192.0.2.8, 192.0.2.9, 203.0.113.4".to_owned()),
            ("blocked6", "2001:db8:ffff::/64".to_owned()),
            ("ranges", "192.0.2.0/24".to_owned()),
            ("ranges", "203.0.113.7, 203.0.113.16-203.0.113.24".to_owned()),
            ("pairs", format!("192.0.2.0/24 . {wan} . 5000-5010")),
            ("marks", "192.0.2.7 : 7".to_owned()),
        ] {
            let key = if set == "marks" { "192.0.2.7" } else { &element };
            flows.concerns_none(
                &lab,
                &shuntd,
                &format!("nft 'add element inet filter {set} {{ {element} }}'"),
            );
            flows.concerns_none(
                &lab,
                &shuntd,
                &format!("nft 'delete element inet filter {set} {{ {key} }}'"),
            );
        }
        let network = wan.to_string().rsplit_once('.').map(|(network, _)| format!("{network}.0")).unwrap();
        for (set, element) in [
            ("blocked", lan.to_string()),
            ("blocked", format!("192.0.2.1, {wan}")),
            ("ranges", format!("{network}/24")),
            ("ranges", format!("192.0.2.1-192.0.2.5, {wan}")),
            ("pairs", format!("{lan} . {network}/24 . 5000")),
            ("networks", network.clone()),
        ] {
            let change = |verb| format!("nft '{verb} element inet filter {set} {{ {element} }}'");
            flows.stops_one(&lab, &shuntd, &change("add"), &change("delete"));
        }
        let add = format!("nft 'add element inet filter marks {{ {wan} : 7 }}'");
        flows.stops_one(&lab, &shuntd, &add, &format!("nft 'delete element inet filter marks {{ {wan} }}'"));
        let flows = Flows { other: to(5001), concerned: v6, ..flows };
        let change =
            |verb| format!("nft '{verb} element inet filter blocked6 {{ {} }}'", lab.wan().at6(0).ip());
        flows.stops_one(&lab, &shuntd, &change("add"), &change("delete"));
        shuntd.stop();
    }
}

/// A commit with a rule and elements, and one after the rules have changed: the sets may be used in another way.
#[test]
fn elements_count_for_every_flow_until_changed_rules_have_been_read() {
    if !require_root() {
        return;
    }
    let lab = silent_router(SETS);
    let (stage, packet) = Stage::from_lan(&lab);
    let shuntd = daemon(&lab, ENGINES[0]);
    stage.teach(&shuntd, &packet);
    let masked = "add rule inet filter forward ip daddr & 255.255.255.0 @blocked drop";
    let network =
        lab.wan().v4.to_string().rsplit_once('.').map(|(network, _)| format!("{network}.0")).unwrap();
    lab.router().nft(&masked.replace("add rule", "insert rule"));
    lab.router().run(&format!("nft 'add element inet filter blocked {{ {network} }}'"));
    stage.react("a set that a new rule looks up otherwise", &packet, nothing_leaves);
    stage.never_fast(&shuntd, &packet, nothing_leaves);
    lab.router().run(&format!("nft 'delete element inet filter blocked {{ {network} }}'"));
    stage.react("the element gone", &packet, leaves_by(0));
    stage.teach(&shuntd, &packet);
    // Read again by now: the set is known to be looked up by other values than addresses.
    let before = shuntd.status().epoch;
    lab.router().run("nft 'add element inet filter blocked { 192.0.2.77 }'");
    assert_ne!(shuntd.status().epoch, before);
    shuntd.stop();
}

#[test]
fn other_neighbours_leave_flows_fast() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, flows) = routed(false);
        let shuntd = daemon_with(&lab, engine, "reprove = \"30s\"");
        flows.teach(&shuntd);
        let mac = |last| Mac([2, 0, 0, 0, 9, last]);
        let (v4, v6) = ("198.18.0.77", lab.wan().at6(0).ip().to_string() + "77");
        for address in [v4, &v6] {
            for last in [1, 2] {
                let mac = mac(last);
                let change = format!("ip neigh replace {address} lladdr {mac} dev r1 nud permanent");
                flows.concerns_none(&lab, &shuntd, &change);
            }
            flows.concerns_none(&lab, &shuntd, &format!("ip neigh del {address} dev r1"));
        }
        assert_eq!(epoch_moves(&shuntd.status(), "neighbour"), 0);
        let own = lab.wan().v4;
        lab.router().run(&format!("ip neigh replace {own} lladdr {} dev r1 nud permanent", mac(3)));
        wait_until("the next hop counts", || epoch_moves(&shuntd.status(), "neighbour") > 0);
        shuntd.stop();
    }
}
