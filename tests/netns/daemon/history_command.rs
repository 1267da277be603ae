//! `shunt history` and the costs in `shunt status`: what happened is kept across a restart, with its cause.

use serde_json::Value;
use shunt_api::{Happening, HistoryTable, OffBy, OffEnd};
use shunt_testkit::{
    Crossing, Shunt, Shuntd, Stage, Topology, daemon_with, port_engine, require_root, rulesets, silent,
    silent_router, wait_for,
};
use shunt_wire::Packet;
use std::time::{Duration, Instant};

/// How long a fact may take to be seen.
const SOON: Duration = Duration::from_secs(90);

fn history(shunt: &Shunt) -> HistoryTable {
    serde_json::from_str(&shunt.done("history --json")).unwrap()
}

fn happened(table: &HistoryTable) -> Vec<&Happening> {
    table.events.iter().map(|event| &event.what).collect()
}

fn packets(lab: &Topology, flows: u16) -> Vec<Packet> {
    (0..flows).map(|flow| lab.lan().udp_to(4000 + flow, lab.wan().at(5000)).payload("some bytes")).collect()
}

#[test]
fn traffic_and_events_are_kept_across_a_restart() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let there = Crossing::between(lab.lan(), lab.wan());
    let packets = packets(&lab, 2);
    (0..50).for_each(|_| drop(there.pass_all(&packets)));
    shunt.done("off 192.0.2.77");
    shunt.done("on 192.0.2.77");
    shunt.done("off 192.0.2.78 --for 10m");
    lab.router().run("ip link set r0 down");
    let down = wait_for(SOON, || {
        let table = history(&shunt);
        happened(&table).contains(&&Happening::PortDown { port: "r0".to_owned() }).then_some(())
    });
    assert!(down.is_some(), "{:#?}", history(&shunt).events);
    let counted = shunt.status().packets;
    shunt.done("down");
    lab.router().run("ip link set r0 up");

    shunt.done("up --engine tc");
    let table = history(&shunt);
    let sum = |count: fn(&shunt_api::HistoryRow) -> u64| table.rows.iter().map(count).sum::<u64>();
    assert_eq!(sum(|row| row.fast), counted.fast, "{table:#?}");
    // The hosts themselves may have sent something since the counting.
    assert!(sum(|row| row.slow) >= counted.slow, "{table:#?}");
    assert!(table.rows.iter().any(|row| row.ports.contains_key("r0") && row.in_pps > 0), "{table:#?}");
    let events = happened(&table);
    let is_start = |what: &&&Happening| matches!(what, Happening::Started { after_crash: false, .. });
    assert_eq!(events.iter().filter(is_start).count(), 2, "{events:#?}");
    let which = "192.0.2.77".to_owned();
    for expected in [
        Happening::OffAdded { which: which.clone(), by: OffBy::Owner, for_s: None },
        Happening::OffRemoved { which, by: OffBy::Owner, end: Some(OffEnd::Removed) },
        Happening::Invalidated { cause: "off".to_owned(), device: None, object: None },
    ] {
        assert!(events.contains(&&expected), "{expected:?} is not in {events:#?}");
    }
    let follows = |what: &&Happening| matches!(what, Happening::Invalidated { cause, .. } if cause == "link" || cause == "netconf");
    assert!(!events.iter().any(follows), "it follows from the link: {events:#?}");
    let text = shunt.done("history --for 1h");
    assert!(text.starts_with("UTC") && text.contains("the daemon started"), "{text}");
    let text = shunt.done("history --events");
    assert!(text.contains("fast path turned off for 192.0.2.77"), "{text}");
    assert!(text.contains("fast path turned off for 192.0.2.78, for 10m"), "{text}");
    shunt.done("down");

    let kept = shunt.run("history --json");
    assert_eq!(kept.code, Some(21), "{kept:?}");
    assert!(kept.err.contains("is not running") && kept.err.contains("kept until"), "{kept:?}");
    let last: HistoryTable = serde_json::from_str(&kept.out).unwrap();
    assert!(last.events.len() > events.len() && last.rows.len() >= table.rows.len(), "{last:#?}");
    let stopped = &last.events.last().unwrap().what;
    assert!(
        matches!(stopped, Happening::Stopped { by, flows: Some(_) } if by == "`shunt down`"),
        "{last:#?}"
    );
}

#[test]
fn a_change_of_the_ruleset_is_named_with_its_table_chain_and_rule() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    lab.router().run("nft add table inet extra && nft add chain inet extra late '{ type filter hook forward priority 10; }' && nft add rule inet extra late counter");
    let wanted = [
        "table inet extra added",
        "chain late of table inet extra added",
        "in chain late of table inet extra added",
    ];
    let mut seen = Vec::new();
    let named = wait_for(SOON, || {
        let (code, text) = shuntd.request("GET", "/v1/history?for_s=600", "").unwrap();
        assert_eq!(code, 200, "{text}");
        let table: HistoryTable = serde_json::from_str(&text).unwrap();
        seen = table.events.into_iter().map(|event| event.text).collect();
        wanted
            .iter()
            .all(|part| seen.iter().any(|text| text.contains("ruleset") && text.contains(part)))
            .then_some(())
    });
    assert!(named.is_some(), "{seen:#?}");
    shuntd.stop();
}

/// No flow depends on it: the kernel's side lets the daemon hear of it for the history alone.
#[test]
fn a_default_route_that_comes_back_is_an_event_as_its_removal_is() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    let route = format!("default via {}", lab.wan().v4);
    let words = format!("default via {} dev r1", lab.wan().v4);
    let wanted = [format!("{words} removed"), format!("{words} added")];
    let is_told = |nth: usize| {
        wait_for(SOON, || {
            let (code, text) = shuntd.request("GET", "/v1/history?for_s=600", "").unwrap();
            assert_eq!(code, 200, "{text}");
            let table: HistoryTable = serde_json::from_str(&text).unwrap();
            table.events.iter().any(|event| event.text.contains(&wanted[nth])).then_some(())
        })
        .is_some()
    };
    lab.router().run(&format!("ip route add {route}"));
    assert!(is_told(1), "it is not told that the route was added");
    lab.router().run(&format!("ip route del {route}"));
    assert!(is_told(0), "it is not told that the route was removed");
    shuntd.stop();
}

fn texts(shuntd: &Shuntd) -> Vec<String> {
    let (code, text) = shuntd.request("GET", "/v1/history?for_s=600", "").unwrap();
    assert_eq!(code, 200, "{text}");
    let table: HistoryTable = serde_json::from_str(&text).unwrap();
    table.events.into_iter().map(|event| event.text).collect()
}

#[track_caller]
fn assert_told(shuntd: &Shuntd, wanted: &str) {
    let told = wait_for(SOON, || texts(shuntd).iter().any(|text| text.contains(wanted)).then_some(()));
    assert!(told.is_some(), "{wanted:?} is not in {:#?}", texts(shuntd));
}

#[test]
fn a_ruleset_that_is_loaded_again_is_told_by_its_numbers_and_a_single_rule_by_its_handle() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    lab.router().run("nft list ruleset > /tmp/ruleset.$$; (echo flush ruleset; cat /tmp/ruleset.$$) | nft -f -; rm /tmp/ruleset.$$");
    assert_told(&shuntd, "ruleset reloaded: ");
    let reloaded = texts(&shuntd).into_iter().find(|text| text.contains("reloaded: ")).unwrap();
    let (now, before) = reloaded.split_once("reloaded: ").unwrap().1.split_once("; before: ").unwrap();
    assert_eq!(now, before, "the same ruleset");
    assert!(now.contains("chain") && now.contains("rule"), "{now}");
    lab.router().run("nft add table inet one");
    assert_told(&shuntd, "table inet one added");
    shuntd.stop();
}

/// The device is a port of a bridge, so the kernel reports a link that goes down by messages of several kinds.
#[test]
fn a_link_that_goes_down_is_one_event_and_a_setting_of_its_port_in_a_bridge_is_another() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
    let router = lab.router();
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    let since = texts(&shuntd).len();
    router.run("ip link set r0 down");
    assert_told(&shuntd, "r0: link down");
    router.run("ip link set r0 up");
    assert_told(&shuntd, "r0: link up");
    router.run("bridge link set dev r0 isolated on");
    assert_told(&shuntd, "isolated on in its bridge");
    router.run("bridge link set dev r0 learning off hairpin on");
    assert_told(&shuntd, "hairpin on, learning off in its bridge");
    let told = texts(&shuntd).split_off(since);
    assert!(told.contains(&"r0: link down".to_owned()), "{told:#?}");
    let is_expected = |text: &&String| {
        ["r0: link ", " in its bridge", "an address of IPv6"].iter().any(|part| text.contains(part))
    };
    assert!(told.iter().all(|text| is_expected(&text)), "{told:#?}");
    router.run("ip link set r0 mtu 1400");
    assert_told(&shuntd, "MTU 1400 instead of 1500, r0");
    shuntd.stop();
}

#[test]
fn a_restart_beside_legacy_iptables_tells_a_change_of_rules_only_if_there_is_one() {
    if !require_root() {
        return;
    }
    let lab = silent_router("");
    lab.router().run("iptables-legacy -A FORWARD -j ACCEPT");
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let causes = || -> Vec<Option<String>> {
        let table = history(&shunt);
        let of = |what: &Happening| match what {
            Happening::Invalidated { cause, object, .. } if cause == "ruleset" => Some(object.clone()),
            _ => None,
        };
        table.events.iter().filter_map(|event| of(&event.what)).collect()
    };
    let before = causes();
    // Listing a table creates it.
    lab.router().run("iptables-legacy -t nat -L -n && grep nat /proc/net/ip_tables_names");
    shunt.done("restart");
    assert!(happened(&history(&shunt)).iter().any(|what| matches!(what, Happening::FlowsKept { .. })));
    assert_eq!(causes(), before, "no rule has changed");
    lab.router().run("iptables-legacy -A FORWARD -p tcp -j ACCEPT");
    let told = wait_for(SOON, || {
        causes().contains(&Some("rules of `iptables -t filter` changed".to_owned())).then_some(())
    });
    assert!(told.is_some(), "{:#?}", causes());
    shunt.done("down");
}

#[test]
fn qdiscs_and_filters_are_told_whatever_the_engine_is_and_a_filter_that_was_refused_is_not() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    let is_of_tc = |text: &String| ["qdisc", "filter", "class"].iter().any(|part| text.contains(part));
    assert!(!texts(&shuntd).iter().any(is_of_tc), "nobody has changed anything: {:#?}", texts(&shuntd));
    let tbf = "root handle 8001: tbf burst 10k latency 50ms rate";
    lab.router().run(&format!("tc qdisc add dev r1 {tbf} 10mbit"));
    assert_told(&shuntd, "qdisc tbf 8001: added on r1");
    lab.router().run(&format!("tc qdisc change dev r1 {tbf} 20mbit"));
    assert_told(&shuntd, "qdisc tbf 8001: changed on r1");
    lab.router().run("tc qdisc del dev r1 root");
    assert_told(&shuntd, "qdisc tbf 8001: removed on r1");
    lab.router().run("tc qdisc add dev r1 clsact");
    // The kernel makes a chain for the filter, refuses the filter, and removes the chain.
    let refused = "tc filter add dev r1 ingress chain 5 prio 9 nosuch";
    lab.router().run(&format!("tc filter add dev r1 ingress prio 7 u32 match u32 0 0 && ! {refused} 2> /tmp/refused.$$; rm /tmp/refused.$$"));
    assert_told(&shuntd, "filter u32 added on ingress of r1");
    lab.router().run("tc filter del dev r1 ingress");
    assert_told(&shuntd, "filter u32 removed on ingress of r1");
    let told: Vec<String> = texts(&shuntd).into_iter().filter(is_of_tc).collect();
    assert_eq!(told.len(), 6, "{told:#?}");
    lab.router().run("tc qdisc del dev r1 clsact");
    shuntd.stop();
}

#[test]
fn a_neighbour_with_another_mac_is_told_and_an_entry_that_goes_is_not() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    let host = lab.lan().v4;
    let set = |mac: &str| {
        lab.router().run(&format!("ip neigh replace {host} lladdr {mac} dev r0 nud reachable"));
    };
    set("02:00:00:00:09:01");
    lab.router().run(&format!("ip neigh del {host} dev r0"));
    set("02:00:00:00:09:02");
    let wanted =
        format!("neighbour {host} dev r0 has another MAC: 02:00:00:00:09:02 (was 02:00:00:00:09:01)");
    assert_told(&shuntd, &wanted);
    let gone = texts(&shuntd).into_iter().any(|text| text.contains("cause: neighbour"));
    assert!(!gone, "{:#?}", texts(&shuntd));
    shuntd.stop();
}

/// Each pair of changes ends its flows. They come too seldom for the data plane to stop learning.
#[test]
fn a_station_that_changes_its_port_every_few_seconds_is_told() {
    const PAUSE: Duration = Duration::from_secs(4);
    if !require_root() {
        return;
    }
    let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
    let shuntd = daemon_with(&lab, shunt_api::Engine::Tc, "");
    let (station, other) = (lab.host("lan2"), lab.host("lan3"));
    let own = Stage::new(station, &[lab.wan()]);
    let packet = station.udp_to(4001, lab.wan().at(5000)).payload("a flow of its own");
    own.teach(&shuntd, &packet);
    let (forger, mut hello) = (other.tap(), vec![0xff; 60]);
    hello[6..12].copy_from_slice(&station.mac.0);
    hello[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    let wanted = format!("station {} changes its port or its address again and again", station.mac);
    let mut changed_at = None;
    let told = wait_for(SOON, || {
        if changed_at.is_none_or(|at: Instant| at.elapsed() >= PAUSE) {
            changed_at = Some(Instant::now());
            forger.send_bytes(&hello);
            (0..4).for_each(|_| own.from.send(&packet));
        }
        texts(&shuntd).iter().any(|text| text.contains(&wanted)).then_some(())
    });
    assert!(told.is_some(), "{:#?} {:#?}", texts(&shuntd), shuntd.status());
    shuntd.stop();
}

#[test]
fn a_change_of_the_engine_is_an_event_with_its_cause() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    shunt_testkit::offer_xdp_frames(&lab, &shuntd, "r1");
    assert_eq!(port_engine(&shuntd.status(), "r1"), shunt_api::Engine::Xdp);
    lab.router().run("tc qdisc add dev r1 root handle 1: htb default 10");
    let seen = wait_for(SOON, || {
        let (code, text) = shuntd.request("GET", "/v1/history?for_s=600", "").unwrap();
        assert_eq!(code, 200, "{text}");
        let table: HistoryTable = serde_json::from_str(&text).unwrap();
        table.events.into_iter().find_map(|event| match event.what {
            Happening::Engine { port, from: Some(shunt_api::Engine::Xdp), to, why } if port == "r1" => {
                Some((to, why))
            }
            _ => None,
        })
    });
    let (to, why) = seen.unwrap_or_else(|| panic!("no event: {:#?}", shuntd.status().ports));
    assert!(to == shunt_api::Engine::Tc && why.contains("htb"), "{to}: {why}");
    for wrong in ["for_s=0", "for_s=86401", "for_s=x", "rows=0", "wrong=1"] {
        let (code, text) = shuntd.request("GET", &format!("/v1/history?{wrong}"), "").unwrap();
        assert_eq!(code, 400, "{wrong}: {text}");
    }
    shuntd.stop();
}

#[test]
fn programs_are_measured_while_the_owner_asks() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon_with(&lab, shunt_api::Engine::Tc, "");
    let there = Crossing::between(lab.lan(), lab.wan());
    let packets = packets(&lab, 4);
    let measured = wait_for(SOON, || {
        packets.iter().for_each(|packet| there.from.send(packet));
        let (code, text) = shuntd.request("GET", "/v1/status?measure=true", "").unwrap();
        assert_eq!(code, 200, "{text}");
        let status: Value = serde_json::from_str(&text).unwrap();
        let programs = status["costs"]["programs"].as_array().cloned().unwrap_or_default();
        programs.iter().find(|program| program["name"] == "shunt_in").cloned()
    });
    let program = measured.unwrap_or_else(|| panic!("{:#?}", shuntd.status().costs));
    assert!(program["run_ns"].as_f64().unwrap() > 0.0, "{program}");
    let costs = shuntd.status().costs.unwrap();
    assert!(
        costs.maps_bytes > 1 << 20 && costs.daemon_bytes > 1 << 20 && costs.flow_bytes > 100,
        "{costs:#?}"
    );
    shuntd.stop();
}
