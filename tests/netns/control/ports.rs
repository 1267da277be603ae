//! Which devices can be ports, and how many.

use crate::{OPEN, daemon, refusals::up_refuses, stage::start};
use shunt_api::{Config, Engine, FailureCode};
use shunt_testkit::{NetNs, Topology, require_root, wait_until};

/// Pairs of devices, of which both ends have an address.
fn add_pairs(router: &NetNs, numbers: std::ops::RangeInclusive<u32>) {
    router.run(&format!(
        "for n in $(seq {} {}); do ip link add v$n type veth peer name w$n; ip address add 10.0.$n.1/24 dev v$n; \
         ip address add 10.1.$n.1/24 dev w$n; done",
        numbers.start(),
        numbers.end()
    ));
}

#[test]
fn more_ports_than_there_are_places_are_refused() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
    add_pairs(lab.router(), 1..=32);
    let names = ["66 are more than the 64", "--port"];
    up_refuses(&lab, "", FailureCode::Usage, &names);
    let named: String = (1..=33).map(|n| format!("--port v{n} --port w{n} ")).collect();
    up_refuses(&lab, &named, FailureCode::Usage, &names);
    up_refuses(&lab, "--port r0 --port r0", FailureCode::Usage, &["--port", "`r0`", "twice"]);
    stage.pass(&packet);
}

#[test]
fn a_device_that_finds_no_place_is_left_to_linux_until_another_goes() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
    add_pairs(lab.router(), 1..=31);
    let shuntd = daemon(&lab, Engine::Tc);
    let is_port = |name: &str| shuntd.status().ports.iter().any(|port| port.name == name);
    assert_eq!(shuntd.status().ports.len(), Config::PORTS_MAX);
    stage.teach(&shuntd, &packet);
    add_pairs(lab.router(), 32..=32);
    wait_until("the log names it", || {
        shuntd.log().lines().any(|line| ["v32", "64 ports", "--port"].iter().all(|word| line.contains(word)))
    });
    assert!(!is_port("v32") && !is_port("w32"));
    stage.teach(&shuntd, &packet);
    lab.router().run("ip link del v1");
    wait_until("they have the places", || is_port("v32") && is_port("w32"));
    assert_eq!(shuntd.status().ports.len(), Config::PORTS_MAX);
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}

#[test]
fn a_device_on_top_of_others_is_refused_by_its_kind_and_what_is_below_it_is_named() {
    if !require_root() {
        return;
    }
    let lab = Topology::bridged_lan();
    let router = lab.router();
    router.run("ip link add br7 type bridge");
    let below = ["port br0", "a bridge", "--port r0"];
    for (words, names) in
        [("--port br0", &below[..]), ("--port r1 --port br7", &["port br7", "a bridge", "below it"])]
    {
        up_refuses(&lab, words, FailureCode::PortMissing, names);
    }
}
