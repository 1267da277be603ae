//! Errors are one line that names the cause, with a specific exit code. Nothing is left behind, and traffic goes on.

use shunt_api::{Engine, FailureCode};
use shunt_testkit::{
    CommandOutput, MemoryLimit, Segment, Shunt, Shuntd, Stage, Topology, daemon, port_engine, require_root,
    rulesets, skip,
};
use shunt_traffic::{BareRedirect, Sink};
use std::{
    fs::Permissions,
    io::{Read, Write},
    net::Shutdown,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    time::Duration,
};

/// Asserts that the command failed with this code and one line that contains all these parts.
#[track_caller]
fn refuses(output: &CommandOutput, code: FailureCode, names: &[&str]) {
    assert_eq!(output.code, Some(code.exit_code().into()), "{output:?}");
    assert_eq!((output.err.lines().count(), output.out.as_str()), (1, ""), "{output:?}");
    assert!(names.iter().all(|name| output.err.contains(name)), "{output:?} does not name {names:?}");
}

/// Asserts that `shunt probe` names the failure of `shunt up`, or fails in the same way if the options or the
/// configuration are wrong.
#[track_caller]
fn probe_foresees(shunt: &Shunt, words: &str, up: &CommandOutput) {
    let output = shunt.run(&format!("probe --json {words}"));
    if output.code == Some(0) {
        let report: shunt_api::ProbeReport = serde_json::from_str(&output.out).unwrap();
        let first = report.obstacles.first().map(|failure| format!("shunt: {failure}\n"));
        assert_eq!(first.as_ref(), Some(&up.err), "{report:#?}");
    } else {
        assert_eq!(output.code, up.code, "{output:?}");
    }
}

/// Asserts that `shunt up` and `shuntd` fail so, and leave nothing behind except a log.
#[track_caller]
pub(crate) fn up_refuses(lab: &Topology, words: &str, code: FailureCode, names: &[&str]) {
    let before = lab.router().run("tc qdisc show; ip -o link");
    let shunt = Shunt::on(lab.router());
    let dry_run = shunt.run(&format!("up --dry-run {words}"));
    refuses(&dry_run, code, names);
    let up = shunt.run(&format!("up {words}"));
    refuses(&up, code, names);
    assert_eq!(dry_run, up, "the dry run fails as the start does");
    probe_foresees(&shunt, words, &up);
    refuses(&shunt.run_daemon(words), code, names);
    for file in std::fs::read_dir(shunt.directory()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name.ends_with(".log"), "{name} is left behind");
    }
    assert_eq!(lab.router().run("tc qdisc show; ip -o link"), before);
    let json = shunt.run(&format!("up {words} --json")).err;
    let body: shunt_api::ErrorBody = serde_json::from_str(&json).unwrap();
    assert_eq!(body.error.code, code, "{json}");
}

#[test]
fn devices_that_cannot_be_ports_are_refused() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    up_refuses(&lab, "--port nosuch0", FailureCode::PortMissing, &["nosuch0", "ip link"]);
    up_refuses(&lab, "--port r0 --port lo", FailureCode::PortMissing, &["lo", "not an Ethernet device"]);
    lab.router().run("ip link add ifb7 type ifb; ip link set ifb7 up");
    up_refuses(
        &lab,
        "--port r0 --port ifb7 --engine xdp",
        FailureCode::NoNativeXdp,
        &["ifb7", "use tc or auto"],
    );
    lab.wan().ns.run("ethtool -K wan0 gro off");
    up_refuses(&lab, "--engine xdp", FailureCode::NoNativeXdp, &["port r1", "peer", "GRO", "use tc or auto"]);
    lab.wan().ns.run("ethtool -K wan0 gro on");
    lab.router().run("ip address flush dev r0; ip address flush dev r1");
    up_refuses(&lab, "", FailureCode::PortMissing, &["no port", "--port"]);
    lab.router().run("ip address add 192.168.1.1/24 dev r0; ip address add 198.18.0.1/24 dev r1");
    lab.pin_neighbours();
    stage.pass(&packet);
}

/// With an Ethernet header missing, no engine but tc can serve a device. Only who names it is told so.
#[test]
fn a_device_without_an_ethernet_header_uses_tc_and_cannot_be_given_to_xdp() {
    if !require_root() {
        return;
    }
    let lab = Topology::new(&[Segment::LAN, Segment::WAN.without_l2()]);
    up_refuses(
        &lab,
        "--port r0 --port r1 --engine xdp",
        FailureCode::NoNativeXdp,
        &["r1", "no Ethernet header", "use tc or auto"],
    );
    for engine in ["auto", "xdp", "external"] {
        let shuntd = Shuntd::on(lab.router()).engine(engine).start();
        let status = shuntd.status();
        let port = status.ports.iter().find(|port| port.name == "r1").unwrap();
        assert_eq!(port.engine, Engine::Tc, "{engine}: {status:#?}");
        assert!(port.engine_reason.contains("no Ethernet header"), "{engine}: {port:#?}");
        shuntd.stop();
    }
}

#[test]
fn a_port_without_native_xdp_uses_tc() {
    if !require_root() {
        return;
    }
    let (lab, ..) = Stage::with_router(rulesets::OPEN);
    lab.router().run("ip link add ifb7 type ifb; ip link set ifb7 up");
    let shuntd = Shuntd::on(lab.router()).port("r0").port("ifb7").start();
    assert_eq!(port_engine(&shuntd.status(), "ifb7"), Engine::Tc);
    shuntd.stop();
}

#[test]
fn an_xdp_program_of_another_owner_is_named_and_left_alone() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let r1 = lab.router().ifindex("r1");
    let sink = lab.router().within(|| Sink::attach(r1)).unwrap();
    up_refuses(&lab, "--engine xdp", FailureCode::PortBusy, &["port r1", "XDP program `", "the engine tc"]);
    let theirs = lab.router().run("ip -o -d link show r1 | grep -o 'prog/xdp id [0-9]*'");
    let shuntd = Shuntd::on(lab.router()).engine("auto").start();
    let status = shuntd.status();
    assert_eq!(port_engine(&status, "r1"), Engine::Tc, "{status:#?}");
    stage.teach(&shuntd, &packet);
    shuntd.stop();
    assert_eq!(lab.router().run("ip -o -d link show r1 | grep -o 'prog/xdp id [0-9]*'"), theirs);
    drop(sink);
}

/// Another owner tries to attach an XDP program to a port where Shunt has one.
#[test]
fn another_xdp_program_cannot_replace_shunts() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shuntd = daemon(&lab, Engine::Xdp);
    let (r0, r1) = (lab.router().ifindex("r0"), lab.router().ifindex("r1"));
    assert!(lab.router().within(|| BareRedirect::attach(r0, r1)).is_err());
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}

#[test]
fn commands_without_root_are_refused() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let as_nobody = |shunt: Shunt| shunt.by("setpriv --reuid=65534 --regid=65534 --clear-groups");
    let nobody = || as_nobody(Shunt::on(lab.router()));
    if nobody().run("--version").code != Some(0) {
        shunt_testkit::skip("another user cannot execute the programs");
        return;
    }
    refuses(&nobody().run_daemon(""), FailureCode::NotRoot, &["root"]);
    refuses(&nobody().run("up"), FailureCode::NotRoot, &["root"]);

    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    std::fs::set_permissions(shunt.directory(), Permissions::from_mode(0o755)).unwrap();
    let shunt = as_nobody(shunt);
    for words in ["status", "flush", "flow del --all"] {
        refuses(&shunt.run(words), FailureCode::NotRoot, &[".sock", "root", "read_group"]);
    }
    assert_ne!(shunt.run("down").code, Some(0));
    stage.pass(&packet);
}

#[test]
fn a_machine_that_does_not_forward_is_refused_with_the_sysctls_to_set() {
    if !require_root() {
        return;
    }
    let (lab, ..) = Stage::with_router(rulesets::OPEN);
    for sysctl in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        lab.router().sysctl(sysctl, 0);
    }
    up_refuses(
        &lab,
        "",
        FailureCode::ForwardingOff,
        &["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"],
    );
    lab.router().sysctl("ipv6/conf/all/forwarding", 1);
    Shuntd::on(lab.router()).start().stop();
}

#[test]
fn a_flow_table_larger_than_memory_is_refused() {
    if !require_root() {
        return;
    }
    let Ok(limit) = MemoryLimit::new(64 << 20) else { return skip("no memory controller") };
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let before = lab.router().run("tc qdisc show; ip -o link");
    let directory = tempfile::tempdir().unwrap();
    let shunt = Shunt::on(lab.router()).by(&limit.program(directory.path()).unwrap());
    let config = shunt.file("large.toml", "max_flows = 1000000");
    let words = format!("--config {}", config.display());
    let names = ["memory", "max_flows = 1000000", "lower max_flows"];
    refuses(&shunt.run(&format!("up {words}")), FailureCode::Internal, &names);
    refuses(&shunt.run_daemon(&words), FailureCode::Internal, &names);
    assert_eq!(lab.router().run("tc qdisc show; ip -o link"), before);
    stage.pass(&packet);
    // A smaller table fits.
    shunt.file("large.toml", "max_flows = 4096");
    shunt.done(&format!("up {words}"));
    stage.pass(&packet);
    shunt.done("down");
}

#[test]
fn a_wrong_configuration_is_refused_with_the_name_of_the_key() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    for (text, names) in [
        ("colour = 1", &["colour"][..]),
        ("engine = \"dpdk\"", &["engine", "dpdk"]),
        ("max_flows = 1", &["max_flows", "64"]),
        ("max_flows = \"many\"", &["max_flows"]),
        ("reprove = \"1ms\"", &["reprove", "200ms"]),
        ("idle = 5", &["idle"]),
        ("idle = \"soon\"", &["soon", "500ms"]),
        ("ports = [\"r0\", \"r0\"]", &["ports", "r0"]),
        ("ports = [\"a/b\"]", &["ports", "a/b"]),
        ("udp_packets = 0", &["udp_packets"]),
        ("learn = \"yes\"", &["learn"]),
        ("log = \"loud\"", &["log", "loud"]),
        ("[", &["line 1"]),
    ] {
        let file = shunt.file("wrong.toml", text);
        let file = file.to_str().unwrap();
        let names: Vec<&str> = names.iter().copied().chain([file]).collect();
        up_refuses(&lab, &format!("--config {file}"), FailureCode::BadConfig, &names);
    }
    up_refuses(&lab, "--config /nonexistent/x.toml", FailureCode::BadConfig, &["/nonexistent/x.toml"]);
    stage.pass(&packet);
}

#[test]
fn a_second_daemon_does_not_disturb_the_first() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let first = Shunt::on(lab.router());
    first.done("up");
    refuses(&first.run("up"), FailureCode::AlreadyRunning, &[first.instance(), "shunt down"]);
    refuses(&first.run_daemon(""), FailureCode::AlreadyRunning, &[first.instance(), "shunt down"]);
    refuses(&first.run_daemon("--cleanup"), FailureCode::AlreadyRunning, &[first.instance(), "shunt down"]);
    up_refuses(&lab, "", FailureCode::PortTaken, &["port r0", "--port"]);
    up_refuses(&lab, "--port r1", FailureCode::PortTaken, &["port r1"]);
    first.done("status");
    stage.pass(&packet);
    first.done("down");
}

#[test]
fn commands_without_a_daemon_say_how_to_start_one() {
    if !require_root() {
        return;
    }
    let (lab, ..) = Stage::with_router(rulesets::OPEN);
    let shunt = Shunt::on(lab.router());
    let up = format!("shunt up --instance {}", shunt.instance());
    let table = shunt.file("flows.toml", "");
    let load = format!("flow load {}", table.display());
    for words in ["status", "flows", "flush", "flow list", "flow del --all", load.as_str()] {
        refuses(&shunt.run(words), FailureCode::NotRunning, &[&up]);
    }
    refuses(
        &shunt.run("down"),
        FailureCode::NotRunning,
        &[shunt.instance(), "has never run", "check its name"],
    );
    for words in ["fly", "status --colour", "up --engine dpdk", "flows --sort beauty"] {
        assert_eq!(shunt.run(words).code, Some(FailureCode::Usage.exit_code().into()), "{words}");
    }
}

#[test]
fn garbage_on_the_socket_disturbs_no_other_client() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shuntd = daemon(&lab, Engine::Xdp);
    stage.teach(&shuntd, &packet);
    let long = [b"GET /v1/status?".to_vec(), vec![b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n".to_vec()].concat();
    let big = b"POST /v1/static HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n{".to_vec();
    for bytes in [b"\0\xff\x07 garbage \r\n\r\n".to_vec(), long, big, Vec::new(), vec![0; 100_000]] {
        let mut stream = UnixStream::connect(shuntd.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The daemon may close the connection before it has read everything.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    // Many clients that send nothing.
    let silent: Vec<_> = (0..200).map(|_| UnixStream::connect(shuntd.socket())).collect();
    let before = shuntd.status().packets.fast;
    for _ in 0..50 {
        stage.pass(&packet);
    }
    assert!(shuntd.status().packets.fast > before);
    drop(silent);
    for (method, path, body) in [
        ("GET", "/v2/status", ""),
        ("DELETE", "/v1/status", ""),
        ("POST", "/v1/static", "{"),
        ("POST", "/v1/static", "{\"colour\":1}"),
        ("GET", "/v1/flows?rate_over_ms=x", ""),
    ] {
        let (status, text) = shuntd.request(method, path, body).unwrap();
        let body: shunt_api::ErrorBody = serde_json::from_str(&text).unwrap();
        assert!((400..500).contains(&status), "{method} {path}: {status}");
        assert_eq!(body.error.code, FailureCode::BadRequest, "{text}");
    }
    shuntd.stop();
}
