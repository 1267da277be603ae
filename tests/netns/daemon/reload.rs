//! `shunt reload`, `POST /v1/reload` and SIGHUP: another configuration while the daemon runs.

use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_api::{ChangeEffect, Engine, Failure, FailureCode, Reload, Status};
use shunt_testkit::{
    KernelObjects, Shuntd, Stage, Topology, require_root, rulesets, silent, silent_router, wait_for,
    wait_until,
};
use shunt_wire::Packet;
use std::{
    env, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Output,
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// No packet takes the slow path for a proof while a test counts.
const BASE: &str = "engine = \"tc\"\nreprove = \"30s\"\nidle = \"1h\"\n";

/// The file, complete: a reload finds the old or the new one.
fn write(shuntd: &Shuntd, text: &str) {
    let path = shuntd.directory().join("shunt.toml");
    let new = path.with_extension("new");
    let more = env::var("SHUNT_TEST_CONFIG").unwrap_or_default();
    fs::write(&new, format!("max_flows = 16384\n{text}{more}\n")).unwrap();
    fs::rename(new, path).unwrap();
}

fn ask(shuntd: &Shuntd, body: &str) -> Result<Reload, Failure> {
    let (code, text) = shuntd.request("POST", "/v1/reload", body).unwrap();
    if code == 200 {
        return Ok(serde_json::from_str(&text).unwrap());
    }
    let error: Value = serde_json::from_str(&text).unwrap();
    Err(serde_json::from_value(error["error"].clone()).unwrap())
}

/// Reloads this configuration; returns the answer.
#[track_caller]
fn reload(shuntd: &Shuntd, text: &str) -> Reload {
    write(shuntd, text);
    let answer = ask(shuntd, "").unwrap();
    assert!(answer.applied && answer.failures.is_empty(), "{answer:#?}");
    answer
}

fn keys(answer: &Reload) -> Vec<&str> {
    answer.changes.iter().map(|change| change.key.as_str()).collect()
}

fn printed(output: &Output) -> (Option<i32>, String) {
    let text =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    (output.status.code(), text)
}

/// Packets of flows that took the slow path.
fn slow(status: &Status) -> u64 {
    let reasons = ["miss", "stale", "reprove", "pending", "port", "no-daemon"];
    reasons.iter().filter_map(|reason| status.reasons.get(*reason)).sum()
}

/// Does something while packets of a flow pass, all on the fast path.
#[track_caller]
fn stays_fast(shuntd: &Shuntd, stage: &Stage, packet: &Packet, act: impl FnOnce() + Send) {
    let before = shuntd.status();
    let sent = thread::scope(|scope| {
        let acts = scope.spawn(act);
        let mut sent = 0;
        while sent < 20 || !acts.is_finished() {
            stage.pass(packet);
            sent += 1;
        }
        acts.join().unwrap();
        for _ in 0..20 {
            stage.pass(packet);
        }
        sent + 20
    });
    let after = shuntd.status();
    assert_eq!(slow(&after) - slow(&before), 0, "{sent} sent: {:?}, {:?}", before.reasons, after.reasons);
    assert_eq!(after.epoch, before.epoch, "{:?}", after.epoch_moves);
}

fn events(shuntd: &Shuntd) -> Vec<String> {
    let (_, text) = shuntd.request("GET", "/v1/history", "").unwrap();
    let history: Value = serde_json::from_str(&text).unwrap();
    let events = history["events"].as_array().unwrap().iter();
    events
        .map(|event| format!("{}: {}", event["event"].as_str().unwrap(), event["text"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_port_comes_and_goes_while_flows_between_the_others_stay_fast() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
    lab.router().run(&format!("ip route add 203.0.113.0/24 via {}", lab.wan().v4));
    lab.router().run(&format!("ip route add 198.51.100.0/24 via {}", lab.host("wan2").v4));
    let to = |address: &str| lab.lan().udp_to(4000, address.parse().unwrap()).payload("from the lan");
    let (other, concerned) = (to("203.0.113.9:5000"), to("198.51.100.9:5000"));
    let (first, second) = (Stage::new(lab.lan(), &[lab.wan()]), Stage::new(lab.lan(), &[lab.host("wan2")]));
    let (two, three) =
        (format!("{BASE}ports = [\"r0\", \"r1\"]"), format!("{BASE}ports = [\"r0\", \"r1\", \"r2\"]"));
    let shuntd = Shuntd::on(lab.router()).config(&two).start();
    first.teach(&shuntd, &other);
    stays_fast(&shuntd, &first, &other, || {
        let added = reload(&shuntd, &three);
        assert_eq!((keys(&added), added.ports_removed.len()), (vec!["ports"], 0));
        assert_eq!(added.ports_added, ["r2"]);
    });
    assert_eq!(shuntd.status().ports.len(), 3);
    second.teach(&shuntd, &concerned);
    stays_fast(&shuntd, &first, &other, || {
        let removed = reload(&shuntd, &two);
        assert_eq!((removed.ports_added.len(), removed.ports_removed), (0, vec!["r2".to_owned()]));
    });
    // Linux forwards what the fast path no longer can.
    let before = shuntd.status();
    for _ in 0..20 {
        second.pass(&concerned);
    }
    let after = shuntd.status();
    assert!(slow(&after) - slow(&before) >= 20, "{:?}", after.reasons);
    // In the same place, but for another port: nothing may be taken for what was there before.
    reload(&shuntd, &three);
    second.teach(&shuntd, &concerned);
    first.teach(&shuntd, &other);
    let found = wait_for(PATIENCE, || {
        let events = events(&shuntd);
        let has = |start: &str| events.iter().any(|event| event.starts_with(start));
        (has("reloaded: configuration read again") && has("port-removed: r2")).then_some(())
    });
    assert!(found.is_some(), "{:#?}", events(&shuntd));
    shuntd.stop();
}

#[test]
fn keys_that_are_applied_in_place_leave_flows_fast() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let (stage, packet) = Stage::from_lan(&lab);
    let shuntd = Shuntd::on(lab.router()).config(BASE).start();
    stage.teach(&shuntd, &packet);
    let file = "engine = \"tc\"\nreprove = \"25s\"\nidle = \"2h\"\nudp_packets = 5\ntcp_packets = 6\ncaptures = \"ignore\"\nlimits = \"ignore\"\n\
                verify_checksums = \"never\"\nlook_ahead_flows = 0\nrest_after = \"0s\"\nhosts = [\"router.lan\"]\npage_reports = \"\"\nlog = \"debug\"\n\
                [qos.r1]\nrate = \"10M\"";
    write(&shuntd, file);
    shuntd.wait_until("the file differs", |status| status.config.as_ref().unwrap().differs.len() == 13);
    let asked = ask(&shuntd, "{\"dry_run\":true}").unwrap();
    assert!(
        asked.dry_run && asked.changes.iter().all(|change| change.effect == ChangeEffect::InPlace),
        "{asked:#?}"
    );
    stays_fast(&shuntd, &stage, &packet, || {
        let answer = reload(&shuntd, file);
        assert_eq!((keys(&answer), &answer.unused_queues), (keys(&asked), &asked.unused_queues));
    });
    let config = shuntd.status().config.unwrap();
    assert!(config.differs.is_empty() && config.unusable.is_none(), "{config:?}");
    let last = config.last_reload.unwrap();
    assert_eq!((last.by.as_str(), last.keys.len(), last.refused), ("shunt reload", 13, None));
    let status = shuntd.status();
    assert_eq!((status.unused_queues.len(), status.unused_keys.len()), (1, 1));
    assert_eq!(status.unused_keys[0].key, "hosts");
    let (code, text) = printed(&shuntd.shunt(&["reload"]));
    assert!(code == Some(0) && text.contains("nothing differs from what runs"), "{text}");
    write(&shuntd, &format!("{file}\n[qos.eth7]\nrate = \"20M\""));
    for words in [&["reload", "--dry-run"][..], &["reload"]] {
        let (code, said) = printed(&shuntd.shunt(words));
        let told = ["qos.eth7.rate  none", "`eth7` is not a port of this instance"];
        assert!(code == Some(0) && told.iter().all(|part| said.contains(part)), "{code:?}: {said}");
    }
    wait_until("debug messages are logged", || {
        shuntd.flush();
        shuntd.log().contains("DEBUG")
    });
    shuntd.stop();
}

#[test]
fn a_wrong_file_changes_nothing_and_the_status_says_so() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let (stage, packet) = Stage::from_lan(&lab);
    let shuntd = Shuntd::on(lab.router()).config(BASE).start();
    stage.teach(&shuntd, &packet);
    let wrong = [
        ("idel = \"2h\"", 18, "did you mean"),
        ("idle = \"2h", 18, "line"),
        ("ports = [\"r0\", \"nosuch0\"]", 13, "nosuch0"),
        ("ports = [\"lo\"]", 13, "lo"),
        ("read_group = \"no-such-group\"", 24, "no-such-group"),
        ("page = 9470\npage_token_file = \"/nonexistent\"", 18, "/nonexistent"),
        ("external_core = 9999", 2, "core 9999"),
        ("idle = \"1ms\"", 18, "idle"),
    ];
    for (line, exit_code, said) in wrong {
        let text = format!("engine = \"tc\"\nreprove = \"30s\"\n{line}\n");
        stays_fast(&shuntd, &stage, &packet, || {
            write(&shuntd, &text);
            let (code, printed) = printed(&shuntd.shunt(&["reload"]));
            assert!(code == Some(exit_code) && printed.contains(said), "{line}: {code:?}: {printed}");
            assert!(printed.contains("/shunt.toml: "), "{printed}");
            assert_eq!(printed.lines().count(), 1, "{printed}");
        });
        let last = shuntd.status().config.unwrap().last_reload.unwrap();
        assert!(last.refused.is_some_and(|why| why.contains(said)), "{line}");
    }
    let status =
        shuntd.wait_until("the file is wrong", |status| status.config.as_ref().unwrap().unusable.is_some());
    assert!(status.config.unwrap().unusable.unwrap().contains("idle"));
    let (_, text) = printed(&shuntd.shunt(&["status"]));
    assert!(text.contains("config: cannot use the file") && text.contains("reload: refused at"), "{text}");
    assert!(
        events(&shuntd).iter().any(|event| event.starts_with("reload-refused: configuration not read again"))
    );
    let directory = shuntd.directory().to_str().unwrap();
    let (code, said) = printed(&shuntd.shunt(&["reload", "--dry-run", "--config", directory]));
    assert!(code == Some(18) && said.contains("this is a directory: name a file"), "{code:?}: {said}");
    // A file that is gone.
    fs::remove_file(shuntd.directory().join("shunt.toml")).unwrap();
    assert_eq!(ask(&shuntd, "").unwrap_err().code, FailureCode::BadConfig);
    reload(&shuntd, BASE);
    assert_eq!(shuntd.status().config.unwrap().unusable, None);
    assert_eq!(ask(&shuntd, "{\"partly\":true}").unwrap_err().code, FailureCode::BadRequest);
    shuntd.stop();
}

#[test]
fn keys_that_need_a_restart_keep_the_others_from_being_applied_unless_asked_for() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).config(BASE).start();
    let text = "engine = \"auto\"\nreprove = \"29s\"\nidle = \"1h\"\nlearn = false\nusage = false\nnetlink_buffer = 8192";
    write(&shuntd, text);
    let (code, said) = printed(&shuntd.shunt(&["reload"]));
    assert_eq!(code, Some(31), "{said}");
    for part in
        ["engine, learn, netlink_buffer, usage need a restart", "shunt reload --partial", "was not applied"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(
        ask(&shuntd, "{\"dry_run\":true}").unwrap().changes.len(),
        5,
        "the first reload has changed nothing"
    );
    let (code, said) = printed(&shuntd.shunt(&["reload", "--dry-run"]));
    assert!(code == Some(31) && said.contains("would not be applied"), "{code:?}: {said}");
    let (code, said) = printed(&shuntd.shunt(&["reload", "--partial"]));
    assert!(code == Some(0) && said.contains("1 key, flows go on; 4 keys wait for a restart"), "{said}");
    let config = shuntd.status().config.unwrap();
    assert_eq!(config.differs, ["engine", "learn", "netlink_buffer", "usage"]);
    assert_eq!(config.last_reload.unwrap().keys, ["reprove"]);
    shuntd.stop();
}

#[test]
fn a_mark_that_is_excluded_from_now_on_is_slow_from_now_on() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    lab.router().nft(
        "table inet marks { chain choose { type filter hook forward priority mangle;\nudp dport 5000 meta mark set 0x1f\n}\n}",
    );
    let (stage, packet) = Stage::from_lan(&lab);
    let shuntd = Shuntd::on(lab.router()).config(BASE).start();
    stage.teach(&shuntd, &packet);
    let answer = reload(&shuntd, &format!("{BASE}exclude_mark = \"0x10/0xf0\""));
    assert_eq!((keys(&answer), answer.changes[0].effect), (vec!["exclude_mark"], ChangeEffect::Relearn));
    let before = shuntd.status();
    for _ in 0..20 {
        stage.pass(&packet);
    }
    let after = shuntd.status();
    assert_eq!(after.packets.fast, before.packets.fast, "{:?}", after.refusals);
    assert_eq!(after.epoch_moves.get("config"), Some(&1));
    reload(&shuntd, BASE);
    stage.teach(&shuntd, &packet);
    shuntd.stop();
}

#[test]
fn another_engine_takes_over_and_gives_back() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let (stage, packet) = Stage::from_lan(&lab);
    let with = |engine: &str| format!("engine = \"{engine}\"\nreprove = \"30s\"");
    let shuntd = Shuntd::on(lab.router()).config(&with("xdp")).start();
    stage.teach(&shuntd, &packet);
    for (engine, name) in [(Engine::Tc, "tc"), (Engine::Xdp, "xdp"), (Engine::Tc, "tc")] {
        let answer = reload(&shuntd, &with(name));
        assert_eq!((keys(&answer), answer.changes[0].effect), (vec!["engine"], ChangeEffect::Relearn));
        assert!(
            shuntd.status().ports.iter().all(|port| port.engine == engine),
            "{:#?}",
            shuntd.status().ports
        );
        stage.teach(&shuntd, &packet);
    }
    shuntd.stop();
}

/// The HTTP status of a request in this network namespace; `None` if nobody listens.
fn get(lab: &Topology, address: SocketAddr, path: &str, token: &str) -> Option<String> {
    lab.router().within(|| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.split_whitespace().nth(1).map(str::to_owned)
    })
}

#[test]
fn addresses_tokens_and_the_group_that_reads_change_in_place() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    lab.router().run("ip link set lo up");
    let (stage, packet) = Stage::from_lan(&lab);
    let shuntd = Shuntd::on(lab.router()).config(&format!("{BASE}metrics = 9469")).start();
    let [old, new]: [SocketAddr; 2] =
        ["127.0.0.1:9469", "127.0.0.1:9471"].map(|address| address.parse().unwrap());
    let page: SocketAddr = "127.0.0.1:9470".parse().unwrap();
    stage.teach(&shuntd, &packet);
    assert_eq!(get(&lab, old, "/metrics", "").as_deref(), Some("200"));
    let token = shuntd.directory().join("token");
    let write_token = |text: &str| {
        fs::write(&token, text).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write_token("0123456789abcdef");
    let text = format!(
        "{BASE}metrics = 9471\npage = 9470\npage_token_file = \"{}\"\nread_group = \"daemon\"",
        token.display()
    );
    stays_fast(&shuntd, &stage, &packet, || {
        assert_eq!(reload(&shuntd, &text).changes.len(), 4);
    });
    wait_until("the control socket's thread has taken them over", || {
        get(&lab, old, "/metrics", "").is_none()
    });
    assert_eq!(get(&lab, new, "/metrics", "").as_deref(), Some("200"));
    assert_eq!(get(&lab, page, "/v1/status", "0123456789abcdef").as_deref(), Some("200"));
    let socket = || fs::metadata(shuntd.socket()).map(|file| (file.mode() & 0o7777, file.gid())).unwrap();
    assert_eq!(socket(), (0o660, 1));
    // The same file, another token.
    write_token("fedcba9876543210");
    assert!(reload(&shuntd, &text).changes.is_empty());
    wait_until("the new token is right", || {
        get(&lab, page, "/v1/status", "fedcba9876543210").as_deref() == Some("200")
    });
    assert_eq!(get(&lab, page, "/v1/status", "0123456789abcdef").as_deref(), Some("401"));
    // An address that somebody has: all or nothing.
    let taken = lab.router().within(|| TcpListener::bind("127.0.0.1:9480").unwrap());
    write(&shuntd, &format!("{BASE}metrics = 9480\nidle = \"3h\""));
    assert_eq!(ask(&shuntd, "").unwrap_err().code, FailureCode::BadConfig, "idle is there twice");
    write(&shuntd, &BASE.replace("1h", "3h").replace("engine", "metrics = 9480\nengine"));
    assert_eq!(ask(&shuntd, "").unwrap_err().code, FailureCode::AddressInUse);
    drop(taken);
    assert_eq!((get(&lab, new, "/metrics", "").as_deref(), socket()), (Some("200"), (0o660, 1)));
    reload(&shuntd, BASE);
    wait_until("both are closed", || {
        get(&lab, new, "/metrics", "").is_none() && get(&lab, page, "/", "").is_none()
    });
    assert_eq!(socket().0, 0o600);
    shuntd.stop();
}

#[test]
fn a_signal_reloads_and_one_during_a_reload_does_so_once_more() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).config(BASE).start();
    for number in 2..12 {
        // The last file counts, however many signals come while the daemon reads.
        write(&shuntd, &format!("{BASE}udp_packets = {number}"));
        shuntd.signal(Signal::SIGHUP);
    }
    wait_until("the last file runs", || {
        ask(&shuntd, "{\"dry_run\":true}").is_ok_and(|answer| answer.changes.is_empty())
    });
    let last = shuntd.status().config.unwrap().last_reload.unwrap();
    assert_eq!((last.by.as_str(), last.refused), ("SIGHUP", None));
    write(&shuntd, "wrong");
    shuntd.signal(Signal::SIGHUP);
    shuntd.wait_until("it is refused", |status| {
        status.config.as_ref().unwrap().last_reload.as_ref().is_some_and(|last| last.refused.is_some())
    });
    shuntd.stop();
}

#[test]
fn many_clients_reload_and_the_daemon_stops_meanwhile() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).config(BASE).start();
    let (mut carried_out, mut refused) = (0, 0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&shuntd, ""))).collect();
        for client in clients {
            match client.join().unwrap() {
                Ok(_) => carried_out += 1,
                Err(failure) => {
                    assert_eq!(failure.code, FailureCode::Busy, "{failure}");
                    refused += 1;
                }
            }
        }
    });
    assert!(carried_out > 0 && carried_out + refused == 8, "{carried_out}, {refused}");
    // A reload that has begun when the daemon stops ends with it.
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| shuntd.request("POST", "/v1/reload", "").map(|(code, _)| code)))
            .collect();
        shuntd.signal(Signal::SIGTERM);
        for client in clients {
            // An answer, or a connection that is closed: nobody waits.
            let _ = client.join().unwrap();
        }
    });
    shuntd.stop();
}

/// Open descriptors, and kB of memory.
fn held(pid: u32) -> (usize, u64) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (descriptors, line.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn a_thousand_reloads_leave_nothing_behind() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_uplinks(), rulesets::OPEN);
    lab.router().run("ip link set lo up");
    let shuntd = Shuntd::on(lab.router()).config(&format!("{BASE}ports = [\"r0\", \"r1\"]")).start();
    let variants = [
        format!("{BASE}ports = [\"r0\", \"r1\"]"),
        format!("{BASE}ports = [\"r0\", \"r1\", \"r2\"]\nmetrics = 9469"),
        format!("{BASE}ports = [\"r0\", \"r1\"]\nmetrics = 9471\npage = 9470\nhosts = [\"router.lan\"]"),
        format!("{BASE}ports = [\"r0\", \"r1\"]\nudp_packets = 3\nlog = \"debug\"\nexclude_mark = \"7\""),
    ];
    let round = || variants.iter().for_each(|text| drop(reload(&shuntd, text)));
    for _ in 0..50 {
        round();
    }
    reload(&shuntd, &variants[0]);
    let settled = || (shuntd.status().ports.len() == 2).then(|| held(shuntd.pid()));
    let (descriptors, memory) = wait_for(PATIENCE, settled).unwrap();
    let objects = KernelObjects::held_by(shuntd.pid());
    for _ in 0..200 {
        round();
    }
    reload(&shuntd, &variants[0]);
    let same = wait_for(PATIENCE, || {
        let now = held(shuntd.pid());
        (now.0 <= descriptors && now.1 < memory + 2048 && KernelObjects::held_by(shuntd.pid()) == objects)
            .then_some(())
    });
    assert!(same.is_some(), "{descriptors} descriptors, {memory} kB; now {:?}", held(shuntd.pid()));
    shuntd.stop();
}
