//! What iperf3 is read to say, against what the devices counted.

use shunt_lab::iperf::{Direction, Iperf, Load, Test};
use shunt_testkit::{Host, Topology, require_root};
use std::sync::atomic::AtomicBool;

const RATE_BPS: u64 = 20_000_000;

fn counted(host: &Host, what: &str) -> u64 {
    let said = host.ns.run(&format!("cat /sys/class/net/{}/statistics/{what}", host.nic));
    said.trim().parse().unwrap()
}

#[test]
fn what_arrives_is_what_the_devices_counted() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.try_gather(true).unwrap();
    let (iperf, stop) = (Iperf::find().unwrap(), AtomicBool::new(false));
    for (load, v6, direction) in [
        (Load::Tcp, false, Direction::Forward),
        (Load::Tcp, true, Direction::Duplex),
        (Load::Udp(1472), false, Direction::Reverse),
        (Load::Udp(1452), true, Direction::Duplex),
    ] {
        let (client, server) = (lab.lan(), lab.wan());
        let to = if v6 { server.v6.into() } else { server.v4.into() };
        let (seconds, rate_bps) = (1, Some(RATE_BPS));
        let test = Test { client: &client.ns, server: &server.ns, to, load, direction, rate_bps, seconds };
        let receivers = match direction {
            Direction::Forward => vec![server],
            Direction::Reverse => vec![client],
            Direction::Duplex => vec![server, client],
        };
        let look = |what| receivers.iter().map(|host| counted(host, what)).collect::<Vec<u64>>();
        let (bytes, packets) = (look("rx_bytes"), look("rx_packets"));
        let arrived = iperf.run(&test, &stop, &mut || {}).unwrap().unwrap();
        assert_eq!(arrived.len(), receivers.len());
        for (n, one) in arrived.iter().enumerate() {
            // Headers, acknowledgements, and what iperf3 itself says; of TCP also what was under way at the end.
            let rise = look("rx_bytes")[n] - bytes[n];
            assert!((1.0..1.3).contains(&(rise as f64 / one.bytes as f64)), "{rise} for {one:?}");
            assert!((0.9..2.0).contains(&one.seconds), "{one:?}");
            let rate = one.bits_per_second / RATE_BPS as f64;
            assert!((0.5..1.15).contains(&rate), "{one:?}");
            let Some(datagrams) = one.datagrams else { continue };
            let rise = look("rx_packets")[n] - packets[n];
            assert!(datagrams.received <= rise && rise < datagrams.received + 100, "{rise} for {one:?}");
            assert!(datagrams.sent >= datagrams.received + datagrams.lost, "{one:?}");
        }
    }
}
