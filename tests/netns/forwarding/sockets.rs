//! Packets of programs on this machine, such as containers', which still belong to their sockets when they reach the
//! router.

use crate::daemon;
use nix::sys::socket::{MsgFlags, TimestampingFlag, recv, setsockopt, sockopt::Timestamping};
use shunt_api::Engine;
use shunt_testkit::{
    ENGINES, Topology, punts, require_root, rulesets, skip_missing_feature, wait_for, wait_until,
};
use std::{net::UdpSocket, os::fd::AsRawFd, time::Duration};

const DATAGRAMS: usize = 20;

/// Number of messages in the socket's error queue, where time stamps of transmissions arrive.
fn stamps(socket: &UdpSocket) -> usize {
    let mut data = [0; 2048];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    std::iter::from_fn(|| recv(socket.as_raw_fd(), &mut data, flags).ok()).count()
}

#[test]
fn a_datagram_gets_one_time_stamp_of_its_transmission() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = Topology::two_hosts_and_a_router();
        lab.pin_neighbours();
        lab.router().nft(rulesets::OPEN);
        let shuntd = daemon(&lab, engine);
        lab.lan().ns.within(|| {
            let socket = UdpSocket::bind(lab.lan().at(4000)).unwrap();
            socket.connect(lab.wan().at(5000)).unwrap();
            wait_until("the flow is fast", || {
                // The WAN host answers that nobody listens.
                let _ = socket.send(b"fast");
                shuntd.status().packets.fast > 0
            });
            let stamping =
                TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE;
            setsockopt(&socket, Timestamping, &stamping).unwrap();
            let before = shuntd.status();
            for _ in 0..DATAGRAMS {
                while socket.send(b"stamped").is_err() {}
            }
            let mut seen = 0;
            let arrived = || {
                seen += stamps(&socket);
                (seen >= DATAGRAMS).then_some(())
            };
            assert_eq!(wait_for(Duration::from_secs(5), arrived), Some(()), "{engine}: {seen} stamps");
            let after = shuntd.status();
            seen += stamps(&socket);
            assert_eq!(seen, DATAGRAMS, "{engine}");
            if engine == Engine::Tc {
                assert!(
                    punts(&after, "socket") - punts(&before, "socket") >= DATAGRAMS as u64 - 1,
                    "{after:#?}"
                );
            }
        });
        shuntd.stop();
    }
}

/// With fq on its port, Linux paces by flow, not by the container's socket, which fq would take over.
#[test]
fn packets_of_a_socket_stay_slow_where_fq_would_pace_it() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.pin_neighbours();
    lab.router().nft(rulesets::OPEN);
    if lab.router().try_run("tc qdisc replace dev r1 root fq").is_err() {
        skip_missing_feature("fq", "--test forwarding -- sockets", "tc refuses it");
        return;
    }
    let shuntd = daemon(&lab, Engine::Tc);
    lab.lan().ns.within(|| {
        let socket = UdpSocket::bind(lab.lan().at(4000)).unwrap();
        socket.connect(lab.wan().at(5000)).unwrap();
        wait_until("its packets are left to Linux", || {
            let _ = socket.send(b"paced");
            punts(&shuntd.status(), "socket") > 3
        });
        assert_eq!(shuntd.status().packets.fast, 0);
        lab.router().run("tc qdisc del dev r1 root");
        wait_until("its packets are fast", || {
            let _ = socket.send(b"fast");
            shuntd.status().packets.fast > 3
        });
    });
    shuntd.stop();
}
