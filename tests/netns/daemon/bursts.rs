//! More changes than the daemon can read from netlink.

use nix::sys::signal::Signal;
use shunt_api::Engine;
use shunt_testkit::{Stage, Topology, daemon, epoch_moves, ip_batch, require_root, rulesets, silent_router};
use std::time::Instant;

const MANY: u32 = 20_000;

/// Adds or deletes routes to the WAN host: each may concern the flow, and none changes where its packets go. The filter
/// of the daemon's socket passes on those that concern a flow, and all deletions.
fn routes(lab: &Topology, action: &str) {
    let wan = lab.wan().v4;
    ip_batch(lab.router(), MANY, |n| format!("route {action} {wan}/32 dev r1 metric {}", n + 1));
}

#[test]
fn flows_become_fast_again_after_bursts_of_routes_and_neighbours() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    lab.router().run("ip address add 198.19.0.1/16 dev r1");
    let shuntd = daemon(&lab, Engine::Xdp);
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    routes(&lab, "add");
    let status = shuntd.status();
    assert!(epoch_moves(&status, "route") + epoch_moves(&status, "overrun") > 0, "{status:#?}");
    eprintln!("fast after {MANY} routes: {:?}", stage.teach(&shuntd, &packet));
    routes(&lab, "del");
    eprintln!("fast after {MANY} deleted routes: {:?}", stage.teach(&shuntd, &packet));
    let before = epoch_moves(&shuntd.status(), "neighbour");
    ip_batch(lab.router(), MANY, |n| {
        format!("neigh replace 198.19.{}.{} lladdr 02:00:00:00:09:09 dev r1 nud permanent", n >> 8, n & 255)
    });
    eprintln!("fast after {MANY} neighbours: {:?}", stage.teach(&shuntd, &packet));
    // The same neighbours with another MAC.
    ip_batch(lab.router(), MANY, |n| {
        format!("neigh replace 198.19.{}.{} lladdr 02:00:00:00:0a:0a dev r1 nud permanent", n >> 8, n & 255)
    });
    eprintln!("fast after {MANY} other MACs: {:?}", stage.teach(&shuntd, &packet));
    let status = shuntd.status();
    assert_eq!(epoch_moves(&status, "neighbour"), before, "no flow uses these neighbours: {status:#?}");
    shuntd.stop();
}

/// A daemon that does not read its sockets for a while loses messages, and must then find all changes by a dump.
#[test]
fn changes_missed_in_a_netlink_overrun_are_found() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon(&lab, Engine::Xdp);
    let (stage, packet) = Stage::from_lan(&lab);
    routes(&lab, "add");
    stage.teach(&shuntd, &packet);
    shuntd.signal(Signal::SIGSTOP);
    routes(&lab, "del");
    lab.router().run("ip link set r1 mtu 1400");
    shuntd.signal(Signal::SIGCONT);
    let since = Instant::now();
    let status =
        shuntd.wait_until("the daemon knows the MTU", |s| s.ports.iter().any(|port| port.mtu == 1400));
    eprintln!("time from the overrun to the new state: {:?}", since.elapsed());
    assert!(epoch_moves(&status, "overrun") > 0, "{:#?}", status.epoch_moves);
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}
