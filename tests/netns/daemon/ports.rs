//! Which devices can be ports, and how many ports there can be.

use crate::refusals::up_refuses;
use shunt_api::{Config, Engine, FailureCode};
use shunt_testkit::{NetNs, Stage, Topology, daemon, require_root, rulesets, wait_until};

/// Adds pairs of veths, both ends of which have an address.
fn add_pairs(router: &NetNs, numbers: std::ops::RangeInclusive<u32>) {
    router.run(&format!(
        "for n in $(seq {} {}); do ip link add v$n type veth peer name w$n; ip address add 10.0.$n.1/24 dev v$n; \
         ip address add 10.1.$n.1/24 dev w$n; done",
        numbers.start(),
        numbers.end()
    ));
}

#[test]
fn more_than_64_ports_are_refused() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    add_pairs(lab.router(), 1..=32);
    let names = ["66 ports; the most of an instance is 64", "--port"];
    up_refuses(&lab, "", FailureCode::Usage, &names);
    let named: String = (1..=33).map(|n| format!("--port v{n} --port w{n} ")).collect();
    up_refuses(&lab, &named, FailureCode::Usage, &names);
    up_refuses(&lab, "--port r0 --port r0", FailureCode::Usage, &["--port", "`r0`", "twice"]);
    stage.pass(&packet);
}

#[test]
fn a_device_beyond_64_ports_is_left_to_linux_until_a_port_goes() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    add_pairs(lab.router(), 1..=31);
    let shuntd = daemon(&lab, Engine::Tc);
    let is_port = |name: &str| shuntd.status().ports.iter().any(|port| port.name == name);
    assert_eq!(shuntd.status().ports.len(), Config::PORTS_MAX);
    stage.teach(&shuntd, &packet);
    add_pairs(lab.router(), 32..=32);
    wait_until("the log names the device", || {
        shuntd.log().lines().any(|line| ["v32", "64 ports", "--port"].iter().all(|word| line.contains(word)))
    });
    assert!(!is_port("v32") && !is_port("w32"));
    stage.teach(&shuntd, &packet);
    lab.router().run("ip link del v1");
    wait_until("the devices are ports", || is_port("v32") && is_port("w32"));
    assert_eq!(shuntd.status().ports.len(), Config::PORTS_MAX);
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}

#[test]
fn a_stacked_device_is_refused_with_the_names_of_the_devices_below_it() {
    if !require_root() {
        return;
    }
    let lab = Topology::bridged_lan();
    let router = lab.router();
    router.run("ip link add br7 type bridge");
    let below = ["port br0", "a bridge", "as ports: r0"];
    for (words, names) in
        [("--port br0", &below[..]), ("--port r1 --port br7", &["port br7", "a bridge", "below it"])]
    {
        up_refuses(&lab, words, FailureCode::PortMissing, names);
    }
}
