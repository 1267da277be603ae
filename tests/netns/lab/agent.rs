//! `shunt lab agent` on a router, and `shunt bench` with the load and counters that it reports.

use super::gen_command::{Bench, bench, json};
use nix::{sched::sched_getaffinity, sys::signal::Signal, unistd::Pid};
use serde_json::Value;
use shunt_testkit::{CommandOutput, Running, Shunt, require_root, wait_for, wait_until};
use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    time::Duration,
};

pub(crate) const TOKEN: &str = "0123456789abcdef";
const NICS: &str = "--tx t0 --rx t1 --gateway 192.0.2.1 --one-way --time 500ms";

fn last_cpu() -> usize {
    let affinity = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..1024).rev().find(|cpu| affinity.is_set(*cpu).unwrap_or(false)).unwrap()
}

/// The agent in the router's namespace, and its address on the veth.
pub(crate) fn agent(bench: &Bench) -> (Shunt, Running, String) {
    let cpu = last_cpu();
    let shunt = Shunt::on(&bench.router).variable("SHUNT_AGENT_TOKEN", TOKEN);
    let mut running = shunt.start(&format!("lab agent --listen 192.0.2.1:0 --clear-text --cpu {cpu}"));
    // Other tests may use all CPUs, and the agent calibrates on idle time.
    let address = wait_for(Duration::from_secs(60), || {
        let output = running.err();
        if running.ended().is_some() {
            assert!(output.contains("is too busy to calibrate"), "{output}");
            running = shunt.start(&format!("lab agent --listen 192.0.2.1:0 --clear-text --cpu {cpu}"));
        }
        let (address, rest) = output.strip_prefix("listening on ")?.split_once(';')?;
        let is_warned = rest.contains("warning: the token and all answers cross the network in clear text");
        is_warned.then(|| address.to_owned())
    });
    (shunt, running, address.unwrap())
}

fn counters(bench: &Bench, address: &str) -> Value {
    let mut text = String::new();
    bench.host.within(|| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET /v1/counters HTTP/1.1\r\nhost: {address}");
        write!(stream, "{request}\r\nauthorization: Bearer {TOKEN}\r\n\r\n").unwrap();
        stream.read_to_string(&mut text).unwrap();
    });
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The kernel's counters of a device that does not carry the requests to the agent.
fn kernel_counters(bench: &Bench) -> [u64; 6] {
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
    let before = kernel_counters(&bench);
    let report =
        json(&host.run(&format!(
            "bench sweep --json --from 1M --to 2M --step 1M {NICS} --dut-agent http://{address}"
        )));
    let after = kernel_counters(&bench);
    let steps = report["steps"].as_array().unwrap();
    for step in steps {
        let load = &step["dut_load"];
        let number = |name: &str| load[name].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&number("load_percent")), "{load:#}");
        // The counters are of the time of sending.
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

    // From now on only neighbour discovery arrives, so there are moments without packets.
    wait_until("the agent's counters equal the kernel's", || {
        let (kernel, reported) = (kernel_counters(&bench), counters(&bench, &address));
        let names = ["rx_packets", "rx_bytes", "rx_errors", "rx_dropped", "tx_packets", "tx_errors"];
        kernel == kernel_counters(&bench)
            && kernel == names.map(|name| reported["p1"][name].as_u64().unwrap())
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
fn results_are_kept_when_the_agent_goes_away() {
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
    // The next client is refused before it measures anything.
    let output = host.run(&format!("bench size --quick --tx t0 --rx t1 --dut-agent http://{address}"));
    assert_eq!(output.code, Some(29), "{}", output.err);
    assert!(
        output.err.contains("cannot connect") && output.err.contains("start `shunt lab agent`"),
        "{}",
        output.err
    );
}

#[test]
fn a_wrong_token_is_refused_before_the_measurement() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let (_agent, _running, address) = agent(&bench);
    let run = |shunt: &Shunt, options: &str| {
        let output =
            shunt.run(&format!("bench ndr --quick --tx t0 --rx t1 --dut-agent http://{address} {options}"));
        (output.code, output.err)
    };
    let wrong = Shunt::on(&bench.host).variable("SHUNT_AGENT_TOKEN", "fedcba9876543210");
    let why = format!("shunt: http://{address}: the token is wrong; use the same token on both sides\n");
    assert_eq!(run(&wrong, ""), (Some(28), why));
    let none = Shunt::on(&bench.host);
    let (code, why) = run(&none, "");
    assert!(
        code == Some(18) && why.contains("name a file with --dut-token-file, or set SHUNT_AGENT_TOKEN"),
        "{why}"
    );
    let file = none.file("token", TOKEN);
    let (code, why) = run(&none, &format!("--dut-token-file {}", file.display()));
    assert!(code == Some(18) && why.contains("other users may read this file; run: chmod 600"), "{why}");
}

/// A command on the measuring machine, where this script replaces `ssh`. The script may write files to `$here`.
fn with_ssh(bench: &Bench, script: &str) -> Shunt {
    let shunt = Shunt::on(&bench.host);
    let directory = shunt.directory().display().to_string();
    let ssh = shunt.file("ssh", &format!("#!/bin/sh\nhere={directory}\n{script}\n"));
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{directory}:{}", env::var("PATH").unwrap());
    shunt.variable("PATH", &path)
}

fn sweep_by_ssh(shunt: &Shunt) -> CommandOutput {
    shunt.run(&format!(
        "bench sweep --json --from 1M --to 2M --step 1M {NICS} --dut-agent ssh://root@router:2222"
    ))
}

#[test]
fn ssh_starts_the_agent_on_the_router_and_ends_it() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let script = format!(
        "printf '%s\\n' \"$@\" >$here/arguments; for last; do :; done; echo $$ >$here/pid; \
         exec ip netns exec {} {} ${{last#shunt}} --cpu {}",
        bench.router.name(),
        Shunt::program(),
        last_cpu()
    );
    let shunt = with_ssh(&bench, &script);
    // Other tests may use all CPUs, and the agent calibrates on idle time.
    let output = wait_for(Duration::from_secs(60), || {
        Some(sweep_by_ssh(&shunt)).filter(|output| !output.err.contains("is too busy to calibrate"))
    });
    let report = json(&output.expect("a CPU that is not too busy"));
    for step in report["steps"].as_array().unwrap() {
        let load = &step["dut_load"];
        assert!((0.0..=100.0).contains(&load["load_percent"].as_f64().unwrap()), "{load:#}");
        let sent = step["directions"][0]["sent"].as_u64().unwrap();
        let left = change(step, "dut p1", "tx_packets");
        assert!(left["after"].as_u64().unwrap() - left["before"].as_u64().unwrap() >= sent);
    }
    let arguments = fs::read_to_string(shunt.directory().join("arguments")).unwrap();
    let expected = ["-T", "-o", "BatchMode=yes", "-p2222", "--", "root@router", "shunt lab agent --stdio"];
    assert_eq!(arguments.lines().collect::<Vec<_>>(), expected);
    let pid = fs::read_to_string(shunt.directory().join("pid")).unwrap();
    wait_until("the agent has ended", || fs::metadata(format!("/proc/{}", pid.trim())).is_err());
}

#[test]
fn a_failed_ssh_login_is_reported_before_the_measurement() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let output = sweep_by_ssh(&with_ssh(&bench, "echo 'Permission denied (publickey).' >&2; exit 255"));
    assert_eq!(output.code, Some(29), "{}", output.err);
    assert!(
        output.err.contains("Permission denied") && output.err.contains("ssh ended with exit status: 255"),
        "{}",
        output.err
    );
}

#[test]
fn a_token_crosses_a_network_only_on_request() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let shunt = Shunt::on(&bench.router).variable("SHUNT_AGENT_TOKEN", TOKEN);
    let output = shunt.run("lab agent --listen 192.0.2.1:0");
    assert_eq!(output.code, Some(2), "{}", output.err);
    assert!(output.err.contains("in clear text") && output.err.contains("ssh://"), "{}", output.err);
}
