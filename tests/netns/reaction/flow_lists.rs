//! Clients that list very many flows delay neither the daemon's answers nor its reaction to changes.

use shunt_api::{Hop, Proto, RouteChoice, Status};
use shunt_api::{StaticFlow, StaticTable};
use shunt_testkit::{Shuntd, Stop, Topology, epoch_moves, require_root, wait_for};
use shunt_wire::Mac;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const FLOWS: u32 = 100_000;

/// Adds [`FLOWS`] static flows, each with another source address.
fn many_flows(shuntd: &Shuntd) {
    let next_hop =
        Hop { out_port: "r1".to_owned(), dmac: Mac([2, 0, 0, 0, 9, 9]), smac: None, vlans: vec![] };
    let flow = |n: u32| StaticFlow {
        in_port: "r0".to_owned(),
        in_vlans: vec![],
        proto: Proto::Udp,
        src: (0x0a00_0000 + n).to_be_bytes().into(),
        sport: 4000,
        dst: [203, 0, 113, 9].into(),
        dport: 80,
        dmac: None,
        snat: None,
        dnat: None,
        route: RouteChoice::Inline(next_hop.clone()),
        mark: 0,
        priority: 0,
        mtu: None,
    };
    for from in (0..FLOWS).step_by(10_000) {
        let table = StaticTable { route: vec![], flow: (from..from + 10_000).map(flow).collect() };
        assert_eq!(shuntd.load(&table), Ok(10_000));
    }
}

#[test]
fn listing_100000_flows_delays_neither_answers_nor_reactions() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let shuntd = Shuntd::on(lab.router()).config("learn = false\nmax_flows = 262144").start();
    many_flows(&shuntd);
    let lone = Instant::now();
    let (code, text) = shuntd.request("GET", "/v1/flows?rate_over_ms=1", "").unwrap();
    let alone = lone.elapsed();
    assert_eq!((code, text.matches("\"orig\":").count()), (200, FLOWS as usize));
    let (ended, lists) = (Stop::default(), AtomicU64::new(0));
    let (mut answers, mut reactions) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.is_set() {
                let (code, text) = shuntd.request("GET", "/v1/flows?rate_over_ms=1", "").unwrap();
                assert_eq!((code, text.matches("\"orig\":").count()), (200, FLOWS as usize));
                lists.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _end = ended.on_drop();
        let timed_status = |times: &mut Vec<Duration>| -> Status {
            let since = Instant::now();
            let status = shuntd.status();
            times.push(since.elapsed());
            status
        };
        for n in 0..20 {
            let before = epoch_moves(&timed_status(&mut answers), "rule");
            let verb = if n % 2 == 0 { "add" } else { "del" };
            lab.router().run(&format!("ip rule {verb} from 198.51.100.9 lookup main"));
            let since = Instant::now();
            let moved = || (epoch_moves(&timed_status(&mut answers), "rule") > before).then_some(());
            assert_eq!(wait_for(Duration::from_secs(10), moved), Some(()));
            reactions.push(since.elapsed());
        }
    });
    answers.sort_unstable();
    reactions.sort_unstable();
    let (answer, reaction) = (answers[answers.len() / 2], reactions[reactions.len() / 2]);
    eprintln!(
        "one list takes {alone:?}; with {} lists: status {answer:?} (at most {:?}), reaction {reaction:?} (at most {:?})",
        lists.into_inner(),
        answers[answers.len() - 1],
        reactions[reactions.len() - 1],
    );
    assert!(answer < alone / 10 && reaction < alone / 10, "answers or reactions wait for the lists");
}
