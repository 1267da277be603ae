//! Clients that list very many flows delay neither the daemon's answers nor its reaction to changes.

use shunt_api::{Hop, Proto, RouteChoice, Status};
use shunt_api::{StaticFlow, StaticTable};
use shunt_testkit::{Shuntd, Stop, Topology, epoch_moves, require_root, wait_for};
use shunt_wire::Mac;
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const FLOWS: u32 = 100_000;

/// The flows of a router whose page is open.
const USUAL_FLOWS: u32 = 10_000;
/// The most that a page costs, as a share of a CPU: with the list of connections on the screen, and without. An
/// unoptimised daemon needs several times as much as others.
const SHARES_MAX: [f64; 2] = [0.25, 0.02];

/// Adds static flows, each with another source address.
fn many_flows(shuntd: &Shuntd, count: u32) {
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
    for from in (0..count).step_by(10_000) {
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
    many_flows(&shuntd, FLOWS);
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

/// CPU time of the daemon, all threads.
fn cpu_time(shuntd: &Shuntd) -> Duration {
    let threads = fs::read_dir(format!("/proc/{}/task", shuntd.pid())).unwrap();
    let of_thread = |path: PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    threads.filter_map(|thread| of_thread(thread.ok()?.path())).sum()
}

#[test]
fn an_open_page_costs_little() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let shuntd = Shuntd::on(lab.router()).config("learn = false\nmax_flows = 65536").start();
    many_flows(&shuntd, USUAL_FLOWS);
    // What the page asks, and how often in a minute: see page/main.js and page/flows.js.
    let cost = |path: &str, times_a_minute: u32| {
        let rounds = 10;
        // Threads that make lists stay, so that their time is not lost.
        assert_eq!(shuntd.request("GET", path, "").unwrap().0, 200);
        let before = cpu_time(&shuntd);
        for _ in 0..rounds {
            assert_eq!(shuntd.request("GET", path, "").unwrap().0, 200);
        }
        let each = (cpu_time(&shuntd) - before) / rounds;
        eprintln!("{path}: {each:?}, {times_a_minute} times a minute");
        each.as_secs_f64() * f64::from(times_a_minute) / 60.0
    };
    let without_list = cost("/v1/status", 30);
    let with_list =
        without_list + cost("/v1/flows?rate_over_ms=500", 12) + cost("/v1/slow?rate_over_ms=500", 12);
    eprintln!("with the list on the screen {with_list:.4} of a CPU, without {without_list:.4}");
    let [most, most_without] = SHARES_MAX;
    assert!(with_list < most && without_list < most_without, "{with_list}, {without_list}");
}
