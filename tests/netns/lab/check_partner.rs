//! `shunt check --peer-agent`: the other end of the cable is lent by an agent, here in another network namespace.

use super::{
    agent::TOKEN,
    check::{Fault, carry, is_checked, verdicts},
};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_inspect::check::{Answer, Bytes, Call, LentPort, PortCommand, Request};
use shunt_testkit::{CommandOutput, NetNs, Running, Shunt, require_root, wait_for, wait_until};
use shunt_traffic::tap::TapDevice;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Two machines: each with one end of the cable that is checked, p0 and p1, and of another one between c0 and c1.
struct Machines {
    near: NetNs,
    far: NetNs,
}

impl Machines {
    fn new() -> Self {
        let (near, far) = (NetNs::new("near"), NetNs::new("far"));
        near.run(&format!("ip link add c0 type veth peer name c1 netns {}", far.name()));
        for (ns, device, address) in [(&near, "c0", "198.51.100.1/30"), (&far, "c1", "198.51.100.2/30")] {
            ns.run(&format!("ip address add {address} dev {device}"));
            ns.run(&format!("ip link set {device} up"));
        }
        Self { near, far }
    }

    fn with_a_veth() -> Self {
        let machines = Self::new();
        let far = machines.far.name();
        machines.near.run(&format!("ip link add p0 type veth peer name p1 netns {far}"));
        for (ns, device) in machines.ends() {
            ns.run(&format!("ip link set {device} mtu 1600 up"));
        }
        machines
    }

    /// Machines with TAP devices as the ends of the cable.
    fn with_taps() -> (Self, [TapDevice; 2]) {
        let machines = Self::new();
        let taps = machines.ends().map(|(ns, device)| {
            let tap = ns.within(|| TapDevice::create(device).unwrap());
            ns.run(&format!("ip link set {device} txqueuelen 10000 up"));
            tap
        });
        (machines, taps)
    }

    fn ends(&self) -> [(&NetNs, &'static str); 2] {
        [(&self.near, "p0"), (&self.far, "p1")]
    }

    /// What a check may change at each end.
    fn state(&self) -> [String; 2] {
        let show = "ethtool -k {}; cd /sys/class/net/{}; cat mtu flags address";
        self.ends().map(|(ns, device)| ns.run(&show.replace("{}", device)))
    }

    /// The agent that lends p1, and its address.
    fn agent(&self) -> (Shunt, Running, String) {
        let shunt = Shunt::on(&self.far).variable("SHUNT_AGENT_TOKEN", TOKEN);
        let running = shunt.start("lab agent --lend p1 --listen 198.51.100.2:0 --clear-text");
        let address = wait_for(Duration::from_secs(10), || {
            Some(running.err().strip_prefix("listening on ")?.split_once(';')?.0.to_owned())
        });
        (shunt, running, address.unwrap())
    }

    fn checker(&self) -> Shunt {
        Shunt::on(&self.near).variable("SHUNT_AGENT_TOKEN", TOKEN)
    }

    fn check(&self, address: &str, options: &str) -> CommandOutput {
        self.checker().run(&format!("check p0 --peer p1 --peer-agent http://{address} --json {options}"))
    }
}

#[test]
fn a_veth_to_another_machine_passes_as_one_within_this_machine_and_both_ends_are_left_as_they_were() {
    if !require_root() {
        return;
    }
    let machines = Machines::with_a_veth();
    let (_agent, mut running, address) = machines.agent();
    let before = machines.state();
    let output = machines.check(&address, "");
    assert_eq!(output.code, Some(0), "{output:?}");
    let verdicts = verdicts(&output);
    assert_eq!(verdicts.len(), 17);
    for (case, outcome, evidence) in &verdicts {
        let hardware = ["modes", "pause", "rings", "coalesce"].contains(&case.as_str());
        assert_eq!(outcome, if hardware { "impossible" } else { "pass" }, "{case}: {evidence}");
    }
    let link = &verdicts.iter().find(|(case, ..)| case == "counters").unwrap().2;
    assert!(link.contains(&format!("p0 to p1 at http://{address}: 1000 frames")), "{link}");
    assert_eq!(machines.state(), before);
    running.signal(Signal::SIGTERM);
    wait_until("the agent ends", || running.ended() == Some(Some(0)));
}

/// Checks over a cable with a fault on the way to the partner (0) or from it (1).
fn check_with(fault: Fault, way: usize, cases: &[&str]) -> Vec<(String, String, String)> {
    let (machines, taps) = Machines::with_taps();
    let (_agent, _running, address) = machines.agent();
    let only: String = cases.iter().map(|case| format!("--only {case} ")).collect();
    let done = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| carry([&taps[1 - way], &taps[way]], fault, &done));
        let output = machines.check(&address, &only);
        done.store(true, Ordering::Relaxed);
        output
    });
    assert_eq!(output.code, Some(30), "{output:?}");
    verdicts(&output)
}

#[test]
fn faults_are_found_in_both_directions() {
    if !require_root() {
        return;
    }
    let spoil = |mut frame: Vec<u8>| {
        // The frames of `counters` have 60 and 1000 bytes.
        let flips = frame.len() > 90 && frame.len() != 1000 && is_checked(&frame);
        if let (true, Some(last)) = (flips, frame.last_mut()) {
            *last ^= 0x10;
        }
        let copies = if is_checked(&frame) && frame.get(21) == Some(&9) { 2 } else { 1 };
        vec![frame; copies]
    };
    for (way, direction) in ["p0 to p1 at ", "p1 at "].into_iter().enumerate() {
        let expected = [
            ("integrity", "changed: byte"),
            ("checksum", "payload changed"),
            ("counters", "arrived 2 times"),
        ];
        let found = check_with(spoil, way, &expected.map(|(case, _)| case));
        for ((case, words), (_, outcome, evidence)) in expected.iter().zip(&found) {
            assert_eq!(outcome, "fail", "{case}: {evidence}");
            assert!(evidence.starts_with(direction) && evidence.contains(words), "{case}: {evidence}");
        }
    }
}

/// Starts a check whose frames are lost, and ends the agent while the check waits for one.
fn lose_the_agent(signal: Signal) -> (Machines, [TapDevice; 2], [String; 2]) {
    let (machines, taps) = Machines::with_taps();
    let (_agent, mut running, address) = machines.agent();
    let before = machines.state();
    let checker = machines.checker();
    let words = format!("check p0 --peer p1 --peer-agent http://{address} --only mtu --only counters --json");
    let mut check = checker.start(&words);
    // The case about the MTU turns promiscuous mode on, and then waits for 2 s for the first frame.
    wait_until("the case has changed the partner", || machines.state()[1] != before[1]);
    running.signal(signal);
    wait_until("the agent ends", || running.ended().is_some());
    wait_until("the check ends", || check.ended().is_some());
    assert_eq!(check.ended(), Some(Some(29)), "{}", check.err());
    let error: Value = serde_json::from_str(&check.err()).unwrap();
    let why = error["error"]["message"].as_str().unwrap();
    assert!(why.starts_with(&format!("the agent at http://{address}: ")), "{why}");
    let report: Value = serde_json::from_str(&check.out()).unwrap();
    assert_eq!(report["cases"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["cases"][0]["outcome"], "error", "{report:#}");
    assert_eq!(machines.state()[0], before[0]);
    (machines, taps, before)
}

#[test]
fn an_agent_that_is_ended_puts_its_port_back_and_the_check_names_it() {
    if !require_root() {
        return;
    }
    let (machines, _taps, before) = lose_the_agent(Signal::SIGTERM);
    assert_eq!(machines.state(), before);
}

#[test]
fn an_agent_that_is_killed_ends_the_check_with_its_name() {
    if !require_root() {
        return;
    }
    lose_the_agent(Signal::SIGKILL);
}

#[test]
fn wrong_agents_and_ports_are_refused_before_anything_changes() {
    if !require_root() {
        return;
    }
    let machines = Machines::with_a_veth();
    let (agent, _running, address) = machines.agent();
    let output = machines.checker().run(&format!("check p0 --peer c1 --peer-agent http://{address}"));
    let why = format!(
        "shunt: the agent at http://{address}: it lends p1; start it with `shunt lab agent --lend c1`\n"
    );
    assert_eq!((output.code, output.err), (Some(29), why));
    let output = machines.checker().run("check p0 --peer p1 --peer-agent http://198.51.100.2:9");
    assert_eq!(output.code, Some(29), "{output:?}");
    assert!(output.err.contains("start `shunt lab agent --lend p1` there"), "{output:?}");
    for (words, code, why) in [
        ("--lend c1 --listen 198.51.100.2:0 --clear-text", 2, "listen on another device"),
        ("--lend p7", 13, "p7"),
        ("--lend p1 --cpu 0", 2, "cannot be used with"),
    ] {
        let output = agent.run(&format!("lab agent {words}"));
        assert_eq!(output.code, Some(code), "{words}: {output:?}");
        assert!(output.err.contains(why), "{words}: {output:?}");
    }
}

#[test]
fn a_check_that_has_gone_loses_the_port_and_no_other_check_disturbs_one() {
    if !require_root() {
        return;
    }
    let machines = Machines::with_a_veth();
    let before = machines.state();
    machines.far.within(|| {
        let port = LentPort::new("p1", Duration::from_millis(300)).unwrap();
        let call = |check, request| port.answer(Call { check, port: "p1".to_owned(), request });
        let promisc = || Request::Run(PortCommand::Promisc);
        assert!(call(1, promisc()).unwrap_err().contains("no longer lends p1"));
        assert!(matches!(call(1, Request::Begin), Ok(Answer::Begun(true))));
        assert!(matches!(call(1, promisc()), Ok(Answer::Printed(_))));
        assert!(matches!(call(2, Request::Begin), Ok(Answer::Refused(why)) if why.contains("another check")));
        assert!(call(2, promisc()).is_err());
        let foreign = Request::Send(vec![Bytes([&[2; 12][..], &[8, 6], &[0; 46]].concat())]);
        assert!(matches!(call(1, foreign), Ok(Answer::Refused(why)) if why == "not a frame of a check"));
        port.expire().unwrap();
        assert_ne!(machines.state(), before, "the lease has not ended");
        wait_until("the lease ends", || {
            port.expire().unwrap();
            machines.state() == before
        });
        assert!(call(1, promisc()).is_err());
        // The next check gets the port, unless the agent ends.
        assert!(matches!(call(2, Request::Begin), Ok(Answer::Begun(true))));
        assert!(matches!(call(2, Request::Run(PortCommand::Mtu(1400))), Ok(Answer::Printed(_))));
        port.close().unwrap();
        assert_eq!(machines.state(), before);
        assert!(call(2, Request::Begin).unwrap_err().contains("ending"));
    });
}
