//! The receiver's counters for single frames.

use shunt_gen::{Course, Schedule, Shape, Traffic};
use shunt_testkit::{NetNs, Tap, require_root, wait_until};
use shunt_traffic::{FrameMaker, Generator, Mix, Mode, Pacing, Receiver, now_ns};
use shunt_wire::{Mac, Packet, Tag, Tcp};
use std::time::Duration;

struct Wire {
    ns: NetNs,
    receiver: Receiver,
    tap: Tap,
}

const LABEL: u8 = 9;

fn wire(flows: u32) -> Wire {
    let ns = NetNs::new("wire");
    ns.run("ip link add w0 mtu 9100 type veth peer name w1 mtu 9100");
    ns.run("ip link set w0 up && ip link set w1 up");
    let mut receiver = ns.within(|| Receiver::attach(ns.ifindex("w1"), flows)).unwrap();
    assert_eq!(receiver.mode(), Mode::Native);
    receiver.expect(LABEL).unwrap();
    let tap = Tap::open(&ns, "w0");
    Wire { ns, receiver, tap }
}

fn shape(sizes: &str) -> Shape {
    Shape::udp("192.0.2.1:1".parse().unwrap(), "192.0.2.2:9".parse().unwrap(), sizes.parse().unwrap())
}

fn traffic(shape: Shape) -> Traffic {
    shape.traffic(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).unwrap()
}

fn unpaced(packets: u64) -> Schedule {
    Schedule { pps: None, burst: 1, packets: Some(packets), duration: None }
}

fn frames(traffic: &Traffic, count: u64, label: u8) -> Vec<Vec<u8>> {
    let mut maker = FrameMaker::new(traffic);
    maker.schedule(&unpaced(count), now_ns(), label);
    (0..count).map(|_| maker.next(now_ns()).unwrap().to_vec()).collect()
}

fn send(wire: &Wire, frames: &[Vec<u8>], order: &[usize]) {
    order.iter().for_each(|n| wire.tap.send_bytes(&frames[*n]));
    wait_until("all packets have arrived", || wire.receiver.packets().unwrap() >= order.len() as u64);
}

#[test]
fn loss_copies_and_order_are_told_apart() {
    if !require_root() {
        return;
    }
    let wire = wire(2);
    let mut shape = shape("64");
    shape.source_ports = "1-2".parse().unwrap();
    // Even frames belong to one flow, odd ones to the other.
    let frames = frames(&traffic(shape), 20, LABEL);
    send(&wire, &frames, &[0, 1, 2, 2, 6, 4, 8, 8, 3, 9, 7, 5, 19]);
    let received = wire.receiver.received().unwrap();
    // Flow 0: 0 1 1 3 2 4 4, where 2 is late by 1. Flow 1: 0 1 4 3 2 9, where 3 and 2 are late by 1 and 2.
    assert_eq!((received.packets, received.duplicated, received.reordered), (13, 2, 3));
    assert_eq!((received.displaced_max, received.flows, received.beyond), (2, 2, 0));
    let arrivals = wire.receiver.arrivals().unwrap();
    assert_eq!(arrivals.iter().map(|arrival| arrival.next).collect::<Vec<_>>(), [5, 10]);
    // The addresses and ports are those of the packets.
    let ports: Vec<_> = arrivals.iter().map(|arrival| (arrival.ends.sport, arrival.ends.dport)).collect();
    assert!(ports[1].0 == ports[0].0 + 1 && ports[1].1 == ports[0].1, "{ports:?}");
    assert_eq!(received.bytes, 13 * 60);
    assert!(received.latency.min_ns > Some(0) && received.latency.max_ns >= received.latency.quantile(0.5));
    let counted: u64 = received.latency.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, 13);
}

/// Frames of one poll share a reading of the clock; the second frame here must not take the time of the first.
#[test]
fn frames_that_come_one_by_one_have_times_of_their_own() {
    if !require_root() {
        return;
    }
    let mut wire = wire(1);
    wire.receiver.share_clock();
    wire.receiver.expect(LABEL + 1).unwrap();
    let frames = frames(&traffic(shape("64")), 3, LABEL + 1);
    let made = now_ns();
    send(&wire, &frames, &[0, 1]);
    let first = wire.receiver.received().unwrap().latency.max_ns;
    std::thread::sleep(Duration::from_millis(5));
    let sent = now_ns();
    wire.tap.send_bytes(&frames[2]);
    wait_until("the last packet has arrived", || wire.receiver.packets().unwrap() == 3);
    let last = wire.receiver.received().unwrap().latency.max_ns;
    assert!(last >= Some(sent - made) && first < last, "{first:?}, {last:?}, {} ns apart", sent - made);
}

#[test]
fn packets_of_other_senders_go_to_the_stack() {
    if !require_root() {
        return;
    }
    let mut wire = wire(1);
    let up = Tap::open(&wire.ns, "w1");
    let ours = frames(&traffic(shape("64")), 1, LABEL);
    let other = Packet::udp_between("192.0.2.1:1".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
    wire.tap.send(&other.frame_bytes(60));
    wire.tap.send_bytes(&ours[0]);
    wait_until("the packet of this run has arrived", || wire.receiver.packets().unwrap() == 1);
    let seen = up.capture_packets(2, Duration::from_millis(200), |p| p.udp().is_some());
    assert_eq!(seen.len(), 1, "{seen:?}");
    // A packet of another run is neither taken nor counted.
    wire.receiver.expect(LABEL + 1).unwrap();
    wire.tap.send_bytes(&ours[0]);
    wait_until("the packet went to the stack", || wire.receiver.received().unwrap().others > 0);
    assert_eq!(wire.receiver.packets().unwrap(), 0);
}

/// Most packets are recognised with few comparisons. What the parser refuses must not be counted.
#[test]
fn packets_that_are_almost_of_the_usual_form_go_to_the_stack() {
    if !require_root() {
        return;
    }
    // Offset and value of a byte: EtherType, version, fragment, protocol, IP length, UDP length; then traffic class,
    // DF and TTL, which make no difference.
    let v4: (&[_], &[_]) = (
        &[(13, 1), (14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (23, 132), (17, 77), (39, 55)],
        &[(15, 0xb8), (20, 0x40), (22, 1)],
    );
    let v6: (&[_], &[_]) =
        (&[(13, 0xde), (14, 0x50), (20, 0), (20, 132), (19, 77), (59, 55)], &[(15, 0x10), (21, 1)]);
    for (v6, (odd, usual)) in [(false, v4), (true, v6)] {
        let wire = wire(1);
        let six = ("[fd00::1]:1".parse().unwrap(), "[fd00::2]:9".parse().unwrap());
        let shape = if v6 { Shape::udp(six.0, six.1, "98".parse().unwrap()) } else { shape("98") };
        let mut sent = frames(&traffic(shape), 4, LABEL);
        let (mut last, third) = (sent.pop().unwrap(), sent.pop().unwrap());
        let with = |(at, byte): &(usize, u8)| {
            let mut frame = third.clone();
            assert_ne!(std::mem::replace(&mut frame[*at], *byte), *byte);
            frame
        };
        sent.extend(odd.iter().chain(usual).map(with));
        last.extend([0; 7]);
        sent.push(last);
        let counted = 3 + usual.len() as u64;
        sent.iter().for_each(|frame| wire.tap.send_bytes(frame));
        wait_until("the last packet has arrived", || wire.receiver.packets().unwrap() >= counted);
        let received = wire.receiver.received().unwrap();
        let copies = usual.len() as u64 - 1;
        assert_eq!((received.packets, received.duplicated), (counted, copies), "IPv6: {v6}");
        assert_eq!((received.bytes, received.reordered), (94 * counted, 0), "IPv6: {v6}");
        assert!(received.others >= odd.len() as u64, "IPv6: {v6}, {}", received.others);
    }
}

#[test]
fn every_form_of_packet_is_counted_by_either_sender() {
    if !require_root() {
        return;
    }
    let (mut wire, mut label) = (wire(3), LABEL);
    let six = ("[fd00::1]:1".parse().unwrap(), "[fd00::2]:9".parse().unwrap());
    for (sizes, tcp, v6, tags) in [
        ("64", None, false, vec![]),
        ("imix", None, false, vec![Tag::vlan(7)]),
        ("98", Some(Tcp::ACK), true, vec![Tag::service(5), Tag::vlan(6)]),
        ("9018", Some(Tcp::ACK), false, vec![]),
    ] {
        let mut shape = if v6 { Shape::udp(six.0, six.1, sizes.parse().unwrap()) } else { shape(sizes) };
        (shape.tcp, shape.tags, shape.source_ports) = (tcp, tags, "1-3".parse().unwrap());
        let name = format!("{} {sizes}", shape.encapsulation());
        let traffic = traffic(shape);
        let bytes: u64 = traffic.frame_bytes().iter().cycle().take(24).map(|bytes| u64::from(*bytes)).sum();
        for live in [false, true] {
            label += 1;
            wire.receiver.expect(label).unwrap();
            if !live {
                send(&wire, &frames(&traffic, 24, label), &(0..24).collect::<Vec<_>>());
            } else if sizes != "9018" {
                wire.ns.within(|| {
                    let generator = Generator::new(&traffic, wire.ns.ifindex("w0")).unwrap();
                    generator.schedule(&unpaced(24), now_ns(), label).unwrap();
                    generator.turn(40).unwrap();
                    assert_eq!(generator.state().unwrap().sent, 24);
                });
                wait_until("all packets have arrived", || wire.receiver.packets().unwrap() >= 24);
            } else {
                continue;
            }
            let received = wire.receiver.received().unwrap();
            let counts = (received.packets, received.duplicated, received.reordered, received.flows);
            assert_eq!((counts, received.bytes), ((24, 0, 0, 3), bytes), "{name}, live: {live}");
        }
    }
}

#[test]
fn streams_that_were_started_long_ago_are_found_by_asking_each_once() {
    if !require_root() {
        return;
    }
    let wire = wire(2);
    let traffic = traffic(shape("64"));
    let course =
        Course { delay: Duration::ZERO, warm_up: Duration::ZERO, ramp: None, pps: Some(0.1), duration: None };
    wire.ns.within(|| {
        let mix = Mix::new(60, 64).unwrap();
        // The last place is asked last.
        let mut last = mix.add(31, &traffic, 0, wire.ns.ifindex("w0")).unwrap();
        let pacing = Pacing { burst: 1, packets: Some(2) };
        last.start(&course.timetable().unwrap(), pacing, now_ns(), LABEL).unwrap();
        assert!(!mix.is_active().unwrap(), "nothing has been sent yet");
        mix.ask_all().unwrap();
        assert!(mix.is_active().unwrap());
        assert_eq!(last.state().unwrap().sent, 1);
    });
    wait_until("the first packet has arrived", || wire.receiver.packets().unwrap() == 1);
}
