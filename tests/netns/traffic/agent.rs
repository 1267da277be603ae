//! `shunt lab agent` on a router, and what `shunt bench` makes of it.

use super::command::{Bench, bench, json};
use nix::{sched::sched_getaffinity, sys::signal::Signal, unistd::Pid};
use serde_json::Value;
use shunt_testkit::{Running, Shunt, require_root, wait_for, wait_until};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

pub(crate) const TOKEN: &str = "0123456789abcdef";
const NICS: &str = "--tx t0 --rx t1 --gateway 192.0.2.1 --one-way --time 500ms";

/// The agent in the router's namespace, and where it is reached by the veth.
pub(crate) fn agent(bench: &Bench) -> (Shunt, Running, String) {
    let affinity = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..1024).rev().find(|cpu| affinity.is_set(*cpu).unwrap_or(false)).unwrap();
    let shunt = Shunt::on(&bench.router).variable("SHUNT_AGENT_TOKEN", TOKEN);
    let mut running = shunt.start(&format!("lab agent --listen 192.0.2.1:0 --cpu {cpu}"));
    // Other tests may have all of the CPU just now, and it calibrates on what nobody else wants.
    let address = wait_for(Duration::from_secs(60), || {
        let said = running.err();
        if running.ended().is_some() {
            assert!(said.contains("is too busy to calibrate"), "{said}");
            running = shunt.start(&format!("lab agent --listen 192.0.2.1:0 --cpu {cpu}"));
        }
        Some(said.strip_prefix("listening on ")?.split_once(';')?.0.to_owned())
    });
    let said = running.err();
    assert!(said.contains("the token crosses the network as it is"), "{said}");
    (shunt, running, address.unwrap())
}

fn counters(bench: &Bench, address: &str) -> Value {
    let mut text = String::new();
    bench.host.within(|| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET /v1/counters HTTP/1.1\r\nhost: dut";
        write!(stream, "{request}\r\nauthorization: Bearer {TOKEN}\r\n\r\n").unwrap();
        stream.read_to_string(&mut text).unwrap();
    });
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Of the device by which the agent is not asked, as the kernel has them.
fn of_the_kernel(bench: &Bench) -> [u64; 6] {
    let links: Value = serde_json::from_str(&bench.router.run("ip -s -j link show dev p1")).unwrap();
    let stats = &links[0]["stats64"];
    [
        ("rx", "packets"),
        ("rx", "bytes"),
        ("rx", "errors"),
        ("rx", "dropped"),
        ("tx", "packets"),
        ("tx", "errors"),
    ]
    .map(|(way, what)| stats[way][what].as_u64().unwrap())
}

#[test]
fn a_sweep_has_the_load_and_the_counters_of_the_router() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let (_agent, _running, address) = agent(&bench);
    let host = Shunt::on(&bench.host).variable("SHUNT_AGENT_TOKEN", TOKEN);
    let before = of_the_kernel(&bench);
    let report =
        json(&host.run(&format!(
            "bench sweep --json --from 1M --to 2M --step 1M {NICS} --dut-agent http://{address}"
        )));
    let after = of_the_kernel(&bench);
    let steps = report["steps"].as_array().unwrap();
    for step in steps {
        let load = &step["dut_load"];
        let number = |name: &str| load[name].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&number("load_percent")), "{load:#}");
        // It is of the time in which was sent.
        assert!((0.4..3.0).contains(&number("seconds")), "{load:#}");
        let sent = step["directions"][0]["sent"].as_u64().unwrap();
        let left = change(step, "dut p1", "tx_packets");
        assert!(
            (sent..sent + 50).contains(&(left["after"].as_u64().unwrap() - left["before"].as_u64().unwrap()))
        );
    }
    let (first, last) =
        (change(&steps[0], "dut p1", "tx_packets"), change(&steps[1], "dut p1", "tx_packets"));
    assert!(before[4] <= first["before"].as_u64().unwrap() && last["after"].as_u64().unwrap() <= after[4]);
    assert_eq!(report["conditions"]["dut"]["kernel"], report["conditions"]["kernel"]);

    // Nothing but neighbour discovery comes by now, so that a moment without it is soon there.
    wait_until("the agent's counters are the kernel's", || {
        let (kernel, told) = (of_the_kernel(&bench), counters(&bench, &address));
        let names = ["rx_packets", "rx_bytes", "rx_errors", "rx_dropped", "tx_packets", "tx_errors"];
        kernel == of_the_kernel(&bench) && kernel == names.map(|name| told["p1"][name].as_u64().unwrap())
    });
}

fn change<'v>(step: &'v Value, device: &str, counter: &str) -> &'v Value {
    let changes = step["changes"].as_array().unwrap();
    let found = changes
        .iter()
        .find(|change| (&change["device"], &change["counter"]) == (&device.into(), &counter.into()));
    found.unwrap_or_else(|| panic!("{device} {counter}: {step:#}"))
}

#[test]
fn an_agent_that_goes_away_leaves_what_was_measured() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let (_agent, mut running, address) = agent(&bench);
    let host = Shunt::on(&bench.host).variable("SHUNT_AGENT_TOKEN", TOKEN);
    let file = host.directory().join("r.json");
    let with = format!("{NICS} --dut-agent http://{address}");
    let mut sweep =
        host.start(&format!("bench sweep --from 1M --to 9M --step 1M {with} --keep {}", file.display()));
    let results = || -> Value {
        serde_json::from_str(&fs::read_to_string(&file).unwrap_or_default()).unwrap_or_default()
    };
    wait_until("a step is kept", || results()["readings"].get("load of the DUT at 1Mbit").is_some());
    running.signal(Signal::SIGTERM);
    wait_until("the agent ends", || running.ended() == Some(Some(0)));
    wait_until("the sweep ends", || sweep.ended().is_some());
    assert_eq!(sweep.ended(), Some(Some(29)), "{}", sweep.err());
    let why = format!("shunt: the agent at http://{address}: ");
    assert!(sweep.err().starts_with(&why) && sweep.err().lines().count() == 1, "{}", sweep.err());
    let kept = results();
    assert_eq!(
        (&kept["complete"], &kept["readings"]["load of the DUT at 1Mbit"]["unit"]),
        (&false.into(), &"%".into())
    );
    // Who asks next is told before anything is measured.
    let said = host.run(&format!("bench size --quick --tx t0 --rx t1 --dut-agent http://{address}"));
    assert_eq!(said.code, Some(29), "{}", said.err);
    assert!(
        said.err.contains("nobody answers there") && said.err.contains("start `shunt lab agent`"),
        "{}",
        said.err
    );
}

#[test]
fn a_wrong_token_is_told_before_anything_is_measured() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let (_agent, _running, address) = agent(&bench);
    let run = |shunt: &Shunt, options: &str| {
        let said =
            shunt.run(&format!("bench ndr --quick --tx t0 --rx t1 --dut-agent http://{address} {options}"));
        (said.code, said.err)
    };
    let wrong = Shunt::on(&bench.host).variable("SHUNT_AGENT_TOKEN", "fedcba9876543210");
    let why = format!("shunt: http://{address}: the token is wrong; both sides need the same\n");
    assert_eq!(run(&wrong, ""), (Some(28), why));
    let none = Shunt::on(&bench.host);
    let (code, why) = run(&none, "");
    assert!(
        code == Some(18)
            && why.contains("name its file with --dut-token-file, or put it into SHUNT_AGENT_TOKEN"),
        "{why}"
    );
    let file = none.file("token", TOKEN);
    let (code, why) = run(&none, &format!("--dut-token-file {}", file.display()));
    assert!(code == Some(18) && why.contains("others may read it; `chmod 600"), "{why}");
}
