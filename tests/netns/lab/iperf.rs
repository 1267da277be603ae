//! Results read from iperf3's output, compared with the counters of the devices.

use shunt_lab::iperf::{Direction, Iperf, Load, Test};
use shunt_testkit::{Host, Topology, require_root};
use std::sync::atomic::AtomicBool;

const RATE_BPS: u64 = 20_000_000;
/// Bytes that a TCP sender has in flight at the end, and those of iperf3's control connection.
const SLACK_BYTES: f64 = 1e6;

fn counted(host: &Host, what: &str) -> u64 {
    let text = host.ns.run(&format!("cat /sys/class/net/{}/statistics/{what}", host.nic));
    text.trim().parse().unwrap()
}

#[test]
fn iperf3_results_agree_with_the_device_counters() {
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
        let test = Test {
            client: &client.ns,
            server: &server.ns,
            to,
            load,
            streams: 1,
            direction,
            rate_bps,
            seconds,
        };
        let receivers = match direction {
            Direction::Forward => vec![server],
            Direction::Reverse => vec![client],
            Direction::Duplex => vec![server, client],
        };
        let look = |what| receivers.iter().map(|host| counted(host, what)).collect::<Vec<u64>>();
        let (bytes, packets) = (look("rx_bytes"), look("rx_packets"));
        let arrived = iperf.run(&test, &stop, &mut |_| {}).unwrap().unwrap();
        assert_eq!(arrived.len(), receivers.len());
        for (n, one) in arrived.iter().enumerate() {
            // How much arrives depends on the machine. The devices also count headers, acknowledgements, the control
            // connection, data in flight at the end, and datagrams that came after the receiver had stopped.
            let rise = look("rx_bytes")[n] - bytes[n];
            let most = 1.3 * one.bytes as f64 + SLACK_BYTES;
            assert!(one.bytes > 0 && one.bytes <= rise, "{rise} for {one:?}");
            assert!(one.datagrams.is_some() || (rise as f64) < most, "{rise} for {one:?}");
            assert!(one.seconds >= 0.9, "{one:?}");
            let rate = one.bytes as f64 * 8.0 / one.seconds;
            assert!((0.95..1.05).contains(&(one.bits_per_second / rate)), "{one:?}");
            let Some(datagrams) = one.datagrams else { continue };
            let rise = look("rx_packets")[n] - packets[n];
            assert!(datagrams.received <= rise && rise < datagrams.sent + 100, "{rise} for {one:?}");
            assert!(datagrams.sent >= datagrams.received + datagrams.lost, "{one:?}");
        }
    }
}
