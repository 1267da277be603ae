//! Which devices can be ports, and how many ports there can be.

use crate::refusals::up_refuses;
use shunt_api::{Config, Engine, FailureCode};
use shunt_testkit::{NetNs, Stage, Topology, daemon, require_root, rulesets, wait_until};

/// With so many pairs of veths beside its own two devices, the router has all the ports that it may have.
const PAIRS: u32 = Config::PORTS_MAX as u32 / 2 - 1;

/// Adds pairs of veths with an address at each end. They carry no traffic.
pub(crate) fn add_pairs(router: &NetNs, numbers: std::ops::RangeInclusive<u32>) {
    let add = |n| {
        let (high, low) = (n / 256, n % 256);
        format!(
            "link add v{n} type veth peer name w{n}\naddress add 10.{high}.{low}.1/24 dev v{n}\n\
             address add 10.{}.{low}.1/24 dev w{n}\n",
            high + 100
        )
    };
    let batch: String = numbers.map(add).collect();
    router.run(&format!("ip -batch - <<'END'\n{batch}END"));
}

#[test]
fn more_named_ports_than_there_can_be_are_refused() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let named: String = (0..=Config::PORTS_MAX).map(|n| format!("--port p{n} ")).collect();
    up_refuses(&lab, &named, FailureCode::Usage, &["1025 ports; the most of an instance is 1024", "--port"]);
    up_refuses(&lab, "--port r0 --port r0", FailureCode::Usage, &["--port", "`r0`", "twice"]);
    stage.pass(&packet);
}

/// The devices of the flow are the last that become ports, so that their slots have the highest numbers.
#[test]
#[ignore = "it takes a minute, in which the kernel holds the RTNL lock for most of the time"]
fn all_1024_ports_forward_and_devices_beyond_stay_with_linux_until_a_port_goes() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let router = lab.router();
    add_pairs(router, 1..=PAIRS);
    let [addresses, others] =
        ["r0", "r1"].map(|device| router.run(&format!("ip -br -4 address show {device}")));
    let address = |shown: &str| shown.split_whitespace().nth(2).unwrap().to_owned();
    let (of_r0, of_r1) = (address(&addresses), address(&others));
    router.run("ip -4 address flush dev r0; ip -4 address flush dev r1");
    let shuntd = daemon(&lab, Engine::Tc);
    let is_port = |name: &str| shuntd.status().ports.iter().any(|port| port.name == name);
    assert_eq!(shuntd.status().ports.len(), 2 * PAIRS as usize);
    router.run(&format!("ip address add {of_r0} dev r0; ip address add {of_r1} dev r1"));
    wait_until("all ports are there", || shuntd.status().ports.len() == Config::PORTS_MAX);
    stage.teach(&shuntd, &packet);

    add_pairs(router, PAIRS + 1..=PAIRS + 1);
    let (v, w) = (format!("v{}", PAIRS + 1), format!("w{}", PAIRS + 1));
    wait_until("the log names the device", || {
        shuntd.log().lines().any(|line| [&v, "1024 ports", "--port"].iter().all(|word| line.contains(word)))
    });
    let causes = shuntd.status().slow_causes;
    assert!(
        causes
            .iter()
            .any(|cause| cause.what.contains(&format!("{v}, {w}")) && cause.what.contains("1024 ports")),
        "{causes:?}"
    );
    assert!(!is_port(&v) && !is_port(&w));
    stage.teach(&shuntd, &packet);
    router.run("ip link del v1");
    wait_until("the devices are ports", || is_port(&v) && is_port(&w));
    assert_eq!(shuntd.status().ports.len(), Config::PORTS_MAX);
    stage.teach(&shuntd, &packet);
    // To detach from all of them takes longer than a stop may in these tests.
    let ends: String = (2..=PAIRS + 1).map(|n| format!("link del v{n}\n")).collect();
    router.run(&format!("ip -batch - <<'END'\n{ends}END"));
    wait_until("two ports are left", || shuntd.status().ports.len() == 2);
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
