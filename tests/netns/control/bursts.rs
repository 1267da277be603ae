//! More changes than the daemon can hear.

use crate::{OPEN, Stage, daemon, moves, silent};
use nix::sys::signal::Signal;
use shunt_api::Engine;
use shunt_testkit::{NetNs, Topology, require_root};
use std::{fmt::Write, time::Instant};

const MANY: u32 = 20_000;

/// Runs `ip` commands, one for each number, in one go.
#[track_caller]
fn many(netns: &NetNs, command: impl Fn(u32) -> String) {
    let mut batch = String::new();
    for number in 0..MANY {
        writeln!(batch, "{}", command(number)).unwrap();
    }
    let file = std::env::temp_dir().join(format!("{}.batch", netns.name()));
    std::fs::write(&file, batch).unwrap();
    netns.run(&format!("ip -batch {0}; rm {0}", file.display()));
}

fn route(number: u32) -> String {
    format!("route add 10.{}.{}.{}/32 via 198.18.0.2", number >> 16, number >> 8 & 255, number & 255)
}

#[test]
fn a_burst_of_routes_and_neighbours_is_survived() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
    let shuntd = daemon(&lab, Engine::Xdp);
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    lab.router().run("ip address add 198.19.0.1/16 dev r1");
    many(lab.router(), route);
    let status = shuntd.status();
    assert!(moves(&status, "route") + moves(&status, "overrun") > 0, "{status:#?}");
    eprintln!("fast after {MANY} routes: {:?}", stage.teach(&shuntd, &packet));
    many(lab.router(), |n| {
        format!("neigh replace 198.19.{}.{} lladdr 02:00:00:00:09:09 dev r1 nud permanent", n >> 8, n & 255)
    });
    eprintln!("fast after {MANY} neighbours: {:?}", stage.teach(&shuntd, &packet));
    // All of them have another MAC.
    many(lab.router(), |n| {
        format!("neigh replace 198.19.{}.{} lladdr 02:00:00:00:0a:0a dev r1 nud permanent", n >> 8, n & 255)
    });
    eprintln!("fast after {MANY} other MACs: {:?}", stage.teach(&shuntd, &packet));
    let status = shuntd.status();
    assert!(moves(&status, "neighbour") + moves(&status, "overrun") > 0, "{status:#?}");
    shuntd.stop();
}

/// A daemon that does not listen for a while loses messages, and with them any change. It must find out what changed.
#[test]
fn what_was_missed_in_an_overrun_is_found_out() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
    let shuntd = daemon(&lab, Engine::Xdp);
    let (stage, packet) = Stage::from_lan(&lab);
    stage.teach(&shuntd, &packet);
    shuntd.signal(Signal::SIGSTOP);
    many(lab.router(), route);
    lab.router().run("ip link set r1 mtu 1400");
    shuntd.signal(Signal::SIGCONT);
    let since = Instant::now();
    let status = shuntd.wait_until("the MTU is known", |s| s.ports.iter().any(|port| port.mtu == 1400));
    eprintln!("the state after an overrun: {:?}", since.elapsed());
    assert!(moves(&status, "overrun") > 0, "{:#?}", status.epoch_moves);
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}
