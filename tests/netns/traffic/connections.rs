//! New connections through a masquerading router, against what conntrack counts.

use super::command::json;
use serde_json::Value;
use shunt_gen::{Rate, Schedule, Shape};
use shunt_lab::traffic::{Error, MeansChoice, Place, Session, Wanted, session};
use shunt_testkit::{NetNs, Shunt, require_root};
use std::{fs, sync::atomic::AtomicBool, time::Duration};

const CONNECTIONS: u64 = 2000;

fn wanted() -> Wanted {
    let mut shape =
        Shape::udp("0.0.0.0:1024".parse().unwrap(), "0.0.0.0:1024".parse().unwrap(), "64".parse().unwrap());
    shape.source_ports = "1024-65535".parse().unwrap();
    shape.flows = Some(CONNECTIONS as u32);
    Wanted {
        shape,
        rate: Rate::Max,
        speed: None,
        duration: None,
        packets: None,
        warm_up: Duration::ZERO,
        burst: 1,
        both: false,
        means: MeansChoice::Auto,
        floor: false,
        replay: None,
        answered: true,
        pcap_out: None,
    }
}

/// Sent, answered, and how many conntrack has then.
fn run(session: &mut Session<'_>, packets: u64) -> Result<(u64, u64, u64), Error> {
    let router = session.router().unwrap();
    let schedule = Schedule { pps: Some(5000.0), burst: 1, packets: Some(packets), duration: None };
    let figures = session.run(&schedule)?.remove(0).figures;
    let tracked = router.try_run("conntrack -C")?.trim().parse().unwrap();
    Ok((figures.sent, figures.received, tracked))
}

#[test]
fn each_packet_is_a_connection_of_its_own_that_is_answered() {
    if !require_root() {
        return;
    }
    let never = AtomicBool::new(false);
    session(&wanted(), &Place::Own, &never, |session| {
        let router = session.router().unwrap();
        router.try_run(
            "nft 'table inet nat { chain postrouting { type nat hook postrouting priority srcnat; \
             oifname \"r1\" masquerade; }; }'",
        )?;
        assert_eq!(run(session, CONNECTIONS)?, (CONNECTIONS, CONNECTIONS, CONNECTIONS));
        // Beyond the number of flows the same come again, and in the next trial.
        assert_eq!(run(session, CONNECTIONS + 100)?.2, CONNECTIONS);
        // All were translated, and answers found their way.
        let all = router.try_run("conntrack -L -p udp 2>/dev/null")?;
        assert!(all.lines().all(|line| line.contains("dst=198.18.0.1 ") && !line.contains("UNREPLIED")), "{all}");
        // A router that lets no answer through has none.
        router.try_run("nft 'table inet f { chain c { type filter hook forward priority 0; ct direction reply drop; }; }'")?;
        assert_eq!(run(session, 100)?.1, 0);
        Ok::<_, Error>(())
    })
    .unwrap();
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
    assert!(searched["results"][1]["throughput_pps"].as_f64().unwrap() > 100.0, "{searched:#}");
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        (&kept["what"], &kept["readings"]["connections pdr slow"]["unit"]),
        (&"connection rate".into(), &"1/s".into())
    );

    let said = shunt.run("bench ndr --what connections --max-load 1e9");
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("nf_conntrack_max"), "{}", said.err);
    let said = shunt.run("bench ndr --what connections --both");
    assert!(said.err.contains("leave out --both and --tx"), "{}", said.err);
}
