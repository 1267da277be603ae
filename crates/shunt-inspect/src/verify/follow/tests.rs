use super::*;
use crate::verify::segment::{Frame, segments};
use shunt_wire::{Checksum, Network, Packet, Tcp, Transport, Udp};
use std::ops::Range;

/// The frame of a packet with this payload.
fn frame(transport: Transport, payload: &[u8], ttl: u8) -> Frame {
    let end = |text: &str| text.parse().unwrap();
    let mut packet =
        Packet::between(end("192.0.2.1"), end("198.51.100.1"), transport).payload(payload.to_vec());
    if let Network::V4(ip) = &mut packet.network {
        ip.ttl = ttl;
    }
    let bytes = packet.to_bytes();
    Frame { total: bytes.len(), l3_at: 14, bytes, ..Frame::default() }
}

/// Packets of the same payload that differ in their IDs.
fn alike(id: u16, ttl: u8, payload: &[u8]) -> Segments {
    let transport = Transport::Udp(Udp { source: 1, destination: 2, checksum: Checksum::Good });
    let packet = Packet::parse(&frame(transport, payload, ttl).bytes).unwrap().with_id(id);
    let bytes = packet.to_bytes();
    segments(&Frame { total: bytes.len(), l3_at: 14, bytes, ..Frame::default() }).unwrap()
}

fn udp(number: u8, ttl: u8) -> Segments {
    let transport = Transport::Udp(Udp { source: 1, destination: 2, checksum: Checksum::Good });
    segments(&frame(transport, &[number; 40], ttl)).unwrap()
}

fn tcp(sequence: u32, acknowledgement: u32, payload: &[u8]) -> Segments {
    let tcp = Tcp {
        source: 1,
        destination: 2,
        sequence,
        acknowledgement,
        flags: Tcp::ACK,
        window: 100,
        urgent: 0,
        options: Vec::new(),
        checksum: Checksum::Good,
    };
    segments(&frame(Transport::Tcp(tcp), payload, 64)).unwrap()
}

/// Packets with these numbers enter, every 10 ns.
fn entered(numbers: impl IntoIterator<Item = u8>) -> Follower {
    let mut follower = Follower::default();
    for number in numbers {
        follower.enter(u64::from(number) * 10, udp(number, 64));
    }
    follower
}

fn leave(follower: &mut Follower, number: u8) {
    leave_by(follower, Way::Fast, number);
}

fn leave_by(follower: &mut Follower, way: Way, number: u8) {
    follower.leave(1000 + u64::from(number), way, udp(number, 63));
}

fn faults(follower: &Follower, way: Way) -> Vec<(Fault, u64)> {
    let tally = follower.tallies.get(&way).cloned().unwrap_or_default();
    tally.faults.into_iter().collect()
}

#[test]
fn packets_that_leave_as_they_should_have_no_fault() {
    let mut follower = entered(0..10);
    (0..10).for_each(|number| leave(&mut follower, number));
    follower.give_up(u64::MAX);
    assert_eq!(follower.tallies[&Way::Fast].packets, 10);
    assert_eq!((faults(&follower, Way::Fast), follower.overtaken, follower.unseen), (vec![], 0, 0));
}

#[test]
fn a_packet_that_does_not_leave_is_lost_on_the_path_of_the_packets_around_it() {
    let mut follower = entered(0..4);
    [0, 2].into_iter().for_each(|number| leave(&mut follower, number));
    follower.give_up(15);
    assert_eq!(faults(&follower, Way::Fast), [(Fault::Lost, 1)]);
    follower.enter(40, udp(4, 64));
    leave_by(&mut follower, Way::Slow, 4);
    follower.give_up(u64::MAX);
    assert_eq!(faults(&follower, Way::Slow), [(Fault::Lost, 1)]);
}

#[test]
fn what_linux_drops_for_a_reason_is_not_lost_by_the_path() {
    let mut follower = entered(0..2);
    follower.drop(None, Some(77), 1);
    leave(&mut follower, 1);
    follower.give_up(u64::MAX);
    assert_eq!(faults(&follower, Way::Fast), []);
    assert_eq!(follower.by_linux, BTreeMap::from([((Way::Fast, 77), 1)]));
}

#[test]
fn a_drop_counts_for_the_path_at_its_time_also_if_it_is_noticed_later() {
    let mut follower = entered(0..8);
    follower.drop(None, Some(77), 1);
    (0..3).for_each(|number| leave_by(&mut follower, Way::Slow, number));
    leave_by(&mut follower, Way::Slow, 4);
    (5..8).for_each(|number| leave(&mut follower, number));
    follower.give_up(u64::MAX);
    assert_eq!(follower.by_linux, BTreeMap::from([((Way::Slow, 77), 1)]));
}

#[test]
fn a_drop_at_the_port_counts_for_the_path_that_was_seen() {
    for by_linux in [Some(77), None] {
        let mut follower = entered(0..8);
        // An aggregate of the fast path, before anything else of it leaves.
        follower.drop(Some(Way::Fast), by_linux, 4);
        [0, 5, 6, 7].into_iter().for_each(|number| leave_by(&mut follower, Way::Slow, number));
        follower.give_up(u64::MAX);
        let dropped = follower.by_linux.get(&(Way::Fast, 77)).copied();
        assert_eq!(dropped, by_linux.map(|_| 4));
        assert_eq!(faults(&follower, Way::Slow), []);
        let lost = if by_linux.is_none() { vec![(Fault::Lost, 4)] } else { Vec::new() };
        assert_eq!(faults(&follower, Way::Fast), lost);
    }
}

#[test]
fn a_segment_that_is_sent_again_after_a_loss_is_not_out_of_order() {
    let mut follower = Follower::default();
    for (at_ns, sequence) in [(0, 0), (10, 40), (20, 80)] {
        follower.enter(at_ns, tcp(sequence, 1, &[sequence as u8; 40]));
    }
    follower.drop(None, Some(77), 1);
    follower.leave(1000, Way::Slow, tcp(40, 1, &[40; 40]));
    follower.leave(1010, Way::Slow, tcp(80, 1, &[80; 40]));
    follower.enter(1020, tcp(0, 1, &[0; 40]));
    follower.leave(1030, Way::Slow, tcp(0, 1, &[0; 40]));
    follower.give_up(u64::MAX);
    assert_eq!((faults(&follower, Way::Slow), follower.overtaken), (vec![], 0));
    assert_eq!(follower.by_linux, BTreeMap::from([((Way::Slow, 77), 1)]));
}

#[test]
fn a_dropped_segment_is_not_late_if_the_observer_missed_that_it_was_sent_again() {
    let mut follower = Follower::default();
    for (at_ns, sequence) in [(0, 0), (10, 40)] {
        follower.enter(at_ns, tcp(sequence, 1, &[sequence as u8; 40]));
    }
    follower.drop(Some(Way::Fast), Some(77), 1);
    follower.leave(1000, Way::Fast, tcp(40, 1, &[40; 40]));
    follower.leave(1030, Way::Fast, tcp(0, 1, &[0; 40]));
    follower.give_up(u64::MAX);
    assert_eq!((faults(&follower, Way::Fast), follower.unseen), (vec![], 1));
    assert_eq!(follower.by_linux, BTreeMap::from([((Way::Fast, 77), 1)]));
}

#[test]
fn a_segment_a_round_trip_late_was_lost_and_sent_again_and_one_right_behind_is_out_of_order() {
    let late = |at_ns| {
        let mut follower = Follower::default();
        for (at_ns, sequence) in [(0, 0), (10, 40), (20, 80)] {
            follower.enter(at_ns, tcp(sequence, 1, &[sequence as u8; 40]));
        }
        follower.leave(30, Way::Fast, tcp(0, 1, &[0; 40]));
        follower.leave(40, Way::Fast, tcp(80, 1, &[80; 40]));
        follower.acknowledge(Acknowledged { number: 40, at_ns: 530 });
        follower.leave(at_ns, Way::Fast, tcp(40, 1, &[40; 40]));
        (faults(&follower, Way::Fast), follower.unseen)
    };
    assert_eq!(late(60), (vec![(Fault::Order, 1)], 0));
    // Neither a program nor Linux told of the loss.
    assert_eq!(late(900), (vec![(Fault::Lost, 1)], 1));
}

#[test]
fn nobody_waits_long_for_what_linux_was_seen_to_drop() {
    let mut follower = entered(0..2);
    assert_eq!(follower.waits(), Waits::Yes);
    follower.drop(None, Some(77), 1);
    assert_eq!(follower.waits(), Waits::Yes);
    leave(&mut follower, 1);
    assert_eq!(follower.waits(), Waits::ForDropped);
    follower.give_up(u64::MAX);
    assert_eq!(follower.waits(), Waits::No);
}

#[test]
fn a_packet_with_a_changed_byte_is_not_lost_but_changed() {
    let mut follower = entered(0..5);
    for number in 0..5 {
        let mut left = udp(number, 63);
        if number == 2 {
            left.whole[0].kept[50] ^= 1;
        }
        follower.leave(1000, Way::Fast, left);
    }
    follower.give_up(u64::MAX);
    assert_eq!(faults(&follower, Way::Fast), [(Fault::Bytes, 1)]);
    assert_eq!(follower.findings[0].entered.kept[50], 2);
    // Before the first packet and behind the last one, another one may have left that was not followed.
    for (changed, others) in [(0, 1..5), (4, 0..4)] {
        let mut follower = entered(0..5);
        let mut left = udp(changed, 63);
        left.whole[0].kept[50] ^= 1;
        let (before, after): (Vec<u8>, Vec<u8>) = others.partition(|number| *number < changed);
        before.into_iter().for_each(|number| leave(&mut follower, number));
        follower.leave(1000 + u64::from(changed), Way::Fast, left);
        after.into_iter().for_each(|number| leave(&mut follower, number));
        follower.give_up(u64::MAX);
        assert_eq!((faults(&follower, Way::Fast), follower.unseen), (vec![], 1));
    }
    // Others with the same payload do not take its place.
    let mut follower = Follower::default();
    for id in 0..5 {
        follower.enter(u64::from(id) * 10, alike(id, 64, &[7; 40]));
    }
    for id in 0..5 {
        let mut payload = [7; 40];
        payload[8] = if id == 2 { 8 } else { 7 };
        follower.leave(1000 + u64::from(id), Way::Fast, alike(id, 63, &payload));
    }
    follower.give_up(u64::MAX);
    assert_eq!(faults(&follower, Way::Fast), [(Fault::Bytes, 1)]);
    // A packet that entered before the observer looked is not a changed one.
    let mut follower = entered(3..5);
    leave(&mut follower, 4);
    let mut other = udp(3, 63);
    other.whole[0].kept[50] ^= 1;
    follower.leave(2000, Way::Fast, other);
    follower.give_up(u64::MAX);
    assert_eq!(faults(&follower, Way::Fast), [(Fault::Lost, 1)]);
}

#[test]
fn a_checksum_that_becomes_wrong_is_a_fault_and_one_that_was_wrong_is_none() {
    for (was_good, expected) in [(true, vec![(Fault::Checksum, 1)]), (false, vec![])] {
        let mut follower = Follower::default();
        let mut segments = udp(1, 64);
        segments.whole[0].is_l4_sum_good = Some(was_good);
        follower.enter(0, segments);
        let mut left = udp(1, 63);
        left.whole[0].is_l4_sum_good = Some(false);
        follower.leave(5, Way::Fast, left);
        assert_eq!(faults(&follower, Way::Fast), expected);
    }
}

#[test]
fn a_packet_behind_a_later_one_is_out_of_order_on_its_own_path_and_overtaken_on_another() {
    let mut follower = entered(0..3);
    [1, 0, 2].into_iter().for_each(|number| leave(&mut follower, number));
    assert_eq!((faults(&follower, Way::Fast), follower.overtaken), (vec![(Fault::Order, 1)], 0));

    let mut follower = entered(0..2);
    leave(&mut follower, 1);
    leave_by(&mut follower, Way::Slow, 0);
    assert_eq!((faults(&follower, Way::Slow), follower.overtaken), (vec![], 1));
}

#[test]
fn segments_that_are_sent_again_are_counted_and_acknowledgements_end_round_trips() {
    let mut follower = Follower::default();
    for (at, sequence) in [(0, 100), (10, 110), (20, 100)] {
        follower.enter(at, tcp(sequence, 1, &[0; 10]));
        follower.leave(at + 1, Way::Slow, tcp(sequence, 1, &[0; 10]));
    }
    let tally = &follower.tallies[&Way::Slow];
    assert_eq!((tally.data, tally.repeated), (3, 1));
    let of_other = Follower::default().leave(500, Way::Fast, tcp(7, 109, &[])).unwrap();
    follower.acknowledge(of_other);
    assert!(follower.tallies[&Way::Slow].round_trip_ns.is_empty());
    follower.acknowledge(Acknowledged { number: 110, at_ns: 600 });
    assert_eq!(follower.tallies[&Way::Slow].round_trip_ns, [600.0]);
}

#[test]
fn packets_on_their_way_when_records_are_lost_are_not_lost() {
    let mut follower = entered(0..4);
    follower.forget(true);
    follower.give_up(u64::MAX);
    assert_eq!((faults(&follower, Way::Fast), follower.unseen), (vec![], 4));
}

/// Packets with these numbers enter before XDP in a period of this path; Linux receives those of `received`.
fn entered_before_xdp(period: Way, numbers: Range<u8>, received: Range<u8>) -> Follower {
    let mut follower = Follower { period: Some(period), ..Follower::default() };
    for number in numbers {
        follower.enter_before_xdp(u64::from(number) * 10, udp(number, 64));
    }
    received.for_each(|number| follower.receive(&udp(number, 64)));
    follower
}

#[test]
fn packets_that_linux_was_not_seen_to_receive_are_missed_in_a_slow_period() {
    let mut follower = entered_before_xdp(Way::Slow, 0..4, 0..2);
    leave_by(&mut follower, Way::Slow, 0);
    follower.give_up(u64::MAX);
    // The second one got to Linux, and did not leave.
    assert_eq!(faults(&follower, Way::Slow), [(Fault::Lost, 1)]);
    assert_eq!((follower.unseen, follower.missed_ns.as_slice()), (2, &[20, 30][..]));
}

#[test]
fn packets_that_vanish_at_xdp_are_lost_only_by_decision() {
    for (are_lost, lost, unseen) in [(true, vec![(Fault::Lost, 2)], 0), (false, vec![], 2)] {
        let mut follower = entered_before_xdp(Way::Fast, 0..3, 0..0);
        leave(&mut follower, 0);
        follower.give_up(u64::MAX);
        assert_eq!(follower.suspects_ns().collect::<Vec<_>>(), [10, 20]);
        assert_eq!(faults(&follower, Way::Fast), []);
        follower.settle(are_lost);
        assert_eq!((faults(&follower, Way::Fast), follower.unseen), (lost, unseen));
    }
}

#[test]
fn tcp_data_that_was_not_sent_again_was_not_lost() {
    let follow = |again: bool| {
        let mut follower = Follower::default();
        for sequence in [100, 110, 120] {
            follower.enter(10, tcp(sequence, 1, &[7; 10]));
        }
        follower.leave(20, Way::Fast, tcp(100, 1, &[7; 10]));
        follower.give_up(u64::MAX);
        if again {
            follower.enter(30, tcp(110, 1, &[7; 10]));
            follower.leave(40, Way::Fast, tcp(110, 1, &[7; 10]));
        }
        follower.excuse_what_was_not_sent_again();
        follower
    };
    let (missed, lost) = (follow(false), follow(true));
    assert_eq!((faults(&missed, Way::Fast), missed.unseen, missed.findings.len()), (vec![], 2, 0));
    assert_eq!((faults(&lost, Way::Fast), lost.unseen, lost.findings.len()), (vec![(Fault::Lost, 2)], 0, 2));
    // Nobody sends a packet without data again.
    let mut udp = entered(0..3);
    leave(&mut udp, 0);
    udp.give_up(u64::MAX);
    udp.excuse_what_was_not_sent_again();
    assert_eq!(faults(&udp, Way::Fast), [(Fault::Lost, 2)]);
}
