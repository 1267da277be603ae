//! `shunt watch` prints what happens to flows, and costs nothing while nobody runs it.

use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_bpf::abi;
use shunt_testkit::{
    Crossing, Handshake, Running, Shunt, require_root, rulesets, silent_router, wait_for, wait_until,
};
use shunt_traffic::testrun;
use shunt_wire::{Tcp, Transport};
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(20);

#[track_caller]
fn watch(shunt: &Shunt, words: &str) -> Running {
    let watch = shunt.start(&format!("watch {words}"));
    wait_until("watch has started", || watch.err().contains("watching"));
    watch
}

/// The events so far: name and reason of flow events, name and cause of others.
fn events(watch: &Running) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let output = watch.out();
    // The last line may be incomplete.
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
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
    testrun::control_block(pid).unwrap().flags & abi::CONTROL_TRACE != 0
}

#[test]
fn watch_prints_the_life_of_a_connection_and_traces_only_while_it_runs() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "reprove = \"300ms\"\n");
    shunt.done(&format!("up --config {}", config.display()));
    let status: Value = serde_json::from_str(&shunt.done("status --json")).unwrap();
    let pid = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    assert!(!traces(pid), "traced before anybody watches");

    let mut it = watch(&shunt, "--json -p tcp -s 192.168.1.2 --dport 80");
    let other = watch(&shunt, "--json --dport 81");
    assert!(traces(pid));
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, lab.wan());
    let data = connection.from_client(&syn, 0, "data");
    for (name, reason) in [("learn", ""), ("activate", ""), ("punt", "reprove")] {
        let printed = wait_for(AGAIN, || {
            there.pass(&data);
            has(&it, name, reason).then_some(())
        });
        assert!(printed.is_some(), "no {name} {reason}: {:?}", events(&it));
    }
    let mut end = connection.from_client(&syn, 4, "end");
    if let Transport::Tcp(tcp) = &mut end.transport {
        tcp.flags |= Tcp::FIN;
    }
    there.pass(&end);
    wait_until("the retired flow is printed", || has(&it, "retire", "tcp-flags"));
    lab.router().run("ip rule add from 203.0.113.9 lookup main");
    wait_until("the change is printed", || has(&it, "epoch", "rule"));

    let printed = events(&it);
    let at = |name: &str, reason: &str| printed.iter().position(|(n, r)| n == name && r == reason);
    let order = [at("refuse", "not-liberal"), at("learn", ""), at("activate", ""), at("punt", "reprove")];
    assert!(order.is_sorted() && order[1].is_some(), "{printed:?}");
    assert!(at("punt", "reprove") < at("retire", "tcp-flags"), "{printed:?}");
    let line = it.out().lines().find(|line| line.contains("activate")).unwrap().to_owned();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["port"], &event["src"], &event["dport"]),
        (&"r0".into(), &"192.168.1.2".into(), &80.into())
    );
    assert!(events(&other).iter().all(|(name, _)| name == "epoch"), "{:?}", events(&other));

    // SIGTERM, since background jobs of a shell ignore SIGINT.
    it.signal(Signal::SIGTERM);
    wait_until("the command has ended", || it.ended().is_some());
    assert!(traces(pid), "the other command still watches");
    other.signal(Signal::SIGKILL);
    wait_until("tracing has ended", || !traces(pid));
    drop(watch(&shunt, ""));
    wait_until("tracing has ended", || !traces(pid));
    assert_eq!(shunt.done("down"), "stopped, nothing left in the kernel\n");
}

#[test]
fn a_watch_ends_after_its_duration_and_with_the_daemon() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    assert_eq!(shunt.done("watch --for 300ms"), "");
    let mut one = watch(&shunt, "--count 1");
    let mut all = watch(&shunt, "");
    shunt.done("flush");
    wait_until("the first command has printed its events", || one.ended() == Some(Some(0)));
    assert!(one.out().ends_with("flush\n") && one.out().contains(" epoch "), "{}", one.out());
    assert_eq!(one.out().lines().count(), 1);
    shunt.done("down");
    wait_until("the other command has ended", || all.ended().is_some());
    assert_eq!(all.ended(), Some(Some(21)), "{}", all.err());
}

#[test]
fn a_watch_goes_on_with_the_next_daemon_and_says_so() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "");
    shunt.done(&format!("up --config {}", config.display()));
    let mut it = watch(&shunt, "--json");
    let mut text = watch(&shunt, "");
    for (nth, (kind, config)) in [("taken-over", ""), ("clean", "udp_packets = 3\n")].into_iter().enumerate()
    {
        shunt.file("shunt.toml", config);
        let restarted: Value = serde_json::from_str(&shunt.done("restart --json")).unwrap();
        assert_eq!(restarted["kind"], kind, "{restarted}");
        let followed = |line: &&str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["event"] == "restart" && event["pid"] == restarted["pid"] && event["kind"] == kind
        };
        wait_until("the restart is an event", || {
            let out = it.out();
            out.ends_with('\n') && out.lines().filter(followed).count() == 1
        });
        wait_until("the restart is a line of text", || {
            text.out().matches(" restart  pid ").count() == nth + 1
        });
        let before = events(&it).len();
        shunt.done("flush");
        wait_until("the next daemon's events are printed", || {
            events(&it)[before..].iter().any(|(name, cause)| name == "epoch" && cause == "flush")
        });
    }
    shunt.done("down");
    wait_until("the commands have ended", || it.ended().is_some() && text.ended().is_some());
    assert_eq!((it.ended(), text.ended()), (Some(Some(21)), Some(Some(21))), "{}", it.err());
    assert!(it.err().contains("the daemon has ended"), "{}", it.err());
}

#[test]
fn the_number_of_watchers_is_limited_and_a_stuck_one_delays_nobody() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    let watchers: Vec<Running> = (0..8).map(|_| watch(&shunt, "")).collect();
    let output = shunt.run("watch --for 1s");
    assert!(output.code == Some(70) && output.err.contains("8 other clients"), "{output:?}");
    // Stop the watchers, so that they read nothing while the daemon has many events.
    watchers.iter().for_each(|watch| watch.signal(Signal::SIGSTOP));
    for _ in 0..50 {
        shunt.done("flush");
    }
    watchers.iter().for_each(|watch| watch.signal(Signal::SIGKILL));
    let place = || shunt.run("watch --for 10ms").code == Some(0);
    wait_until("another watcher is admitted", place);
}
