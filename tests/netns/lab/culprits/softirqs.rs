//! Softirqs of the CPU that receives: a flood in another network namespace keeps them busy.

use super::{Hosts, last_cpu, likely, pin, real_time};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use shunt_testkit::{NetNs, require_root, skip};
use std::{
    net::UdpSocket,
    thread::{self, Scope},
    time::Duration,
};

/// Each packet of the flood is compared with the square of this number of rules.
const RULES: usize = 100;
/// Packets of the flood that wait at a time: so few that the interrupt handles them, and not a thread of the kernel,
/// which other work on this machine might delay.
const BURST: usize = 10;

/// A host that is flooded, and the one that floods it.
struct Flood {
    flooded: NetNs,
    sender: NetNs,
}

impl Flood {
    /// The flood is received on the last CPU, as are the requests to the traced host.
    fn beside(hosts: &Hosts) -> Self {
        let (flooded, sender) = (NetNs::new("flooded"), NetNs::new("flooder"));
        flooded.run(&format!("ip link add f0 type veth peer name g0 netns {}", sender.name()));
        flooded.run("ip address add 198.51.100.1/24 dev f0 && ip link set f0 up");
        sender.run("ip address add 198.51.100.2/24 dev g0 && ip link set g0 up");
        let lines = |line: &str| format!("{line}; ").repeat(RULES);
        flooded.nft(&format!(
            "table ip slow {{ chain compare {{ {} }}; chain first {{ type filter hook prerouting priority 0; {} \
             udp dport 9 drop; }}; }}",
            lines("udp sport 1 accept"),
            lines("meta l4proto udp jump compare")
        ));
        flooded.receive_on("f0", last_cpu());
        hosts.traced.receive_on("s0", last_cpu());
        Self { flooded, sender }
    }

    /// Starts the flood. The next burst is sent when the last packet of the one before has arrived.
    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, hosts: &'s Hosts) {
        let sink = self.flooded.within(|| UdpSocket::bind("198.51.100.1:10")).unwrap();
        sink.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let socket = self.sender.within(|| UdpSocket::bind("198.51.100.2:0")).unwrap();
        // Packets count against it until they have been received: room for more than the queue of a CPU has.
        setsockopt(&socket, sockopt::SndBufForce, &(16 << 20)).unwrap();
        hosts.start(scope, "flood", move || {
            pin(0);
            // Between bursts it waits; else it would leave the others no time.
            real_time(2);
            while hosts.go_on() {
                for _ in 1..BURST {
                    let _ = socket.send_to(&[0; 100], "198.51.100.1:9");
                }
                let _ = socket.send_to(&[0; 100], "198.51.100.1:10");
                let _ = sink.recv(&mut [0; 200]);
            }
        });
    }
}

/// Traces a server that answers at once, beside a flood.
fn traced_beside_a_flood() -> Value {
    let hosts = Hosts::new();
    let flood = Flood::beside(&hosts);
    thread::scope(|scope| {
        flood.start(scope, &hosts);
        hosts.serve(scope, "server", |_| real_time(1), || ());
        hosts.send(scope, "client", Duration::from_secs(1));
        hosts.trace()
    })
}

#[track_caller]
fn assert_flood(cause: &Value) {
    assert_eq!((&cause["kind"], &cause["cpu"]), (&"softirq".into(), &last_cpu().into()), "{cause:#}");
    let work = &cause["work"];
    assert_eq!((&work["vector"], &work["device"]), (&"NET_RX".into(), &"f0".into()), "{cause:#}");
    assert_eq!(work["foreign"], true, "{cause:#}");
}

#[test]
fn softirqs_for_which_packets_wait_are_named_with_their_device() {
    if !require_root() {
        return;
    }
    if last_cpu() == 0 {
        return skip("on one CPU, the flood and its victims take turns");
    }
    // Another program may keep the flood from running, but not each time.
    let reports = (0..3).map(|_| traced_beside_a_flood());
    let is_flood = |report: &Value| report["diagnosis"]["likely"]["work"]["device"] == "f0";
    let mut others = Vec::new();
    for report in reports {
        if is_flood(&report) {
            return assert_flood(likely(&report));
        }
        others.push(report["diagnosis"].clone());
    }
    panic!("{others:#?}");
}
