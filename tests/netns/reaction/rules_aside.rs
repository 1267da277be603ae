//! Changes of rules that no packet of an established flow meets leave flows fast. Rules that packets come to by another
//! change end them.

use nix::sys::signal::Signal;
use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, Shuntd, Stage, Topology, daemon_with, require_root, silent_router, stage::leaves_by,
    stage::nothing_leaves,
};
use shunt_wire::Packet;

/// Chains aside, and a map by which packets may come to them.
const RULES: &str = r"
table inet filter {
	map ways { type inet_service : verdict; }
	chain aside { }
	chain input { type filter hook input priority filter; policy accept; }
	chain way { }
	chain forward {
		type filter hook forward priority filter; policy drop;
		udp dport vmap @ways
		jump way
		ct state established,related accept
		ct state new accept
	}
}
table ip nat {
	set hosts { type ipv4_addr; }
	map services { type ipv4_addr . inet_proto . inet_service : verdict; }
	chain services { ip daddr . ip protocol . th dport vmap @services; }
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname r1 masquerade
	}
}
";

/// Commits, each with a name for messages.
const ASIDE: [(&str, &str); 9] = [
    (
        "a service comes",
        "add chain ip nat web; add rule ip nat web ip protocol tcp dnat to 192.0.2.9:80; \
         add element ip nat services { 192.0.2.1 . tcp . 80 : goto web }",
    ),
    (
        "a service goes",
        "delete element ip nat services { 192.0.2.1 . tcp . 80 : goto web }; flush chain ip nat web; \
         delete chain ip nat web",
    ),
    ("a rule of a nat chain", "add rule ip nat prerouting ip daddr @hosts counter"),
    ("elements of a set that it uses", "add element ip nat hosts { 192.0.2.1, 192.0.2.2 }"),
    ("a rule that nothing leads to", "add rule inet filter aside udp dport 5000 drop"),
    ("its removal", "flush chain inet filter aside"),
    ("a host that the router itself refuses", "add rule inet filter input ip saddr 192.0.2.7 drop"),
    ("its removal", "flush chain inet filter input"),
    ("a new set and its removal", "add set inet filter new { type ipv4_addr; }; delete set inet filter new"),
];

struct Flow {
    stage: Stage,
    packet: Packet,
    shuntd: Shuntd,
}

impl Flow {
    fn fast(lab: &Topology, engine: Engine) -> Self {
        let (stage, packet) = Stage::from_lan(lab);
        let shuntd = daemon_with(lab, engine, "reprove = \"30s\"");
        stage.teach(&shuntd, &packet);
        Self { stage, packet, shuntd }
    }

    /// While the daemon hangs, makes a change that lets the packet pass, and then one that drops it: it does not leave.
    #[track_caller]
    fn ends_after(self, lab: &Topology, first: &str, second: &str) {
        self.shuntd.signal(Signal::SIGSTOP);
        lab.router().run(&format!("nft '{first}'"));
        for _ in 0..4 {
            assert!(self.stage.passes(&self.packet), "{first}");
        }
        lab.router().run(&format!("nft '{second}'"));
        let left = self.stage.send(&self.packet);
        self.shuntd.signal(Signal::SIGCONT);
        assert!(nothing_leaves(&left), "{first}, then {second}: {left:#?}");
        self.stage.never_fast(&self.shuntd, &self.packet, nothing_leaves);
        self.shuntd.stop();
    }
}

#[test]
fn rules_aside_leave_flows_fast() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(RULES);
        let Flow { stage, packet, shuntd } = Flow::fast(&lab, engine);
        let history = || shuntd.request("GET", "/v1/history?for_s=600", "").unwrap().1;
        for _ in 0..2 {
            for (what, change) in ASIDE {
                let before = shuntd.status();
                lab.router().run(&format!("nft '{change}'"));
                assert!(leaves_by(0)(&stage.send(&packet)), "{what}");
                assert!(stage.passes(&packet), "{what}");
                let after = shuntd.status();
                assert_eq!(after.epoch, before.epoch, "{what}: {}", history());
                assert!(after.packets.fast > before.packets.fast, "{what}: {}", history());
            }
        }
        assert!(!history().contains("ruleset"), "{}", history());
        // A verdict that leads nowhere leaves the list of rules as it is, and the daemon does not read them again.
        lab.router().run("nft 'add element inet filter ways { 10 : drop }'");
        stage.teach(&shuntd, &packet);
        let before = shuntd.status().epoch;
        lab.router().run(&format!("nft '{}'", ASIDE[0].1));
        assert_eq!(shuntd.status().epoch, before, "{}", history());
        // What is told next is about the next commit only.
        lab.router().run("nft 'add element inet filter ways { 9 : jump aside }'");
        let history = history();
        assert!(
            history.contains("(elements of set ways of table inet filter added or changed)"),
            "{history}"
        );
        shuntd.stop();
    }
}

#[test]
fn rules_to_which_another_change_leads_end_flows() {
    if !require_root() {
        return;
    }
    let drops = |chain: &str| format!("add rule inet filter {chain} udp dport 5000 drop");
    for (first, second) in [
        ("insert rule inet filter forward jump aside".to_owned(), drops("aside")),
        ("add element inet filter ways { 5000 : jump aside }".to_owned(), drops("aside")),
        ("add element inet filter ways { 9 : drop, 5000 : jump aside }".to_owned(), drops("aside")),
        ("add rule inet filter way jump aside".to_owned(), drops("aside")),
        ("rename chain inet filter way moved".to_owned(), drops("moved")),
        ("rename chain inet filter forward moved".to_owned(), drops("moved").replacen("add", "insert", 1)),
        (
            format!("add chain inet filter {0}; add rule inet filter way jump {0}", "n".repeat(100)),
            drops(&"n".repeat(100)),
        ),
        (
            "add chain inet filter late { type filter hook forward priority 10; policy accept; }".to_owned(),
            drops("late"),
        ),
    ] {
        let lab = silent_router(RULES);
        Flow::fast(&lab, ENGINES[0]).ends_after(&lab, &first, &second);
    }
}
