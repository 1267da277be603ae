//! NAT mappings of sparse UDP traffic live as long as they do without Shunt.

use shunt_api::FlowState;
use shunt_testkit::{ConntrackEvents, Shuntd, Topology, require_root, wait_until};
use std::{
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

/// Gives every new mapping a random port, so that a lost mapping shows.
const MASQUERADE: &str = r#"table ip nat { chain post { type nat hook postrouting priority srcnat;
    oifname "r1" masquerade fully-random; }; }"#;

/// Conntrack's timeouts for answered and unanswered UDP, in seconds, as routers have them.
const STREAM: u64 = 180;
const UNREPLIED: u64 = 30;
/// Seconds between two packets, one stream each. The mapping of the last expires with or without Shunt.
const SECONDS_BETWEEN: [u64; 5] = [25, 35, 100, 170, 200];
/// Age from which conntrack applies the timeout of streams to answered UDP.
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

    /// Sends a packet and its answer; returns the source address that the server saw.
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

/// Sends packets and answers at fixed intervals, for `total` seconds; all times are divided by `scale`.
///
/// Conntrack compares the time since the last packet that it saw with a timeout, and Shunt lets it see one every
/// `reprove`, so dividing both by the same number changes nothing. `STREAM_AFTER` cannot be scaled, so the test waits
/// for it first.
#[track_caller]
fn mappings_last(total: u64, scale: u64) {
    let scaled = |seconds: u64| Duration::from_millis(seconds * 1000 / scale);
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(MASQUERADE);
    lab.router().sysctl("netfilter/nf_conntrack_udp_timeout", UNREPLIED.div_ceil(scale));
    lab.router().sysctl("netfilter/nf_conntrack_udp_timeout_stream", STREAM / scale);
    let events = ConntrackEvents::listen(&lab);
    let reprove = scaled(2).max(Duration::from_millis(200)).as_millis();
    let shuntd = Shuntd::on(lab.router()).config(&format!("reprove = \"{reprove}ms\"")).start();
    let ports: Vec<u16> = (5000..).take(SECONDS_BETWEEN.len()).collect();
    let pairs: Vec<Pair> = ports.iter().map(|port| Pair::new(&lab, *port)).collect();
    let first: Vec<SocketAddr> = pairs.iter().map(|pair| pair.exchange(b"first")).collect();
    let since = Instant::now();
    wait_until("all flows are fast, and conntrack takes them for streams", || {
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
                while since.elapsed() + scaled(seconds) < scaled(total) {
                    thread::sleep(scaled(seconds).saturating_sub(last.elapsed()));
                    let waited = last.elapsed();
                    last = Instant::now();
                    let from = pair.exchange(&seconds.to_le_bytes());
                    // On a busy machine, the packet may have been sent too late to prove anything.
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
            assert!(made > 1, "conntrack kept the mapping with a packet every {seconds} s");
        }
    }
    shuntd.stop();
}

#[test]
fn nat_mappings_of_sparse_udp_last_as_long_as_without_shunt() {
    if require_root() {
        mappings_last(450, 20);
    }
}

#[test]
#[ignore = "takes ten minutes"]
fn nat_mappings_of_sparse_udp_last_ten_minutes() {
    if require_root() {
        mappings_last(600, 1);
    }
}
