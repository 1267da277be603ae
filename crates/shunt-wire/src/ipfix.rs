//! Flow records as IPFIX (RFC 7011), for collectors and files (RFC 5655). Only written, not read.

use std::net::IpAddr;

/// A flow record: one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRecord {
    /// Addresses and ports of arriving packets; all addresses of a record are of one IP version.
    pub source: (IpAddr, u16),
    /// The destination of arriving packets.
    pub destination: (IpAddr, u16),
    /// The source of leaving packets.
    pub new_source: (IpAddr, u16),
    /// The destination of leaving packets.
    pub new_destination: (IpAddr, u16),
    /// The IP protocol number.
    pub protocol: u8,
    /// Whether this is the direction of the replies.
    pub reply: bool,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far, from the L3 header on.
    pub bytes: u64,
    /// When the flow began, in milliseconds since 1970.
    pub start_ms: u64,
    /// When its last packet came, in milliseconds since 1970.
    pub end_ms: u64,
}

/// Information elements of the IANA registry: their number for IPv4, for IPv6, and their bytes for both. In the order
/// of a record.
const ELEMENTS: [(u16, u16, u16, u16); 14] = [
    (8, 27, 4, 16),    // sourceIPv4Address, sourceIPv6Address
    (12, 28, 4, 16),   // destinationIPv4Address, destinationIPv6Address
    (225, 281, 4, 16), // postNATSourceIPv4Address, postNATSourceIPv6Address
    (226, 282, 4, 16), // postNATDestinationIPv4Address, postNATDestinationIPv6Address
    (7, 7, 2, 2),      // sourceTransportPort
    (11, 11, 2, 2),    // destinationTransportPort
    (227, 227, 2, 2),  // postNAPTSourceTransportPort
    (228, 228, 2, 2),  // postNAPTDestinationTransportPort
    (4, 4, 1, 1),      // protocolIdentifier
    (61, 61, 1, 1),    // flowDirection
    (86, 86, 8, 8),    // packetTotalCount
    (85, 85, 8, 8),    // octetTotalCount
    (152, 152, 8, 8),  // flowStartMilliseconds
    (153, 153, 8, 8),  // flowEndMilliseconds
];
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
/// The templates of IPv4 and IPv6 records.
const TEMPLATES: [u16; 2] = [256, 257];
const HEADER_BYTES: usize = 16;
/// A message fits into a datagram on an Ethernet with tunnels.
const MESSAGE_MAX_BYTES: usize = 1400;

/// Writes messages with increasing sequence numbers.
#[derive(Debug, Default)]
pub struct Exporter {
    /// Records so far.
    sequence: u32,
    /// Tells exporters on one machine apart.
    domain: u32,
}

impl Exporter {
    /// An exporter with this observation domain.
    pub fn new(domain: u32) -> Self {
        Self { sequence: 0, domain }
    }

    /// The messages of these records. Each begins with the templates, since datagrams may be lost and collectors may
    /// start later. `time_s` is the time in seconds since 1970.
    pub fn messages(&mut self, records: &[FlowRecord], time_s: u32) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for (at, v6) in [false, true].into_iter().enumerate() {
            let of_version: Vec<&FlowRecord> =
                records.iter().filter(|record| record.source.0.is_ipv6() == v6).collect();
            let room = MESSAGE_MAX_BYTES - HEADER_BYTES - templates().len() - 4;
            for part in of_version.chunks(room / record_bytes(v6)) {
                let mut body = templates();
                let bytes: Vec<u8> = part.iter().flat_map(|record| encoded(record)).collect();
                body.extend(set(TEMPLATES[at], &bytes));
                messages.push(self.message(&body, time_s));
                self.sequence = self.sequence.wrapping_add(part.len() as u32);
            }
        }
        messages
    }

    fn message(&self, body: &[u8], time_s: u32) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend(VERSION.to_be_bytes());
        message.extend(((HEADER_BYTES + body.len()) as u16).to_be_bytes());
        [time_s, self.sequence, self.domain].iter().for_each(|word| message.extend(word.to_be_bytes()));
        message.extend(body);
        message
    }
}

fn record_bytes(v6: bool) -> usize {
    ELEMENTS.iter().map(|(.., v4_bytes, v6_bytes)| usize::from(if v6 { *v6_bytes } else { *v4_bytes })).sum()
}

fn templates() -> Vec<u8> {
    let template = |(at, id): (usize, &u16)| {
        let mut bytes = [id.to_be_bytes(), (ELEMENTS.len() as u16).to_be_bytes()].concat();
        for (v4, v6, v4_bytes, v6_bytes) in ELEMENTS {
            let (element, length) = if at == 0 { (v4, v4_bytes) } else { (v6, v6_bytes) };
            bytes.extend([element.to_be_bytes(), length.to_be_bytes()].concat());
        }
        bytes
    };
    set(TEMPLATE_SET, &TEMPLATES.iter().enumerate().flat_map(template).collect::<Vec<_>>())
}

fn set(id: u16, content: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &((content.len() + 4) as u16).to_be_bytes(), content].concat()
}

fn encoded(record: &FlowRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ends = [record.source, record.destination, record.new_source, record.new_destination];
    for (address, _) in ends {
        match address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    ends.iter().for_each(|(_, port)| bytes.extend(port.to_be_bytes()));
    bytes.extend([record.protocol, u8::from(record.reply)]);
    for number in [record.packets, record.bytes, record.start_ms, record.end_ms] {
        bytes.extend(number.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn record(v6: bool, port: u16) -> FlowRecord {
        let address =
            |v4: &str, v6_address: &str| if v6 { v6_address } else { v4 }.parse::<IpAddr>().unwrap();
        FlowRecord {
            source: (address("192.168.1.2", "2001:db8::2"), port),
            destination: (address("198.51.100.7", "2001:db8::7"), 443),
            new_source: (address("203.0.113.1", "2001:db8::1"), 40_001),
            new_destination: (address("198.51.100.7", "2001:db8::7"), 443),
            protocol: 6,
            reply: true,
            packets: 1001,
            bytes: 1_002_003,
            start_ms: 1_700_000_000_000,
            end_ms: 1_700_000_005_000,
        }
    }

    /// A collector: reads messages by the templates in them, and returns the values of each record by element.
    #[derive(Default)]
    struct Collector {
        templates: BTreeMap<u16, Vec<(u16, usize)>>,
        records: Vec<BTreeMap<u16, Vec<u8>>>,
    }

    impl Collector {
        fn read(&mut self, message: &[u8]) {
            let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            assert_eq!((word(0), usize::from(word(2))), (10, message.len()));
            assert_eq!(usize::from(word(10)), self.records.len(), "the sequence counts records");
            let mut at = 16;
            while at < message.len() {
                let (id, end) = (word(at), at + usize::from(word(at + 2)));
                at += 4;
                while at < end {
                    if id == 2 {
                        let (template, count) = (word(at), usize::from(word(at + 2)));
                        let field = |n: usize| (word(at + 4 + 4 * n), usize::from(word(at + 6 + 4 * n)));
                        self.templates.insert(template, (0..count).map(field).collect());
                        at += 4 + 4 * count;
                        continue;
                    }
                    let mut values = BTreeMap::new();
                    for (element, length) in &self.templates[&id] {
                        values.insert(*element, message[at..at + length].to_vec());
                        at += length;
                    }
                    self.records.push(values);
                }
                assert_eq!(at, end);
            }
        }
    }

    #[test]
    fn a_collector_reads_what_was_exported() {
        let records: Vec<FlowRecord> = (0..100)
            .map(|n| record(false, 1000 + n))
            .chain((0..50).map(|n| record(true, 2000 + n)))
            .collect();
        let mut exporter = Exporter::new(7);
        let mut collector = Collector::default();
        let messages = exporter.messages(&records, 1_700_000_009);
        assert!(messages.len() > 5 && messages.iter().all(|message| message.len() <= MESSAGE_MAX_BYTES));
        messages.iter().for_each(|message| collector.read(message));
        assert_eq!(collector.records.len(), 150);
        let (v4, v6) = (&collector.records[0], &collector.records[100]);
        assert_eq!(
            (&v4[&8][..], &v4[&225][..], &v4[&7][..]),
            (&[192, 168, 1, 2][..], &[203, 0, 113, 1][..], &1000_u16.to_be_bytes()[..])
        );
        assert_eq!((v4[&4][0], v4[&61][0], &v4[&85][..]), (6, 1, &1_002_003_u64.to_be_bytes()[..]));
        assert_eq!(
            (&v4[&152][..], &v4[&153][..]),
            (&1_700_000_000_000_u64.to_be_bytes()[..], &1_700_000_005_000_u64.to_be_bytes()[..])
        );
        assert_eq!((v6[&27].len(), v6[&281][15], &v6[&7][..]), (16, 1, &2000_u16.to_be_bytes()[..]));
        assert!(exporter.messages(&[], 0).is_empty());
        exporter.messages(&[record(false, 1)], 0).iter().for_each(|message| collector.read(message));
    }
}
