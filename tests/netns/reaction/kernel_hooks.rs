//! Changes of rules, routes and links invalidate all actions inside the kernel, even while the daemon hangs.

use nix::sys::signal::Signal;
use shunt_testkit::{
    ENGINES, Stage, Topology, daemon, require_root, rulesets, silent_router, stage::nothing_leaves,
};

/// Stops the daemon and makes a change that refuses the flow: not a single packet leaves after it.
#[track_caller]
fn stops_at_once(change: impl Fn(&Topology) -> String) {
    stops_at_once_with(rulesets::OPEN, change, "");
}

/// As [`stops_at_once`]; `undo` is run before the daemon stops.
#[track_caller]
fn stops_at_once_with(ruleset: &str, change: impl Fn(&Topology) -> String, undo: &str) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(ruleset);
        let (stage, packet) = Stage::from_lan(&lab);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let change = change(&lab);
        shuntd.signal(Signal::SIGSTOP);
        assert!(stage.passes(&packet), "{change}: the packet does not pass before the change");
        lab.router().run(&change);
        let left = stage.send(&packet);
        shuntd.signal(Signal::SIGCONT);
        assert!(nothing_leaves(&left), "{engine}, {change}: {left:#?}");
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        lab.router().run(undo);
        shuntd.stop();
    }
}

#[test]
fn a_rule_that_drops_stops_flows_while_the_daemon_hangs() {
    stops_at_once(|_| "nft insert rule inet filter forward udp dport 5000 drop".to_owned());
}

#[test]
fn a_blackhole_route_stops_flows_while_the_daemon_hangs() {
    stops_at_once(|lab| format!("ip route add blackhole {}/32", lab.wan().v4));
}

#[test]
fn a_blackhole_policy_rule_stops_flows_while_the_daemon_hangs() {
    stops_at_once(|lab| format!("ip rule add to {} blackhole", lab.wan().v4));
}

#[test]
fn a_link_that_joins_a_refused_group_stops_flows_while_the_daemon_hangs() {
    let ruleset = rulesets::OPEN.replace("policy drop;", "policy drop; iifgroup 5 drop");
    stops_at_once_with(&ruleset, |_| "ip link set r0 group 5".to_owned(), "");
}

#[test]
fn an_ipsec_policy_that_blocks_stops_flows_while_the_daemon_hangs() {
    stops_at_once(|lab| {
        format!("ip xfrm policy add src {}/32 dst {}/32 dir fwd action block", lab.lan().v4, lab.wan().v4)
    });
}

#[test]
fn a_tc_filter_that_drops_udp_stops_flows_while_the_daemon_hangs() {
    let filter = "tc qdisc add dev r0 clsact; tc filter add dev r0 ingress protocol ip pref 7 \
                  bpf da bytecode '4,48 0 0 23,21 0 1 17,6 0 0 2,6 0 0 4294967295'";
    stops_at_once_with(rulesets::OPEN, |_| filter.to_owned(), "tc qdisc del dev r0 clsact");
}
