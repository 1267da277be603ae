//! Data of the kernel.

/// Bytes as netlink messages, as a table of legacy iptables, and as /proc/net/packet: no parser panics.
pub fn netlink(bytes: &[u8]) -> bool {
    shunt_kernel::fuzz::parse(bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{accepted, mutate};
    use fastrand::Rng;
    use shunt_kernel::fuzz::{Batch, INFO_BYTES};

    const MESSAGES: u64 = 10_000;
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
        let info = (0..INFO_BYTES).map(|_| if random.bool() { 0 } else { random.u8(..) });
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

    #[test]
    fn no_message_and_no_table_makes_a_parser_panic() {
        let mut number = 0_u64;
        accepted(MESSAGES, netlink, |random| {
            let mut bytes = if number.is_multiple_of(4) { table(random) } else { datagram(random) };
            if !number.is_multiple_of(3) {
                mutate(&mut bytes, random);
            }
            number += 1;
            bytes
        });
    }
}
