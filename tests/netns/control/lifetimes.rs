//! Mappings of sparse traffic live as long as they do without Shunt.

use crate::conntrack::Events;
use shunt_api::FlowState;
use shunt_testkit::{Shuntd, Topology, require_root, wait_until};
use std::{
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

/// Every new mapping has another port, so that one that was lost shows.
const MASQUERADE: &str = r#"table ip nat { chain post { type nat hook postrouting priority srcnat;
    oifname "r1" masquerade fully-random; }; }"#;

/// Conntrack's timeouts for UDP that is answered and that is not, in seconds: what routers have, 170 s must fit.
const STREAM: u64 = 180;
const UNREPLIED: u64 = 30;
/// The last is too seldom, with or without Shunt.
const SECONDS_BETWEEN: [u64; 5] = [25, 35, 100, 170, 200];
/// From then on conntrack takes UDP that is answered for a stream.
const STREAM_AFTER: Duration = Duration::from_secs(2);

/// A UDP client in the LAN and its server behind the masquerade.
struct Pair {
    client: UdpSocket,
    server: UdpSocket,
}

impl Pair {
    #[track_caller]
    fn new(lab: &Topology, port: u16) -> Self {
        let open = |address: SocketAddr| {
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        };
        let client = lab.lan().ns.within(|| open(lab.lan().at(port)));
        let server = lab.wan().ns.within(|| open(lab.wan().at(port)));
        client.connect(lab.wan().at(port)).unwrap();
        Self { client, server }
    }

    /// A packet there and its answer; where the server saw it come from.
    #[track_caller]
    fn exchange(&self, data: &[u8]) -> SocketAddr {
        let mut heard = [0; 64];
        self.client.send(data).unwrap();
        let (length, from) = self.server.recv_from(&mut heard).unwrap();
        assert_eq!(&heard[..length], data);
        self.server.send_to(data, from).unwrap();
        let length = self.client.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], data);
        from
    }
}

/// Runs one packet every so many seconds, and its answer, for ten minutes; all times divided by `scale`. Conntrack only
/// ever compares the time since the last packet that it saw with a timeout, and Shunt lets it see one every `reprove`. So
/// nothing is different when all of these are shorter alike; what stays as it is, `STREAM_AFTER`, is waited for at first.
#[track_caller]
fn ten_minutes(scale: u64) {
    let scaled = |seconds: u64| Duration::from_millis(seconds * 1000 / scale);
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(MASQUERADE);
    lab.router().sysctl("netfilter/nf_conntrack_udp_timeout", UNREPLIED.div_ceil(scale));
    lab.router().sysctl("netfilter/nf_conntrack_udp_timeout_stream", STREAM / scale);
    let events = Events::of(&lab);
    let reprove = scaled(2).max(Duration::from_millis(200)).as_millis();
    let shuntd = Shuntd::on(lab.router()).config(&format!("reprove = \"{reprove}ms\"")).start();
    let ports: Vec<u16> = (5000..).take(SECONDS_BETWEEN.len()).collect();
    let pairs: Vec<Pair> = ports.iter().map(|port| Pair::new(&lab, *port)).collect();
    let first: Vec<SocketAddr> = pairs.iter().map(|pair| pair.exchange(b"first")).collect();
    let since = Instant::now();
    wait_until("all are fast, and streams", || {
        for pair in &pairs {
            pair.exchange(b"fast?");
        }
        let flows = shuntd.flows();
        let fast = flows
            .iter()
            .flat_map(|c| &c.directions)
            .filter(|d| d.state == FlowState::Active && d.packets > 0);
        fast.count() == 2 * pairs.len() && since.elapsed() > 2 * STREAM_AFTER
    });
    let (longest, slack, since) = (scaled(STREAM), Duration::from_millis(300), Instant::now());
    thread::scope(|scope| {
        for ((pair, seconds), first) in pairs.iter().zip(SECONDS_BETWEEN).zip(&first) {
            scope.spawn(move || {
                let mut last = Instant::now();
                while since.elapsed() + scaled(seconds) < scaled(600) {
                    thread::sleep(scaled(seconds).saturating_sub(last.elapsed()));
                    let waited = last.elapsed();
                    last = Instant::now();
                    let from = pair.exchange(&seconds.to_le_bytes());
                    // A machine that was too busy to send in time has shown nothing.
                    assert!(
                        from == *first || waited + slack > longest,
                        "every {seconds} s: {first} became {from} after {waited:?}"
                    );
                }
            });
        }
    });
    for (port, seconds) in ports.iter().zip(SECONDS_BETWEEN) {
        let made = events.count("NEW", &format!("dport={port} "));
        eprintln!("every {seconds} s: {made} mappings");
        if seconds < STREAM {
            assert_eq!(made, 1, "every {seconds} s");
        } else {
            assert!(made > 1, "conntrack must have forgotten the one with a packet every {seconds} s");
        }
    }
    shuntd.stop();
}

#[test]
fn mappings_of_sparse_udp_are_kept_as_linux_keeps_them() {
    if require_root() {
        ten_minutes(20);
    }
}

/// The same at its true speed.
#[test]
#[ignore = "it takes ten minutes"]
fn mappings_of_sparse_udp_are_kept_for_ten_minutes() {
    if require_root() {
        ten_minutes(1);
    }
}
