//! Clients of the control socket that are slow, silent, malformed or too many delay no other client, and flows stay
//! fast.

use shunt_testkit::{Shuntd, Stage, Stop, require_root, rulesets, silent_router, wait_until};
use std::{
    fs,
    io::Write,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// More silent clients than the daemon admits.
const MUTE: usize = 400;
const STORM: Duration = Duration::from_secs(4);
/// Number of clients between two requests of the test.
const BETWEEN: u64 = 10;

fn resident_kibibytes(shuntd: &Shuntd) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", shuntd.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Requests and garbage that the clients send before they fall silent. None has an answer of more than some kilobytes.
fn madness() -> Vec<Vec<u8>> {
    let get = b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
    let post = b"POST /v1/static HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n".to_vec();
    vec![
        Vec::new(),
        b"GET /v1/sta".to_vec(),
        get.repeat(500),
        [post.clone(), vec![b'['; 1_000_000]].concat(),
        post,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec(),
        (0..20_000_u32).flat_map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24).to_be_bytes()).collect(),
        b"GET /v1/flows HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
    ]
}

/// Connects again and again, sends, and closes or stays connected for a while, until `over` is set.
fn storm(shuntd: &Shuntd, over: &Stop, clients: &AtomicU64) {
    let mut kept = Vec::new();
    for (n, bytes) in madness().iter().cycle().enumerate() {
        if over.is_set() {
            return;
        }
        let Ok(mut client) = UnixStream::connect(shuntd.socket()) else { continue };
        client.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let _ = client.write_all(bytes);
        if n % 3 == 0 {
            let _ = client.shutdown(Shutdown::Write);
        }
        clients.fetch_add(1, Ordering::Relaxed);
        kept.push(client);
        if kept.len() > 50 {
            kept.remove(0);
        }
    }
}

#[test]
fn slow_clients_delay_neither_other_clients_nor_the_fast_path() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = Shuntd::on(lab.router()).start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("all the while");
    stage.teach(&shuntd, &packet);
    let before = resident_kibibytes(&shuntd);
    let mut mute: Vec<UnixStream> =
        (0..MUTE).map(|_| UnixStream::connect(shuntd.socket()).unwrap()).collect();
    let (over, clients) = (Stop::default(), AtomicU64::new(0));
    let (mut slowest, mut most) = (Duration::ZERO, before);
    thread::scope(|scope| {
        scope.spawn(|| storm(&shuntd, &over, &clients));
        let _end = over.on_drop();
        let began = Instant::now();
        let mut requests = 0;
        // On a busy machine, it takes longer until enough clients have connected.
        while began.elapsed() < STORM || requests < 20 || clients.load(Ordering::Relaxed) < 500 {
            // Send one byte at a time.
            for client in mute.iter_mut().take(20) {
                let _ = client.write_all(b"G");
            }
            let since = Instant::now();
            let fast = shuntd.status().packets.fast;
            slowest = slowest.max(since.elapsed());
            for _ in 0..8 {
                assert!(stage.passes(&packet));
            }
            // One of the packets may be the one that re-proves the flow.
            assert!(shuntd.status().packets.fast > fast, "the flow is slow");
            most = most.max(resident_kibibytes(&shuntd));
            requests += 1;
            let before = clients.load(Ordering::Relaxed);
            wait_until("more clients have connected", || clients.load(Ordering::Relaxed) >= before + BETWEEN);
        }
    });
    let clients = clients.into_inner();
    eprintln!(
        "{clients} clients; slowest status {slowest:?}; memory {before} KiB before, {most} KiB at most"
    );
    assert!(slowest < Duration::from_secs(1), "slowest status: {slowest:?}");
    assert!(most < before + 16 * 1024, "memory: {before} KiB before, {most} KiB at most");
}
