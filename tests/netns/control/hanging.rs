//! What ends the use of every action does so inside the kernel: also while the daemon hangs.

use crate::{ENGINES, OPEN, Stage, daemon, silent, stage::nothing};
use nix::sys::signal::Signal;
use shunt_testkit::{Topology, require_root};

/// After a change that refuses the flow, and with a daemon that cannot do anything, not one more packet leaves.
#[track_caller]
fn stops_at_once(change: impl Fn(&Topology) -> String) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
        let (stage, packet) = Stage::from_lan(&lab);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let change = change(&lab);
        shuntd.signal(Signal::SIGSTOP);
        assert!(stage.passes(&packet), "{change}: it does not pass before");
        lab.router().run(&change);
        let left = stage.send(&packet);
        shuntd.signal(Signal::SIGCONT);
        assert!(nothing(&left), "{engine}, {change}: {left:#?}");
        stage.never_fast(&shuntd, &packet, nothing);
        shuntd.stop();
    }
}

#[test]
fn when_a_rule_refuses_it() {
    stops_at_once(|_| "nft insert rule inet filter forward udp dport 5000 drop".to_owned());
}

#[test]
fn when_a_route_leads_nowhere() {
    stops_at_once(|lab| format!("ip route add blackhole {}/32", lab.wan().v4));
}

#[test]
fn when_a_policy_rule_leads_nowhere() {
    stops_at_once(|lab| format!("ip rule add to {} blackhole", lab.wan().v4));
}
