//! What becomes of flows is told as it happens, and costs nothing while nobody asks.

use crate::silent;
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_bpf::{abi, testrun};
use shunt_testkit::{
    Crossing, Handshake, Running, Shunt, Topology, require_root, rulesets, wait_for, wait_until,
};
use shunt_wire::{Tcp, Transport};
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(20);

#[track_caller]
fn watch(shunt: &Shunt, words: &str) -> Running {
    let watch = shunt.start(&format!("watch {words}"));
    wait_until("it watches", || watch.err().contains("watching"));
    watch
}

/// The events so far: name and reason of those of flows, and of the others name and cause.
fn events(watch: &Running) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = watch.out();
    // The last line may be on its way.
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        (text(&event["event"]), text(event.get("cause").unwrap_or(&event["reason"])))
    };
    whole.lines().map(event).collect()
}

fn has(watch: &Running, name: &str, reason: &str) -> bool {
    events(watch).iter().any(|(event, why)| event == name && why == reason)
}

fn traces(pid: u32) -> bool {
    testrun::control_of(pid).unwrap().flags & abi::CONTROL_TRACE != 0
}

#[test]
fn the_life_of_a_connection_is_told_and_nothing_is_traced_while_nobody_watches() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "reprove = \"300ms\"\n");
    shunt.done(&format!("up --config {}", config.display()));
    let status: Value = serde_json::from_str(&shunt.done("status --json")).unwrap();
    let pid = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    assert!(!traces(pid), "nobody watches yet");

    let mut it = watch(&shunt, "--json -p tcp -s 192.168.1.2 --dport 80");
    let other = watch(&shunt, "--json --dport 81");
    assert!(traces(pid));
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let data = connection.from_client(&syn, 0, "data");
    for (name, reason) in [("learn", ""), ("activate", ""), ("punt", "reprove")] {
        let told = wait_for(AGAIN, || {
            there.pass(&data);
            has(&it, name, reason).then_some(())
        });
        assert!(told.is_some(), "no {name} {reason}: {:?}", events(&it));
    }
    let mut end = connection.from_client(&syn, 4, "end");
    if let Transport::Tcp(tcp) = &mut end.transport {
        tcp.flags |= Tcp::FIN;
    }
    there.pass(&end);
    wait_until("its end is told", || has(&it, "retire", "tcp-flags"));
    lab.router().run("ip route add blackhole 203.0.113.0/24");
    wait_until("the change is told", || has(&it, "epoch", "route"));

    let told = events(&it);
    let at = |name: &str, reason: &str| told.iter().position(|(n, r)| n == name && r == reason);
    let order = [at("refuse", "not-liberal"), at("learn", ""), at("activate", ""), at("punt", "reprove")];
    assert!(order.is_sorted() && order[1].is_some(), "{told:?}");
    assert!(at("punt", "reprove") < at("retire", "tcp-flags"), "{told:?}");
    let line = it.out().lines().find(|line| line.contains("activate")).unwrap().to_owned();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["port"], &event["src"], &event["dport"]),
        (&"r0".into(), &"192.168.1.2".into(), &80.into())
    );
    assert!(events(&other).iter().all(|(name, _)| name == "epoch"), "{:?}", events(&other));

    // Not SIGINT, which the background jobs of a shell ignore.
    it.signal(Signal::SIGTERM);
    wait_until("it has ended", || it.ended().is_some());
    assert!(traces(pid), "another one watches");
    other.signal(Signal::SIGKILL);
    wait_until("nothing is traced any more", || !traces(pid));
    drop(watch(&shunt, ""));
    wait_until("nothing is traced any more", || !traces(pid));
    assert_eq!(shunt.done("down"), "stopped, nothing left behind\n");
}

#[test]
fn a_watch_ends_when_it_was_asked_to_and_with_the_daemon() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    assert_eq!(shunt.done("watch --for 300ms"), "");
    let mut one = watch(&shunt, "--count 1");
    let mut all = watch(&shunt, "");
    shunt.done("flush");
    wait_until("the first has seen enough", || one.ended() == Some(Some(0)));
    assert!(one.out().ends_with("flush\n") && one.out().contains(" epoch "), "{}", one.out());
    assert_eq!(one.out().lines().count(), 1);
    shunt.done("down");
    wait_until("the other ends", || all.ended().is_some());
    assert_eq!(all.ended(), Some(Some(21)), "{}", all.err());
}

#[test]
fn there_is_a_bound_to_those_who_watch_and_a_stuck_one_holds_nobody_up() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    let watchers: Vec<Running> = (0..8).map(|_| watch(&shunt, "")).collect();
    let said = shunt.run("watch --for 1s");
    assert!(said.code == Some(70) && said.err.contains("8 other clients"), "{said:?}");
    // They read nothing from now on, and the daemon has much to tell.
    watchers.iter().for_each(|watch| watch.signal(Signal::SIGSTOP));
    for _ in 0..50 {
        shunt.done("flush");
    }
    watchers.iter().for_each(|watch| watch.signal(Signal::SIGKILL));
    let place = || shunt.run("watch --for 10ms").code == Some(0);
    wait_until("there is a place again", place);
}
