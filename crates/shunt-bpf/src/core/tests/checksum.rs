//! L4 checksums of short packets.

use super::*;

/// L4 header and payload of the longest packet that is verified without a helper.
const SHORT: usize = 127;

fn l4_bytes(frame: &Frame) -> usize {
    frame.payload.len() + if frame.udp().is_some() { 8 } else { 20 }
}

#[test]
fn correct_checksums_of_short_packets_are_accepted_and_long_packets_are_not_checked() {
    for frame in plain() {
        for tags in taggings() {
            for bytes in 0..=SHORT {
                let frame = frame.clone().with_tags(&tags).payload((0..bytes as u8).collect::<Vec<_>>());
                let judged = l4_bytes(&frame) <= SHORT;
                let mut bytes = frame.to_bytes();
                let (packet, _) = parse(&bytes, IFINDEX).unwrap();
                assert_eq!(checksum_good(&bytes, &packet), judged.then_some(true), "{frame:?}");
                // Padding is not covered.
                bytes.extend([1, 2, 3]);
                assert_eq!(checksum_good(&bytes, &packet), judged.then_some(true), "{frame:?}");
                bytes.truncate(bytes.len() - 4);
                assert_eq!(checksum_good(&bytes, &packet), None, "cut short: {frame:?}");
            }
        }
    }
}

#[test]
fn flipping_any_covered_bit_makes_the_checksum_wrong() {
    for frame in plain() {
        let whole = frame.to_bytes();
        let (packet, _) = parse(&whole, IFINDEX).unwrap();
        let l4_at = whole.len() - l4_bytes(&frame);
        let addresses = if frame.ipv4().is_some() { l4_at - 8..l4_at } else { l4_at - 32..l4_at };
        for at in addresses.start..whole.len() {
            for bit in 0..8 {
                let mut frame = whole.clone();
                frame[at] ^= 1 << bit;
                assert_eq!(checksum_good(&frame, &packet), Some(false), "{at} {bit}");
            }
        }
    }
}

#[test]
fn a_udp_checksum_of_ffff_is_correct_for_a_sum_of_zero() {
    let frame = plain()[0].clone();
    let found = (0..=u16::MAX).map(|n| frame.clone().payload(n.to_be_bytes())).find(|frame| {
        let bytes = frame.to_bytes();
        bytes[bytes.len() - 4..bytes.len() - 2] == [0xff, 0xff]
    });
    let bytes = found.unwrap().to_bytes();
    let (packet, _) = parse(&bytes, IFINDEX).unwrap();
    assert_eq!(checksum_good(&bytes, &packet), Some(true));
}
