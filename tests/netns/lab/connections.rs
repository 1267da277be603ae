//! New and concurrent connections through a masquerading router, compared with the number of conntrack entries.

use super::gen_command::json;
use serde_json::Value;
use shunt_gen::{Schedule, Shape};
use shunt_lab::{
    throughput::concurrent::{MaximumOf, Range, Router},
    traffic::{Error, Session, Testbed, TrafficSpec, session},
};
use shunt_testkit::{NetNs, Shunt, require_root};
use shunt_wire::Tcp;
use std::{fs, sync::atomic::AtomicBool};

const CONNECTIONS: u64 = 2000;

fn traffic() -> TrafficSpec {
    let mut shape =
        Shape::udp("0.0.0.0:1024".parse().unwrap(), "0.0.0.0:1024".parse().unwrap(), "64".parse().unwrap());
    shape.source_ports = "1024-65535".parse().unwrap();
    shape.flows = Some(CONNECTIONS as u32);
    TrafficSpec { answered: true, ..TrafficSpec::for_shape(shape) }
}

/// Numbers of packets sent and answered, and of conntrack entries.
fn run(session: &mut Session<'_>, packets: u64) -> Result<(u64, u64, u64), Error> {
    let router = session.router().unwrap();
    let schedule = Schedule { pps: Some(5000.0), burst: 1, packets: Some(packets), duration: None };
    let figures = session.run(&schedule)?.remove(0).figures;
    let tracked = router.try_run("conntrack -C")?.trim().parse().unwrap();
    Ok((figures.sent, figures.received, tracked))
}

#[test]
fn each_packet_is_a_connection_of_its_own_with_an_answer() {
    if !require_root() {
        return;
    }
    let never = AtomicBool::new(false);
    session(&traffic(), &Testbed::Own, &never, |session| {
        let router = session.router().unwrap();
        router.try_run(
            "nft 'table inet nat { chain postrouting { type nat hook postrouting priority srcnat; \
             oifname \"r1\" masquerade; }; }'",
        )?;
        assert_eq!(run(session, CONNECTIONS)?, (CONNECTIONS, CONNECTIONS, CONNECTIONS));
        // More packets than flows repeat the flows, and so does the next trial.
        assert_eq!(run(session, CONNECTIONS + 100)?.2, CONNECTIONS);
        // Conntrack translated all connections, and the answers arrived.
        let all = router.try_run("conntrack -L -p udp 2>/dev/null")?;
        assert!(all.lines().all(|line| line.contains("dst=198.18.0.1 ") && !line.contains("UNREPLIED")), "{all}");
        // Through a router that forwards no answer, none arrives.
        router.try_run("nft 'table inet f { chain c { type filter hook forward priority 0; ct direction reply drop; }; }'")?;
        assert_eq!(run(session, 100)?.1, 0);
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Over IPv4 and IPv6.
#[test]
fn a_tcp_connection_counts_when_its_handshake_has_passed() {
    if !require_root() {
        return;
    }
    let never = AtomicBool::new(false);
    for any in ["0.0.0.0:1024", "[::]:1024"] {
        let mut expected = traffic();
        let any = any.parse().unwrap();
        expected.shape = Shape { tcp: Some(Tcp::SYN), ..Shape::udp(any, any, "90".parse().unwrap()) };
        expected.shape.source_ports = "1024-65535".parse().unwrap();
        expected.shape.flows = Some(CONNECTIONS as u32);
        session(&expected, &Testbed::Own, &never, |session| {
            let router = session.router().unwrap();
            // Packets that do not fit into the connection, or with wrong checksums, are invalid.
            router.try_run(
                "nft 'table inet f { chain c { type filter hook forward priority 0; ct state invalid drop; }; \
                 chain n { type nat hook postrouting priority srcnat; oifname \"r1\" masquerade; }; }'",
            )?;
            assert_eq!(run(session, CONNECTIONS)?, (CONNECTIONS, CONNECTIONS, CONNECTIONS));
            let all = router.try_run("conntrack -L -p tcp 2>/dev/null")?;
            let established = all.lines().filter(|line| line.contains("ESTABLISHED") && line.contains("[ASSURED]"));
            assert_eq!(established.count() as u64, CONNECTIONS, "{all}");
            // The answer passes, but its acknowledgement does not.
            router.try_run("nft add rule inet f c 'iifname \"r0\" tcp flags & (syn | ack) == ack drop'")?;
            router.try_run("conntrack -F")?;
            assert_eq!(run(session, 100)?.1, 0);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}

#[test]
fn the_rate_of_connections_is_searched_and_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("connections.json");
    let report = json(&shunt.run(&format!(
        "bench ndr --json --quick --what connections --engine slow --min-load 100 --max-load 4000 --keep {}",
        file.display()
    )));
    let searched = &report["searches"][0];
    assert_eq!((&searched["counted"], &searched["device"]), (&"connections".into(), &"slow".into()));
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept["what"], "connection rate");
    let pdr = &searched["results"][1];
    match pdr["throughput_pps"].as_f64() {
        Some(rate) => {
            assert!(rate > 100.0, "{searched:#}");
            assert_eq!(kept["readings"]["connections pdr slow"]["unit"], "1/s");
        }
        None => {
            assert_eq!(pdr["irregular"], "sender-late", "{searched:#}");
            assert!(kept["missing"]["connections pdr slow"].is_string(), "{kept:#}");
        }
    }

    let output = shunt.run("bench ndr --what connections --max-load 1e9");
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("nf_conntrack_max"), "{}", output.err);
    for what in ["connections", "tcp-connections", "concurrent"] {
        let output = shunt.run(&format!("bench ndr --what {what} --both"));
        assert!(output.err.contains("leave out --both and --tx"), "{}", output.err);
    }
}

#[test]
fn a_router_holds_as_many_connections_as_its_table_has_room_for() {
    if !require_root() {
        return;
    }
    let never = AtomicBool::new(false);
    let mut expected = traffic();
    expected.shape.flows = Some(2 * CONNECTIONS as u32);
    session(&expected, &Testbed::Own, &never, |session| {
        let router = Router::set_up(session, None)?;
        let ns = session.router().unwrap();
        let timeout = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout";
        assert_eq!(ns.try_run(&format!("cat {timeout} {timeout}_stream"))?, "86400\n86400\n");
        // nf_conntrack_max is set for the whole machine, so an nft set stands for the table.
        ns.try_run(&format!(
            "nft 'table inet f {{ set room {{ type inet_service; size {CONNECTIONS}; flags dynamic; }}; \
             chain c {{ type filter hook forward priority 10; \
             ct state new add @room {{ udp sport }} accept; ct state new drop; }}; }}'"
        ))?;
        let range = Range { min: 1990, max: 2004, max_of: MaximumOf::Asked, width: 0.0 };
        let searched = range.search(|connections| router.trial(session, connections, 20_000.0))?;
        let (held, fails) = (searched.held.unwrap(), searched.fails.unwrap());
        assert_eq!(
            (u64::from(held.connections), held.tracked),
            (CONNECTIONS, CONNECTIONS),
            "{held}; {fails}"
        );
        assert_eq!((u64::from(fails.connections), fails.tracked), (CONNECTIONS + 1, CONNECTIONS));
        // A connection whose answer is lost does not count, although conntrack tracks it.
        ns.try_run("nft 'flush table inet f; add rule inet f c ct direction reply udp dport 1030 drop'")?;
        let lossy = router.trial(session, 100, 20_000.0)?;
        assert_eq!((lossy.tracked, lossy.renewed, lossy.lost, lossy.held()), (100, 0, 1, false));
        // Connections that expire during the trial do not count either.
        ns.try_run(&format!("nft flush table inet f; echo 0 >{timeout}; echo 0 >{timeout}_stream"))?;
        let forgetful = router.trial(session, 100, 20_000.0)?;
        assert_eq!((forgetful.renewed, forgetful.held()), (100, false));
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn concurrent_connections_are_searched_up_to_the_table_for_each_engine_and_kept() {
    if !require_root() {
        return;
    }
    let place = NetNs::new("place");
    let shunt = Shunt::on(&place);
    let [file, most] = ["kept.json", "most"].map(|name| shunt.directory().join(name));
    fs::write(&most, "2000\n").unwrap();
    // In a mount namespace, since the file belongs to the machine.
    let small =
        format!("mount --bind {} /proc/sys/net/netfilter/nf_conntrack_max && exec \"$@\"", most.display());
    let small = shunt.file("small", &small);
    let shunt = shunt.by(&format!("unshare --mount sh {}", small.display()));
    let bench = "bench ndr --what concurrent --min-load 500";
    let report = json(&shunt.run(&format!("{bench} --json --quick --keep {}", file.display())));
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&kept["what"], &kept["readings"]), (&"concurrent connections".into(), &report["readings"]));
    for engine in ["slow", "tc", "xdp"] {
        let reading = &kept["readings"][format!("concurrent connections {engine}")];
        assert_eq!(
            (&reading["unit"], &reading["value"]),
            (&"connections".into(), &2000.0.into()),
            "{kept:#}"
        );
        let details = &reading["runs"][0]["details"];
        assert_eq!((&details["bound"], &details["fails"]), (&"nf_conntrack_max".into(), &Value::Null));
        let held = &details["held"];
        assert_eq!((&held["tracked"], &held["renewed"], &held["lost"]), (&2000.into(), &0.into(), &0.into()));
        // The fast path learns from two packets and forwards the third.
        assert_eq!(
            held["fast_share"].as_f64().map(|share| share > 0.5),
            (engine != "slow").then_some(true),
            "{held}"
        );
    }
    for (words, why) in [
        ("--max-load 2001", "--max-load 2001: too high: nf_conntrack_max is 2000"),
        ("--max-load 499", "--min-load 500: expected a number from 1 to 499"),
        ("--open-rate 0", "--open-rate 0: expected a rate above 0"),
        ("--rfc2544", "--rfc2544 measures frames/s"),
    ] {
        let output = shunt.run(&format!("{bench} {words}"));
        assert_eq!(output.code, Some(2), "{words}");
        assert!(output.err.contains(why), "{}", output.err);
    }
}
