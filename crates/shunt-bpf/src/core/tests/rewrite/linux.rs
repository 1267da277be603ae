//! Linux's forwarding in Rust, after include/net/checksum.h, net/core/utils.c and net/netfilter/nf_nat_proto.c. The
//! steps are the same as in the kernel, so that the result has the same representation of zero.

use super::pairs::Pair;
use super::*;

/// `csum_add`.
fn add(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u32::from(carry)
}

/// `csum_fold`.
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// `csum_replace4`, for each word of old and new.
fn replace(check: u16, old: &[u8], new: &[u8]) -> u16 {
    words(old).zip(words(new)).fold(check, |check, (from, to)| fold(add(add(!u32::from(check), !from), to)))
}

/// `inet_proto_csum_replace4` of an skb with CHECKSUM_PARTIAL, for each word.
fn replace_partial(check: u16, old: &[u8], new: &[u8]) -> u16 {
    words(old).zip(words(new)).fold(check, |check, (from, to)| !fold(add(add(u32::from(check), !from), to)))
}

/// 32-bit words in memory order. A remainder of two bytes is zero-extended.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(4).map(|chunk| match *chunk {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        _ => panic!("addresses and ports have even lengths"),
    })
}

/// `ip_decrease_ttl`.
fn decrease_ttl(header: &mut [u8]) {
    let mut check = u32::from(u16::from_ne_bytes([header[10], header[11]])) + u32::from(0x0100u16.to_be());
    check += u32::from(check >= 0xffff);
    header[10..12].copy_from_slice(&(check as u16).to_ne_bytes());
    header[8] -= 1;
}

/// Offsets in an L3 packet without options or extension headers.
struct Layout {
    l4: usize,
    check: usize,
    addresses: [std::ops::Range<usize>; 2],
}

fn places(l3: &[u8]) -> Layout {
    let v4 = l3[0] >> 4 == 4;
    let (l4, tcp) = if v4 { (20, l3[9] == 6) } else { (40, l3[6] == 6) };
    Layout {
        l4,
        check: l4 + if tcp { 16 } else { 6 },
        addresses: if v4 { [12..16, 16..20] } else { [8..24, 24..40] },
    }
}

fn l3_at(frame: &[u8]) -> usize {
    let mut at = 12;
    while [[0x81, 0x00], [0x88, 0xa8]].contains(&[frame[at], frame[at + 1]]) {
        at += 4;
    }
    at + 2
}

/// Offset of the L4 checksum in a frame.
pub(super) fn l4_checksum_at(frame: &[u8]) -> usize {
    l3_at(frame) + places(&frame[l3_at(frame)..]).check
}

/// `nf_nat_ipv4_manip_pkt` and its like: one end of the packet becomes that of `new`.
fn manipulate(l3: &mut [u8], new: &[u8], end: usize, partial: bool) {
    let Layout { l4, check, addresses } = places(l3);
    let address = addresses[end].clone();
    let port = l4 + 2 * end..l4 + 2 * end + 2;
    let udp = check == l4 + 6;
    let read = |l3: &[u8], at: usize| u16::from_ne_bytes([l3[at], l3[at + 1]]);
    if l3[0] >> 4 == 4 {
        let sum = replace(read(l3, 10), &l3[address.clone()], &new[address.clone()]);
        l3[10..12].copy_from_slice(&sum.to_ne_bytes());
    }
    let mut sum = read(l3, check);
    if !udp || sum != 0 || partial {
        if partial {
            sum = replace_partial(sum, &l3[address.clone()], &new[address.clone()]);
        } else {
            sum = replace(sum, &l3[address.clone()], &new[address.clone()]);
            sum = replace(sum, &l3[port.clone()], &new[port.clone()]);
        }
        if udp && sum == 0 {
            sum = 0xffff;
        }
        l3[check..check + 2].copy_from_slice(&sum.to_ne_bytes());
    }
    l3[address.clone()].copy_from_slice(&new[address]);
    l3[port.clone()].copy_from_slice(&new[port]);
}

/// The frame as Linux would forward it: destination NAT, one hop unless it is bridged, source NAT, a new L2 header.
pub(super) fn forwarded(frame: &[u8], pair: &Pair, partial: bool) -> Vec<u8> {
    let model = pair.after.to_bytes();
    let (head, new) = model.split_at(l3_at(&model));
    let mut l3 = frame[l3_at(frame)..].to_vec();
    if pair.before.destination() != pair.after.destination() {
        manipulate(&mut l3, new, 1, partial);
    }
    if pair.hops() > 0 && l3[0] >> 4 == 4 {
        decrease_ttl(&mut l3);
    } else {
        l3[7] -= pair.hops();
    }
    if pair.before.source() != pair.after.source() {
        manipulate(&mut l3, new, 0, partial);
    }
    [head, &l3].concat()
}

/// The packet with an unfinished checksum: the sum of the pseudo header, as with CHECKSUM_PARTIAL.
pub(super) fn unfinished(packet: &Frame) -> Frame {
    let frame = packet.to_bytes();
    let l3 = &frame[l3_at(&frame)..];
    let Layout { l4, addresses, .. } = places(l3);
    let sum = Sum::new()
        .bytes(&l3[addresses[0].start..addresses[1].end])
        .word((l3.len() - l4) as u16)
        .word(packet.protocol().unwrap_or_default().into());
    packet.clone().with_l4_checksum(Checksum::Value(sum.folded()))
}
