//! Runs every parser of kernel data on arbitrary bytes, for `fuzz/fuzz_targets/netlink.rs` and the test below.

use crate::{
    conntrack::{self, parse_addresses},
    ethtool, legacy_iptables, netdev,
    netlink_message::{Attrs, Messages, errno},
    netlink_subscription, nftables, packet_sockets, rtnetlink,
};

/// Parses bytes as a datagram of each netlink protocol, as a table of legacy iptables, and as /proc/net/packet. Must
/// return, and must not panic.
pub fn parse(bytes: &[u8]) {
    for message in Messages(bytes).map_while(Result::ok) {
        let _ = (
            rtnetlink::event(&message),
            netdev::event(&message),
            ethtool::parse(&message),
            netlink_subscription::ruleset_event(&message),
        );
        let _ = (
            errno(message.payload),
            packet_sockets::captured(message.payload),
            conntrack::table::parse(message.payload),
        );
        let _ = parse_addresses(Attrs::after(message.payload, 4));
    }
    let _ = nftables::parse(Messages(bytes).map_while(Result::ok));
    legacy_iptables::parse(bytes);
    String::from_utf8_lossy(bytes).lines().for_each(|line| {
        let _ = packet_sockets::captured_by_proc_line(line);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::Batch;
    use fastrand::Rng;
    use std::env;

    /// The number of messages, unless SHUNT_FUZZ_MESSAGES gives another.
    const MESSAGES: u64 = 10_000;
    const SEED: u64 = 1;
    /// Ranges of message kinds: rtnetlink from 16, nftables from 0x0a00, conntrack from 0x0100, generic netlink any.
    const KINDS: [(u16, u16); 4] = [(16, 130), (0x0a00, 0x0a20), (0x0100, 0x0104), (0, 40)];

    /// Adds attributes as the kernel uses them: numbers, addresses, text, and nested attributes.
    fn put_attributes(batch: &mut Batch, random: &mut Rng, depth: u32) {
        for _ in 0..random.u8(..8) {
            let kind = random.u16(..64);
            match random.u8(..6) {
                0 | 1 if depth < 6 => batch.nest(kind, |batch| put_attributes(batch, random, depth + 1)),
                2 => batch.put(kind, &random.u32(..).to_be_bytes()),
                3 => batch.put(
                    kind,
                    [&b"drop\0"[..], b"queue\0", b"bridge\0", b"vlan\0", b"\xff"][random.usize(..5)],
                ),
                _ => {
                    let value: Vec<u8> = (0..random.usize(..24)).map(|_| random.u8(..)).collect();
                    batch.put(kind, &value);
                }
            }
        }
    }

    fn datagram(random: &mut Rng) -> Vec<u8> {
        let mut batch = Batch::default();
        for _ in 0..random.u8(1..4) {
            let (first, end) = KINDS[random.usize(..KINDS.len())];
            let fixed: Vec<u8> = (0..random.usize(..24)).map(|_| random.u8(..16)).collect();
            batch.message(random.u16(first..end), 0, 0, &fixed);
            put_attributes(&mut batch, random, 0);
        }
        batch.bytes().to_vec()
    }

    /// A table of iptables with a few entries of valid sizes.
    fn table(random: &mut Rng) -> Vec<u8> {
        let v6 = random.bool();
        let (offsets, start) = if v6 { (140, 168) } else { (88, 112) };
        let mut bytes = vec![u8::from(v6)];
        let info = (0..legacy_iptables::INFO_BYTES).map(|_| if random.bool() { 0 } else { random.u8(..) });
        bytes.extend(info.collect::<Vec<u8>>());
        for _ in 0..random.u8(..6) {
            let (matches, target) = (random.usize(..3) * 40, 32 + random.usize(..3) * 8);
            let mut entry = vec![0; start + matches + target];
            random.fill(&mut entry[start..]);
            for (at, length) in
                [(start, matches), (start + matches, target)].into_iter().filter(|(_, length)| *length > 0)
            {
                entry[at..at + 2].copy_from_slice(&(length.min(40) as u16).to_ne_bytes());
            }
            entry[offsets..offsets + 2].copy_from_slice(&((start + matches) as u16).to_ne_bytes());
            let next = entry.len() as u16;
            entry[offsets + 2..offsets + 4].copy_from_slice(&next.to_ne_bytes());
            bytes.extend(entry);
        }
        bytes
    }

    fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
        for _ in 0..random.u8(..6) {
            if bytes.is_empty() {
                return;
            }
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = [0, 1, 3, 4, 0x7f, 0x80, 0xff][random.usize(..7)],
                2 => bytes[at] ^= 1 << random.u8(..8),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
    }

    #[test]
    fn no_message_and_no_table_makes_a_parser_panic() {
        let messages =
            env::var("SHUNT_FUZZ_MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(MESSAGES);
        let mut random = Rng::with_seed(SEED);
        for number in 0..messages {
            let mut bytes = if number % 4 == 0 { table(&mut random) } else { datagram(&mut random) };
            if number % 3 > 0 {
                mutate(&mut bytes, &mut random);
            }
            let kept = bytes.clone();
            let ended = std::panic::catch_unwind(|| parse(&bytes));
            assert!(ended.is_ok(), "message {number} of seed {SEED}: {kept:02x?}");
        }
    }
}
