//! New connections through a masquerading router, compared with the number of conntrack entries.

use super::gen_command::json;
use serde_json::Value;
use shunt_gen::{Schedule, Shape};
use shunt_lab::traffic::{Error, Session, Testbed, TrafficSpec, session};
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
#[ignore = "half a minute of CPU time; in make test-long"]
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
    for what in ["connections", "tcp-connections"] {
        let output = shunt.run(&format!("bench ndr --what {what} --both"));
        assert!(output.err.contains("leave out --both and --tx"), "{}", output.err);
    }
}
