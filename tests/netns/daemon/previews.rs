//! `shunt up --dry-run` and `shunt probe`: they attach nothing, and `shunt up` then does what they said.

use serde_json::Value;
use shunt_api::{DryRun, Engine, FailureCode, ProbeAnswer, ProbeReport};
use shunt_bpf::attach::{Hook, tcx_programs};
use shunt_testkit::{Process, Shunt, Topology, require_root, rulesets, silent_router, wait_until};
use std::process::{Command, Stdio};

/// A state of the router, by the commands that make it; the variable SHUNT_PRETEND_MISSING; and options.
struct Case {
    name: &'static str,
    setup: &'static str,
    without: &'static str,
    options: &'static str,
}

const PLAIN: Case = Case { name: "plain", setup: "true", without: "", options: "" };
const CASES: [Case; 7] = [
    PLAIN,
    Case {
        name: "a shaper",
        setup: "tc qdisc add dev r1 root tbf rate 1gbit burst 100k latency 10ms",
        ..PLAIN
    },
    Case { name: "the engine xdp", options: "--engine xdp", ..PLAIN },
    Case { name: "one port", options: "--port r1 --engine tc", ..PLAIN },
    Case { name: "no TCX", without: "tcx", ..PLAIN },
    Case {
        name: "rules that stop learning, and an ingress filter",
        setup: "nft 'table ip proxy { chain in { type filter hook prerouting priority mangle; udp dport 9 tproxy to :1; }; }'; \
                tc qdisc add dev r0 clsact; tc filter add dev r0 ingress protocol ip pref 7 u32 match u32 0 0 classid 1:7",
        ..PLAIN
    },
    Case {
        name: "a tunnel without a remote end",
        setup: "ip link add vx9 type vxlan dstport 4789 external; ip address add 10.9.0.1/24 dev vx9; \
                ip link set vx9 up",
        ..PLAIN
    },
];

/// Everything that a program, a filter or a qdisc on a device shows in.
fn attached(lab: &Topology) -> String {
    let shown = lab.router().run(
        "ip -o -d link; tc qdisc show; for d in r0 r1; do for h in ingress egress; do tc filter show dev $d $h; done; done",
    );
    let ports = ["r0", "r1"].map(|name| lab.router().ifindex(name));
    let programs = lab.router().within(|| {
        ports.map(|ifindex| [Hook::Ingress, Hook::Egress].map(|hook| tcx_programs(ifindex, hook)))
    });
    format!("{shown}{programs:?}")
}

fn files(shunt: &Shunt) -> Vec<String> {
    let entries = std::fs::read_dir(shunt.directory()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn dry_run(shunt: &Shunt, options: &str) -> DryRun {
    serde_json::from_str(&shunt.done(&format!("up --dry-run --json {options}"))).unwrap()
}

fn probe(shunt: &Shunt, options: &str) -> ProbeReport {
    serde_json::from_str(&shunt.done(&format!("probe --json {options}"))).unwrap()
}

/// Asserts that a daemon does what the dry run and the probe said. The daemon looks for captures and programs at its
/// first tick, a moment after it answers.
#[track_caller]
fn agrees(name: &str, shunt: &Shunt, planned: &DryRun, probed: &ProbeReport) {
    let ports: Vec<_> = probed.devices.iter().filter_map(|device| device.port.clone()).collect();
    assert_eq!(ports, planned.ports, "{name}");
    assert_eq!((&probed.slow_causes, &probed.ruleset), (&planned.slow_causes, &planned.ruleset), "{name}");
    let of_plan = serde_json::to_value(&planned.ports).unwrap();
    wait_until(&format!("the daemon does as the dry run said: {name}"), || {
        let status = shunt.status();
        let of_status = |field: &str| -> Value {
            let ports = serde_json::to_value(&status.ports).unwrap();
            ports.as_array().unwrap().iter().map(|port| port[field].clone()).collect()
        };
        let of_plan = |field: &str| -> Value {
            of_plan.as_array().unwrap().iter().map(|port| port[field].clone()).collect()
        };
        let fields =
            ["name", "ifindex", "engine", "engine_reason", "attach", "xdp_attached", "captured", "filters"];
        let same = fields.iter().all(|field| of_status(field) == of_plan(field))
            && (&status.slow_causes, &status.ruleset) == (&planned.slow_causes, &planned.ruleset);
        if !same {
            eprintln!("{name}: {status:#?}\n{planned:#?}");
        }
        same
    });
    let status = shunt.status();
    for was in &planned.kernel {
        let is = status.kernel.iter().find(|probe| probe.name == was.name);
        let known = was.answer != ProbeAnswer::Unknown;
        assert!(is.is_none_or(|is| !known || is == was), "{name}: {was:?} {is:?}");
    }
}

#[test]
fn up_does_what_dry_run_and_probe_said_and_these_attach_nothing() {
    if !require_root() {
        return;
    }
    for Case { name, setup, without, options } in CASES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        lab.router().run(setup);
        let shunt = Shunt::on(lab.router()).variable("SHUNT_PRETEND_MISSING", without);
        let before = attached(&lab);
        let planned = dry_run(&shunt, options);
        let probed = probe(&shunt, options);
        assert_eq!(attached(&lab), before, "{name}");
        assert!(files(&shunt).is_empty(), "{name}: {:?}", files(&shunt));
        assert_eq!(probed.obstacles, [], "{name}");
        let is_slow = |what: &str| planned.slow_causes.iter().any(|cause| cause.what.contains(what));
        assert_eq!(is_slow("vx9 is not a port"), name.starts_with("a tunnel"), "{name}: {planned:#?}");
        assert_eq!(is_slow("`tproxy`"), name.starts_with("rules"), "{name}: {planned:#?}");
        let text = shunt.done(&format!("up --dry-run {options}"));
        let started = shunt.done(&format!("up {options}"));
        let ports = started.split("nothing restarts this daemon").next().unwrap();
        assert!(text.ends_with(&format!("\n{ports}")), "{name}: {text}{started}");
        agrees(name, &shunt, &planned, &probed);
        shunt.done("down");
        assert_eq!(attached(&lab), before, "{name}");
    }
}

#[test]
fn a_dry_run_supposes_that_the_external_engine_serves_its_ports() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "external_ports = [\"r1\"]\n[qos.r1]\nrate = \"10M\"");
    let planned = dry_run(&shunt, &format!("--config {}", config.display()));
    let engines: Vec<_> = planned.ports.iter().map(|port| (port.name.as_str(), port.engine)).collect();
    assert!(engines.contains(&("r1", Engine::External)), "{planned:#?}");
    assert_eq!(planned.unused_queues, []);
}

#[test]
fn a_capture_is_foreseen() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let mut tcpdump = Command::new("ip");
    tcpdump.args(["netns", "exec", lab.router().name(), "tcpdump", "-i", "r0", "-w", "/dev/null"]);
    let capture = Process::start({
        tcpdump.stdout(Stdio::null()).stderr(Stdio::null());
        tcpdump
    });
    wait_until("the capture is seen", || dry_run(&shunt, "").ports.iter().any(|port| port.captured));
    let (planned, probed) = (dry_run(&shunt, ""), probe(&shunt, ""));
    assert!(planned.slow_causes.iter().any(|cause| cause.what.contains("captures on r0")), "{planned:#?}");
    shunt.done("up");
    agrees("a capture", &shunt, &planned, &probed);
    drop(capture);
}

#[test]
fn the_probe_says_what_the_machine_lacks() {
    if !require_root() {
        return;
    }
    let answer = |report: &ProbeReport, name: &str| {
        let mut all = report.router.iter().chain(&report.kernel);
        all.find(|probe| probe.name == name).map(|probe| probe.answer)
    };
    let lab = silent_router(rulesets::OPEN);
    let report = probe(&Shunt::on(lab.router()), "");
    for name in ["IPv4 forwarding", "packets are tracked", "BTF", "conntrack structures", "tcx"] {
        assert_eq!(answer(&report, name), Some(ProbeAnswer::Yes), "{name}: {report:#?}");
    }
    lab.router().run("nft flush ruleset; tc qdisc add dev r1 root handle 1: htb default 10");
    lab.wan().ns.run("ethtool -K wan0 gro off");
    for sysctl in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        lab.router().sysctl(sysctl, 0);
    }
    let shunt = Shunt::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "btf");
    let report = probe(&shunt, "");
    let codes: Vec<_> = report.obstacles.iter().map(|failure| failure.code).collect();
    assert_eq!(codes, [FailureCode::NoBtf, FailureCode::ForwardingOff], "{report:#?}");
    assert_eq!(answer(&report, "IPv4 forwarding"), Some(ProbeAnswer::No));
    assert_eq!(answer(&report, "BTF"), Some(ProbeAnswer::No));
    let device = |name: &str| report.devices.iter().find(|device| device.name == name).unwrap();
    assert_eq!((device("r1").xdp_native, device("r1").xdp_target), (Some(true), Some(false)));
    assert_eq!(device("r1").qdiscs, ["htb"]);
    assert_eq!(device("r0").xdp_target, Some(true));
    let text = shunt.done("probe");
    for part in ["forwarding is off", "IPv4 forwarding", "r1: tc, its veth peer", "gain\n"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_running_instance_is_no_foreign_program_to_the_probe() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine xdp");
    let report = probe(&shunt, "--engine xdp");
    assert_eq!(report.obstacles[0].code, FailureCode::AlreadyRunning, "{report:#?}");
    assert_eq!(report.slow_causes, [], "{report:#?}");
    // Another configuration can be tried beside it.
    for engine in [Engine::Xdp, Engine::Tc] {
        let planned = dry_run(&shunt, &format!("--engine {engine}"));
        assert!(planned.running && planned.slow_causes.is_empty(), "{planned:#?}");
        assert_eq!(
            planned.ports.iter().map(|port| port.engine).collect::<Vec<_>>(),
            [engine; 2],
            "{planned:#?}"
        );
    }
    let status = shunt.status();
    assert!(status.ports.iter().all(|port| port.engine == Engine::Xdp && port.xdp_attached), "{status:#?}");
}

#[test]
fn shunt_without_a_command_says_what_to_do_next() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let text = shunt.done("");
    let instance = shunt.instance();
    assert!(text.contains(&format!("shunt probe --instance {instance}  ")), "{text}");
    assert!(text.contains(&format!("shunt up --instance {instance}  ")), "{text}");
    assert!(text.contains("on all ports that forwarding uses: r0, r1\n"), "{text}");
    let nobody = Shunt::on(lab.router()).by("setpriv --reuid=65534 --regid=65534 --clear-groups");
    if nobody.run("--version").code == Some(0) {
        assert!(nobody.done("").contains("uses: r0, r1\n"), "listing devices needs no root");
    }
    shunt.done("up --port r0 --port r1 --engine tc");
    let text = shunt.done("");
    assert!(text.starts_with("running for ") && text.contains(" on r0 by tc, r1 by tc: "), "{text}");
    assert!(text.contains(&format!("shunt down --instance {instance}  ")), "{text}");
    let json: Value = serde_json::from_str(&shunt.done("--json")).unwrap();
    assert_eq!((&json["state"], &json["instance"]), (&"running".into(), &instance.into()));
}
