//! Frames that XDP redirects to a port whose driver does not accept them.

use shunt_api::{Engine, PortPackets, Status};
use shunt_testkit::{
    Shuntd, Tap, Topology, is_sent_by, offer_xdp_frames, port_engine, require_root, rulesets, silent_router,
    wait_for,
};
use shunt_traffic::tap::TapDevice;
use shunt_wire::{Packet, Transport};
use std::{net::SocketAddr, time::Duration};

const PATIENCE: Duration = Duration::from_secs(5);
const BEHIND_TAP: &str = "203.0.113.2:5000";
/// No flow is re-proved during a test.
const NO_PROOF: &str = "reprove = \"30s\"";

/// A LAN host with jumbo frames, and a router with a TAP device as egress, whose driver accepts one buffer per frame.
struct Outlet {
    lab: Topology,
    from: Tap,
    to: TapDevice,
}

impl Outlet {
    fn new() -> Self {
        let lab = silent_router(rulesets::OPEN);
        lab.lan().ns.run("ip link set lan0 mtu 9000");
        let to = lab.router().within(|| TapDevice::create("tap0")).unwrap();
        lab.router().run(
            "ip link set r0 mtu 9000; sysctl -qw net.ipv6.conf.tap0.disable_ipv6=1
             ip link set tap0 mtu 9000 up; ip addr add 203.0.113.1/24 dev tap0
             ip neigh replace 203.0.113.2 lladdr 02:00:00:00:09:02 dev tap0 nud permanent",
        );
        Self { from: lab.lan().tap(), lab, to }
    }

    fn shuntd(&self, engine: &str) -> Shuntd {
        Shuntd::on(self.lab.router()).engine(engine).config(NO_PROOF).start()
    }

    /// A packet of a flow with a payload of this size in bytes, which starts with the packet's number.
    fn packet(&self, bytes: usize, number: u32) -> Packet {
        let to: SocketAddr = BEHIND_TAP.parse().unwrap();
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(bytes, number as u8);
        self.lab.lan().udp_to(4000, to).payload(payload).with_id(number as u16)
    }

    /// Receives the next UDP packet that leaves.
    fn next(&self) -> Option<Vec<u8>> {
        let is_udp = |frame: &Vec<u8>| {
            Packet::parse(frame).is_ok_and(|packet| matches!(packet.transport, Transport::Udp(_)))
        };
        std::iter::from_fn(|| self.to.next().unwrap()).find(is_udp)
    }

    /// Sends a packet and returns the frame that leaves.
    #[track_caller]
    fn pass(&self, packet: &Packet) -> Vec<u8> {
        self.from.send(packet);
        let left = wait_for(PATIENCE, || self.next());
        left.unwrap_or_else(|| {
            panic!("a packet with {} bytes of payload does not leave", packet.payload.len())
        })
    }

    /// Sends packets until XDP forwards them.
    #[track_caller]
    fn teach(&self, shuntd: &Shuntd) {
        let fast = wait_for(PATIENCE, || {
            let before = from_lan(&shuntd.status()).xdp;
            self.pass(&self.packet(100, 0));
            (from_lan(&shuntd.status()).xdp > before).then_some(())
        });
        assert!(fast.is_some(), "XDP never forwards it: {:#?}", shuntd.status());
    }
}

fn from_lan(status: &Status) -> PortPackets {
    status.ports.iter().find(|port| port.name == "r0").unwrap().packets
}

fn all(packets: PortPackets) -> u64 {
    packets.all()
}

fn drops(status: &Status, reason: &str) -> u64 {
    status.drops.get(reason).copied().unwrap_or(0)
}

#[test]
fn frames_in_several_buffers_leave_by_tc_if_the_driver_takes_none_by_xdp() {
    if !require_root() {
        return;
    }
    for engine in ["xdp", "auto"] {
        let outlet = Outlet::new();
        let packets: Vec<Packet> =
            (1..=200).map(|n| outlet.packet(if n % 4 == 0 { 100 } else { 5000 }, n)).collect();
        let by_linux: Vec<Vec<u8>> = packets.iter().map(|packet| outlet.pass(packet)).collect();
        let shuntd = outlet.shuntd(engine);
        if engine == "auto" {
            offer_xdp_frames(&outlet.lab, &shuntd, "tap0");
        }
        outlet.pass(&packets[0]);
        outlet.pass(&packets[0]);
        outlet.teach(&shuntd);
        let before = from_lan(&shuntd.status());
        for (packet, left) in packets.iter().zip(&by_linux) {
            assert_eq!(outlet.pass(packet), *left);
        }
        let status = shuntd.status();
        let now = from_lan(&status);
        let counts = (now.xdp - before.xdp, now.tc - before.tc, now.slow - before.slow, now.dropped);
        assert_eq!(counts, (50, 150, 0, 0), "{status:#?}");
        assert_eq!(port_engine(&status, "tap0"), Engine::Xdp);
        shuntd.stop();
    }
}

#[test]
fn packets_that_a_full_ring_drops_count_as_dropped() {
    if !require_root() {
        return;
    }
    let outlet = Outlet::new();
    outlet.lab.router().run("ip link set tap0 txqueuelen 16");
    let shuntd = outlet.shuntd("xdp");
    outlet.teach(&shuntd);
    let before = from_lan(&shuntd.status());
    for n in 0..200 {
        outlet.from.send(&outlet.packet(100, n));
    }
    shuntd.wait_until("all packets are counted", |status| all(from_lan(status)) >= all(before) + 200);
    let status = shuntd.status();
    let now = from_lan(&status);
    let left = std::iter::from_fn(|| outlet.next()).count() as u64;
    assert!((1..200).contains(&left), "{left} left");
    assert_eq!((now.xdp - before.xdp, now.dropped), (left, 200 - left), "{status:#?}");
    assert_eq!(drops(&status, "tx-full"), 200 - left, "{status:#?}");
    assert_eq!(port_engine(&status, "tap0"), Engine::Xdp, "a full ring does not move the port to tc");
    shuntd.stop();
}

#[test]
fn a_port_whose_driver_refuses_frames_goes_back_to_tc_until_its_link_changes() {
    if !require_root() {
        return;
    }
    for engine in ["xdp", "auto"] {
        let outlet = Outlet::new();
        let shuntd = outlet.shuntd(engine);
        if engine == "auto" {
            offer_xdp_frames(&outlet.lab, &shuntd, "tap0");
        }
        outlet.teach(&shuntd);
        let before = from_lan(&shuntd.status());
        outlet.to.set_queue(false).unwrap();
        for n in 0..20 {
            outlet.from.send(&outlet.packet(100, n));
        }
        let why = "its driver refuses redirected frames (No such device or address)";
        shuntd.wait_until("the port uses tc", |status| {
            let port = status.ports.iter().find(|port| port.name == "tap0").unwrap();
            port.engine == Engine::Tc && port.engine_reason == why
        });
        shuntd.wait_until("all packets are counted", |status| all(from_lan(status)) >= all(before) + 20);
        let status = shuntd.status();
        let now = from_lan(&status);
        assert!(now.dropped > 0 && now.xdp == before.xdp, "{status:#?}");
        assert_eq!(drops(&status, "tx-error"), now.dropped, "{status:#?}");
        // The driver does not announce that it accepts frames again; a change of the link makes the daemon try.
        outlet.to.set_queue(true).unwrap();
        while outlet.next().is_some() {}
        let fast = |status: &Status| from_lan(status).tc;
        let by_tc = fast(&shuntd.status());
        (0..20).for_each(|n| drop(outlet.pass(&outlet.packet(100, n))));
        assert!(fast(&shuntd.status()) > by_tc, "{:#?}", shuntd.status());
        outlet.lab.router().run("ip link set tap0 mtu 1500");
        shuntd.wait_until("the port uses XDP", |status| is_sent_by(status, "tap0", Engine::Xdp));
        outlet.teach(&shuntd);
        shuntd.stop();
    }
}
