//! Stations and neighbours that keep changing: their own flows go to Linux, and those of others stay fast.

use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, Host, Shuntd, Stage, Topology, daemon, refusals, require_root, rulesets, silent, wait_for,
};
use shunt_wire::{Mac, Packet, ones_complement_sum};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How often the station changes, and packets of another host between two changes.
const CHANGES: u32 = 60;
const BETWEEN: usize = 10;
/// Two changes per 20 ms at most, so that each is seen.
const GAP: Duration = Duration::from_millis(20);

/// The share of fast packets among those of another host, sent between the changes.
fn share_while(shuntd: &Shuntd, stage: &Stage, packet: &Packet, change: impl Fn(u32)) -> f64 {
    let before = shuntd.status().packets.fast;
    for number in 0..CHANGES {
        let since = Instant::now();
        change(number);
        for _ in 0..BETWEEN {
            assert!(stage.passes(packet), "a packet of another host is lost or duplicated");
        }
        thread::sleep(GAP.saturating_sub(since.elapsed()));
    }
    (shuntd.status().packets.fast - before) as f64 / f64::from(CHANGES * BETWEEN as u32)
}

/// As [`share_while`], while a thread makes a thousand changes a second.
fn share_during(shuntd: &Shuntd, stage: &Stage, packet: &Packet, change: impl Fn(u32) + Send) -> f64 {
    let ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let (began, mut number) = (Instant::now(), 0);
            while !ended.load(Ordering::Relaxed) {
                change(number);
                number += 1;
                thread::sleep((Duration::from_millis(1) * number).saturating_sub(began.elapsed()));
            }
        });
        let share = share_while(shuntd, stage, packet, |_| ());
        ended.store(true, Ordering::Relaxed);
        share
    })
}

/// A gratuitous ARP reply: the address has this MAC now.
fn announcement(address: Ipv4Addr, mac: Mac) -> Vec<u8> {
    let own = [&mac.0[..], &address.octets()].concat();
    [&[0xff; 6][..], &mac.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &own, &own, &[0; 18]].concat()
}

/// Whether status names the MAC, and its flows are refused for that.
fn is_named(shuntd: &Shuntd, mac: Mac) -> bool {
    let status = shuntd.status();
    status.unstable_stations.iter().any(|station| station.mac == mac) && refusals(&status, "unstable") > 0
}

fn flow(from: &Host, to: &Host, port: u16) -> Packet {
    from.udp_to(port, to.at(5000)).payload("a flow of its own")
}

#[test]
fn a_neighbour_with_two_macs_costs_other_hosts_nothing() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
        let shuntd = daemon(&lab, engine);
        let (flapping, wan) = (lab.host("wan2"), lab.wan());
        let (other, own) = (Stage::new(lab.lan(), &[wan]), Stage::new(lab.lan(), &[flapping]));
        let (packet, its) = (flow(lab.lan(), wan, 4000), flow(lab.lan(), flapping, 4001));
        other.teach(&shuntd, &packet);
        own.teach(&shuntd, &its);
        let macs = [flapping.mac, Mac([2, 0, 0, 0, 9, 9])];
        let share = share_while(&shuntd, &other, &packet, |number| {
            let (mac, device) = (macs[(number % 2) as usize], &flapping.gateway);
            lab.router()
                .run(&format!("ip neigh replace {} lladdr {mac} dev {device} nud permanent", flapping.v4));
            // Its flow is learned again between two changes, as long as Shunt lets it.
            (0..4).for_each(|_| own.from.send(&its));
        });
        assert!(share > 0.95, "{engine}: {share} {:#?}", shuntd.status());
        let fresh = share_while(&shuntd, &other, &packet, |number| {
            let (mac, device) = (Mac([2, 0, 0, 0, 10, number as u8]), &flapping.gateway);
            lab.router()
                .run(&format!("ip neigh replace {} lladdr {mac} dev {device} nud permanent", flapping.v4));
            (0..4).for_each(|_| own.from.send(&its));
        });
        assert!(fresh > 0.95, "{engine}: a new MAC each time: {fresh} {:#?}", shuntd.status());
        assert!(macs.iter().any(|mac| is_named(&shuntd, *mac)), "{engine}: {:#?}", shuntd.status());
        let (address, device) = (flapping.v4, &flapping.gateway);
        lab.router()
            .run(&format!("ip neigh replace {address} lladdr {} dev {device} nud reachable", macs[0]));
        let (announcer, announcements) = (flapping.tap(), macs.map(|mac| announcement(address, mac)));
        let many = share_during(&shuntd, &other, &packet, |number| {
            announcer.send_bytes(&announcements[(number % 2) as usize]);
        });
        assert!(many > 0.95, "{engine}: a thousand announcements a second: {many} {:#?}", shuntd.status());
        shuntd.stop();
    }
}

/// An unsolicited neighbour advertisement with the override flag, to all nodes: the address has this MAC now.
fn advertisement(address: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let body = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &address.octets(), &[2, 1], &mac.0].concat();
    let to: Ipv6Addr = "ff02::1".parse().unwrap();
    let pseudo = [&address.octets()[..], &to.octets(), &[0, 0, 0, body.len() as u8, 0, 0, 0, 58]].concat();
    let checksum = !ones_complement_sum(&[pseudo, body.clone()].concat());
    let mut packet = [
        &[0x33, 0x33, 0, 0, 0, 1][..],
        &mac.0,
        &[0x86, 0xdd, 0x60, 0, 0, 0, 0, body.len() as u8, 58, 255],
        &address.octets(),
        &to.octets(),
        &body,
    ]
    .concat();
    packet[56..58].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The neighbour is learned again a minute after its last change.
#[test]
fn an_ipv6_neighbour_with_two_macs_costs_others_nothing_and_is_fast_again_later() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
    let shuntd = daemon(&lab, Engine::Tc);
    let (flapping, wan) = (lab.host("wan2"), lab.wan());
    let (other, own) = (Stage::new(lab.lan(), &[wan]), Stage::new(lab.lan(), &[flapping]));
    let of = |to: &Host, port| lab.lan().udp_to(port, to.at6(5000)).payload("a flow of its own");
    let (packet, its) = (of(wan, 4000), of(flapping, 4001));
    other.teach(&shuntd, &packet);
    own.teach(&shuntd, &its);
    let macs = [flapping.mac, Mac([2, 0, 0, 0, 9, 9])];
    let set = |mac: Mac, state: &str| {
        let (address, device) = (flapping.v6, &flapping.gateway);
        lab.router().run(&format!("ip -6 neigh replace {address} lladdr {mac} dev {device} nud {state}"));
    };
    let share = share_while(&shuntd, &other, &packet, |number| {
        set(macs[(number % 2) as usize], "permanent");
        (0..4).for_each(|_| own.from.send(&its));
    });
    assert!(share > 0.95, "{share} {:#?}", shuntd.status());
    assert!(macs.iter().any(|mac| is_named(&shuntd, *mac)), "{:#?}", shuntd.status());
    set(macs[0], "reachable");
    let (announcer, advertisements) = (flapping.tap(), macs.map(|mac| advertisement(flapping.v6, mac)));
    let many = share_during(&shuntd, &other, &packet, |number| {
        announcer.send_bytes(&advertisements[(number % 2) as usize]);
    });
    assert!(many > 0.95, "a thousand advertisements a second: {many} {:#?}", shuntd.status());
    set(macs[0], "permanent");
    let fast_again = wait_for(Duration::from_secs(100), || {
        let before = shuntd.status().packets.fast;
        (0..4).for_each(|_| own.from.send(&its));
        // The wait takes a minute, and leaves the CPU to other tests.
        thread::sleep(10 * GAP);
        (shuntd.status().packets.fast > before).then_some(())
    });
    assert!(fast_again.is_some(), "{:#?}", shuntd.status());
    shuntd.stop();
}

#[test]
fn a_station_on_two_ports_costs_other_stations_nothing() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
        let shuntd = daemon(&lab, engine);
        let (victim, attacker, wan) = (lab.host("lan2"), lab.host("lan3"), lab.wan());
        let (other, own) = (Stage::new(lab.lan(), &[wan]), Stage::new(victim, &[wan]));
        let (packet, its) = (flow(lab.lan(), wan, 4000), flow(victim, wan, 4001));
        other.teach(&shuntd, &packet);
        own.teach(&shuntd, &its);
        let (forger, mut hello) = (attacker.tap(), vec![0xff; 60]);
        hello[6..12].copy_from_slice(&victim.mac.0);
        hello[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        let share = share_while(&shuntd, &other, &packet, |_| {
            forger.send_bytes(&hello);
            (0..4).for_each(|_| own.from.send(&its));
        });
        assert!(share > 0.95, "{engine}: {share} {:#?}", shuntd.status());
        assert!(is_named(&shuntd, victim.mac), "{engine}: {:#?}", shuntd.status());
        let many = share_during(&shuntd, &other, &packet, |_| {
            forger.send_bytes(&hello);
            own.from.send(&its);
        });
        assert!(many > 0.95, "{engine}: a thousand frames a second: {many} {:#?}", shuntd.status());
        shuntd.stop();
    }
}
