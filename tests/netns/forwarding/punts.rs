//! Packets that no action can carry go to Linux unchanged, each counted under its reason.

use crate::daemon;
use shunt_api::Status;
use shunt_testkit::{
    ALL_ENGINES, Crossing, ENGINES, Shuntd, Topology, punts, require_root, rulesets, silent_router, wait_for,
};
use shunt_wire::{Checksum, Extension, Mac, Network, Packet, Transport};
use std::time::{Duration, Instant};

/// Numbers of fast packets and of packets punted for this reason.
fn fast_and(status: &Status, why: &str) -> (u64, u64) {
    (status.packets.fast, punts(status, why))
}

/// A router with one fast flow, and a packet of that flow.
struct Bed {
    lab: Topology,
    shuntd: Shuntd,
    there: Crossing,
    packet: Packet,
}

impl Bed {
    #[track_caller]
    fn new(engine: shunt_api::Engine, v6: bool) -> Self {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        lab.router().nft("add rule inet filter forward meta l4proto { icmp, ipv6-icmp } accept");
        let shuntd = daemon(&lab, engine);
        let there = Crossing::between(lab.lan(), lab.wan());
        let to = if v6 { lab.wan().at6(5000) } else { lab.wan().at(5000) };
        let packet = lab.lan().udp_to(4000, to).payload("a packet of the flow");
        there.teach(&shuntd, &packet);
        Self { lab, shuntd, there, packet }
    }

    /// Sends a frame and waits until it is counted as punted for this reason and no other. On a busy machine, the
    /// daemon may end the flow just before, for a change at the start of the test; then the flow is learned again.
    #[track_caller]
    fn goes_to_linux(&self, frame: &[u8], why: &str) {
        for _ in 0..3 {
            let (fast, before) = fast_and(&self.shuntd.status(), why);
            self.there.from.send_bytes(frame);
            let counted = |status: &Status| punts(status, why) > before;
            if let Some(status) =
                wait_for(Duration::from_secs(3), || Some(self.shuntd.status()).filter(counted))
            {
                assert_eq!(fast_and(&status, why), (fast, before + 1));
                return;
            }
            self.there.teach(&self.shuntd, &self.packet);
        }
        panic!("no packet was punted as {why}: {:#?}", self.shuntd.status());
    }

    /// Asserts that the flow is still fast.
    #[track_caller]
    fn demand_still_fast(self) {
        let before = self.shuntd.status().packets.fast;
        self.there.pass(&self.packet);
        // The external engine counts a little later.
        let status = self.shuntd.wait_until("the packet is fast", |status| status.packets.fast > before);
        assert_eq!(status.packets.fast, before + 1);
        self.shuntd.stop();
    }
}

#[track_caller]
fn each_engine(test: impl Fn(Bed)) {
    if !require_root() {
        return;
    }
    ALL_ENGINES.into_iter().for_each(|engine| test(Bed::new(engine, false)));
}

#[track_caller]
fn each_engine_v6(test: impl Fn(Bed)) {
    if !require_root() {
        return;
    }
    ALL_ENGINES.into_iter().for_each(|engine| test(Bed::new(engine, true)));
}

#[test]
fn the_last_hop_is_linux_which_answers_with_icmp() {
    let test = |bed: Bed| {
        bed.goes_to_linux(&bed.packet.clone().with_hop_limit(1).to_bytes(), "ttl");
        let exceeded = |seen: &Packet| {
            let kind = if seen.ipv4().is_some() { 11 } else { 3 };
            matches!(seen.transport, Transport::Other(1 | 58)) && seen.payload.first() == Some(&kind)
        };
        let answer = bed.there.from.capture_packet(Duration::from_secs(5), exceeded);
        assert_eq!(answer.unwrap().ethernet.source, bed.lab.lan().gateway_mac);
        bed.demand_still_fast();
    };
    each_engine(test);
    each_engine_v6(test);
}

#[test]
fn ip_options_go_to_linux() {
    each_engine(|bed| {
        let mut packet = bed.packet.clone();
        if let Network::V4(ip) = &mut packet.network {
            ip.options = vec![1, 1, 1, 0];
        }
        bed.goes_to_linux(&packet.to_bytes(), "options");
        bed.demand_still_fast();
    });
}

#[test]
fn extension_headers_go_to_linux() {
    each_engine_v6(|bed| {
        let mut packet = bed.packet.clone();
        if let Network::V6(ip) = &mut packet.network {
            // Destination options: four bytes of padding.
            ip.extensions = vec![Extension { kind: 60, body: vec![0, 1, 4, 0, 0, 0, 0] }];
        }
        bed.goes_to_linux(&packet.to_bytes(), "options");
        bed.demand_still_fast();
    });
}

#[test]
fn fragments_go_to_linux_and_leave_as_they_came() {
    each_engine(|bed| {
        let whole = bed.packet.clone().payload([7; 1200]).with_id(99).to_bytes();
        let l4 = whole[34..].to_vec();
        let fragment = |from: usize, to: usize, more: bool| {
            let mut packet = bed.packet.clone().with_id(99).payload(&l4[from..to]);
            packet.transport = Transport::Other(17);
            if let Network::V4(ip) = &mut packet.network {
                (ip.fragment_offset, ip.more_fragments) = (from as u16 / 8, more);
            }
            packet.to_bytes()
        };
        let fast = bed.shuntd.status().packets.fast;
        bed.there.from.send_bytes(&fragment(0, 800, true));
        let is_part = |seen: &Packet| seen.ipv4().is_some_and(|ip| ip.id == 99);
        let left = bed.there.all_that_leave_for(&fragment(800, l4.len(), false), is_part);
        // Conntrack reassembles the fragments; they leave as they came, translated.
        let parts: Vec<_> = left.iter().filter_map(|f| Some(f.packet()?.ipv4()?.fragment_offset)).collect();
        assert_eq!(parts, [0, 100]);
        let status = bed.shuntd.status();
        assert_eq!(fast_and(&status, "fragment"), (fast, 2));
        bed.demand_still_fast();
    });
}

#[test]
fn a_bad_header_checksum_goes_to_linux_which_drops_it() {
    each_engine(|bed| {
        let bad = bed.packet.clone().with_header_checksum(Checksum::Value(0x1234)).payload("bad");
        bed.goes_to_linux(&bad.to_bytes(), "bad-header");
        assert_eq!(bed.there.all_that_leave(&bad), []);
        bed.demand_still_fast();
    });
}

#[test]
fn lengths_that_contradict_each_other_go_to_linux() {
    each_engine(|bed| {
        let mut udp = bed.packet.to_bytes();
        udp[39] -= 1;
        bed.goes_to_linux(&udp, "bad-header");
        let short = bed.packet.to_bytes();
        bed.goes_to_linux(&short[..short.len() - 4], "bad-header");
        bed.demand_still_fast();
    });
}

#[test]
fn a_packet_to_another_mac_is_not_part_of_the_flow() {
    each_engine(|bed| {
        let other = bed.packet.clone().macs(bed.lab.lan().mac, Mac([2, 0, 0, 0, 9, 9]));
        bed.goes_to_linux(&other.to_bytes(), "not-ours");
        let group = bed.packet.clone().macs(bed.lab.lan().mac, Mac([1, 0, 0x5e, 0, 0, 9]));
        bed.goes_to_linux(&group.to_bytes(), "not-ours");
        bed.demand_still_fast();
    });
}

#[test]
fn packets_that_are_neither_tcp_nor_udp_go_to_linux() {
    each_engine(|bed| {
        let mut gre = bed.packet.clone();
        gre.transport = Transport::Other(47);
        bed.goes_to_linux(&gre.to_bytes(), "protocol");
        let hello = Packet::other(0x88b5, [0; 46]).macs(bed.lab.lan().mac, bed.lab.lan().gateway_mac);
        bed.goes_to_linux(&hello.to_bytes(), "protocol");
        bed.demand_still_fast();
    });
}

/// Linux translates a host's ICMP error about a packet of the flow while the flow is fast.
#[test]
fn an_icmp_error_about_a_fast_flow_is_translated_back() {
    each_engine(|bed| {
        let seen = bed.there.pass(&bed.packet);
        // Port unreachable: type 3, code 3, then the packet that it is about.
        let mut error = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &seen.bytes[14..]].concat();
        let sum = !shunt_wire::ones_complement_sum(&error);
        error[2..4].copy_from_slice(&sum.to_be_bytes());
        let wan = bed.lab.wan();
        let icmp = Packet::between(wan.v4.into(), wan.gateway_v4.into(), Transport::Other(1));
        wan.tap().send(&icmp.macs(wan.mac, wan.gateway_mac).payload(error));
        let is_error = |seen: &Packet| seen.payload.starts_with(&[3, 3]);
        let back = bed.there.from.capture_packet(Duration::from_secs(5), is_error).unwrap();
        // The error is about the packet as the LAN host sent it, except for the TTL and the header checksum.
        let (sent, quoted) = (bed.packet.to_bytes(), &back.payload[8..]);
        assert_eq!(back.ipv4().unwrap().destination, bed.lab.lan().v4);
        assert_eq!(quoted[12..], sent[26..]);
        bed.demand_still_fast();
    });
}

/// Shunt must see Linux forward one packet of a size before packets of that size are fast.
#[test]
fn a_packet_larger_than_any_before_goes_to_linux_once() {
    each_engine(|bed| {
        let max = || bed.shuntd.flows()[0].directions[0].max_l3_bytes;
        assert_eq!(max(), 48);
        for bytes in [21, 600, 1472] {
            let large = bed.packet.clone().payload(vec![1; bytes]);
            let before = fast_and(&bed.shuntd.status(), "mtu");
            bed.there.pass(&large);
            assert_eq!(fast_and(&bed.shuntd.status(), "mtu"), (before.0, before.1 + 1));
            assert_eq!(max(), bytes as u32 + 28);
            bed.there.pass(&large);
            assert_eq!(fast_and(&bed.shuntd.status(), "mtu"), (before.0 + 1, before.1 + 1));
        }
        bed.demand_still_fast();
    });
}

/// Linux answers packets that it would have to fragment.
#[test]
fn linux_answers_a_packet_larger_than_the_egress_mtu() {
    each_engine(|bed| {
        bed.lab.router().run("ip link set r1 mtu 1000");
        bed.shuntd.wait_until("the daemon knows the MTU", |s| s.ports.iter().any(|port| port.mtu == 1000));
        bed.there.teach(&bed.shuntd, &bed.packet);
        let mut large = bed.packet.clone().payload([1; 1200]);
        if let Network::V4(ip) = &mut large.network {
            ip.dont_fragment = true;
        }
        for _ in 0..3 {
            bed.goes_to_linux(&large.to_bytes(), "mtu");
            let is_needed = |seen: &Packet| seen.payload.starts_with(&[3, 4]);
            assert!(bed.there.from.capture_packet(Duration::from_secs(5), is_needed).is_some());
        }
        bed.demand_still_fast();
    });
}

/// The kernel does not announce a change of this sysctl, so the next proof of the larger size must find it. Small
/// packets of the same flow must not count as that proof.
#[test]
fn an_ipv6_mtu_lowered_by_sysctl_stops_large_packets_only() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd =
            Shuntd::on(lab.router()).engine(&engine.to_string()).config("reprove = \"500ms\"").start();
        let there = Crossing::between(lab.lan(), lab.wan());
        let packet = lab.lan().udp_to(4000, lab.wan().at6(5000));
        let (small, large) = (packet.clone().payload([1; 52]), packet.payload([2; 1352]));
        let alternate = || [&large, &small].map(|packet| there.all_that_leave(packet).len());
        there.teach(&shuntd, &large);
        assert_eq!(alternate(), [1, 1]);

        lab.router().run("sysctl -qw net.ipv6.conf.r1.mtu=1280");
        // The packet that proves is dropped; packets behind it may still leave during the time that a proof may take.
        let changed = Instant::now();
        let mut last_left = changed;
        while last_left.elapsed() < Duration::from_secs(1) {
            if alternate()[0] > 0 {
                last_left = Instant::now();
            }
            assert!(changed.elapsed() < Duration::from_secs(5), "{engine}: {:#?}", shuntd.flows());
        }
        // Long enough for several proofs by small packets.
        let (before, since) = (shuntd.status().packets.fast, Instant::now());
        while since.elapsed() < Duration::from_secs(2) {
            assert_eq!(alternate(), [0, 1], "{engine}");
            assert_eq!(
                there.from.capture_packet(Duration::from_secs(5), is_packet_too_big).map(|_| ()),
                Some(())
            );
        }
        assert!(shuntd.status().packets.fast > before, "{:#?}", shuntd.flows());
        lab.router().run("sysctl -qw net.ipv6.conf.r1.mtu=1500");
        there.teach(&shuntd, &large);
        shuntd.stop();
    }
}

fn is_packet_too_big(seen: &Packet) -> bool {
    seen.ipv6().is_some() && seen.protocol() == Some(58) && seen.payload.first() == Some(&2)
}

#[test]
fn every_packet_that_comes_in_is_counted_once() {
    each_engine(|bed| {
        let received = |port: &str| -> u64 {
            bed.lab
                .router()
                .run(&format!("cat /sys/class/net/{port}/statistics/rx_packets"))
                .trim()
                .parse()
                .unwrap()
        };
        let counted = |port: &str| {
            let status = bed.shuntd.status();
            let port = status.ports.iter().find(|p| p.name == port).unwrap().packets;
            port.xdp + port.tc + port.external + port.slow + port.dropped
        };
        let start = ["r0", "r1"].map(|port| (received(port), counted(port)));
        for n in 0..100 {
            bed.there.pass(&bed.packet.clone().with_id(n));
            bed.there.pass(&bed.packet.clone().payload(vec![1; 100 + usize::from(n)]));
            bed.there.from.send(&bed.packet.clone().with_header_checksum(Checksum::Value(1)));
            bed.there.from.send(&bed.packet.clone().with_hop_limit(1));
            bed.there
                .from
                .send(&Packet::other(0x88b5, [0; 46]).macs(bed.lab.lan().mac, bed.lab.lan().gateway_mac));
        }
        for (port, sent, (received_before, counted_before)) in [("r0", 500, start[0]), ("r1", 0, start[1])] {
            shunt_testkit::wait_until(&format!("all packets of {port} are counted"), || {
                let received = received(port) - received_before;
                received >= sent && received == counted(port) - counted_before
            });
        }
        bed.demand_still_fast();
    });
}
