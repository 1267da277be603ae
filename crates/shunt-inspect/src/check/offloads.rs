//! Cases about work that a NIC does for the kernel: checksums and segmentation. Each case runs with and without the
//! offload, and compares.

use super::{
    Checked, Fault,
    partner::{DESTINATION, PortCommand, SOURCE},
    port::switch,
    wire::Wire,
};
use shunt_lab::net::Frame;
use shunt_wire::{Checksum, Packet, Tcp, Transport, ones_complement_sum};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

/// Packets that are missing after this time without any packet are lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Payload of an aggregate: 14 segments, the last of which is short.
const AGGREGATE_BYTES: usize = 20_000;
/// Payload of a segment, with room for options in 1500 bytes.
const SEGMENT_BYTES: u16 = 1448;
/// Aggregates in each run.
const AGGREGATES: usize = 8;
/// Payloads of the checksum case: odd and even ones, and one that fills a frame.
const PAYLOADS: [usize; 8] = [1, 2, 3, 18, 64, 511, 1000, 1432];

static RUN: AtomicU16 = AtomicU16::new(0);

/// Socket addresses of one run.
fn ends_of_run() -> (SocketAddr, SocketAddr) {
    let port =
        20_000 + (std::process::id() as u16 ^ RUN.fetch_add(1, Ordering::Relaxed).rotate_left(5)) % 40_000;
    (SocketAddr::from((SOURCE, port)), SocketAddr::from((DESTINATION, 9)))
}

fn bytes_of(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|n| ((seed + n).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A packet whose checksum the NIC has to complete: the field holds the sum of the pseudo header.
fn unfinished(packet: Packet) -> Vec<u8> {
    let bytes = packet.to_bytes();
    let l4_bytes = (bytes.len() - 34) as u16;
    let protocol = u16::from(bytes[23]);
    let pseudo = [&bytes[26..34], &protocol.to_be_bytes(), &l4_bytes.to_be_bytes()].concat();
    let at = 34 + if protocol == 6 { 16 } else { 6 };
    let mut bytes = bytes;
    bytes[at..at + 2].copy_from_slice(&ones_complement_sum(&pseudo).to_be_bytes());
    bytes
}

/// A `struct virtio_net_hdr`: complete the checksum, and segment the packet if `segment` is not 0.
fn description(tcp: bool, segment: u16) -> [u8; 10] {
    let mut header = [0; 10];
    header[0] = 1;
    header[1] = u8::from(segment > 0);
    let headers: u16 = if tcp { 54 } else { 42 };
    for (at, value) in [(2, headers), (4, segment), (6, 34), (8, if tcp { 16 } else { 6 })] {
        header[at..at + 2].copy_from_slice(&u16::to_ne_bytes(value));
    }
    header
}

fn packet_of_run(frame: &Frame, source: SocketAddr) -> Option<Packet> {
    let packet = frame.packet()?;
    let port = match &packet.transport {
        Transport::Tcp(tcp) => tcp.source,
        Transport::Udp(udp) => udp.source,
        _ => return None,
    };
    (port == source.port() && packet.ethernet.tags.is_empty()).then_some(packet)
}

/// Whether this is a fragment of an IPv4 packet.
fn is_fragment(frame: &[u8]) -> bool {
    match frame.get(12..22) {
        Some([8, 0, .., flags, offset]) => flags & 0x3f != 0 || *offset != 0,
        _ => false,
    }
}

fn checksum_of(packet: &Packet) -> Checksum {
    match &packet.transport {
        Transport::Tcp(tcp) => tcp.checksum,
        Transport::Udp(udp) => udp.checksum,
        _ => Checksum::Good,
    }
}

/// Turns a feature of an end on or off; returns the reason if that is impossible.
fn set(wire: &Wire, end: usize, name: &str, on: bool) -> Result<(), String> {
    let port = &wire.ends[end];
    match port.feature(name) {
        None => Err(format!("{port} has no {name}")),
        Some((now, _)) if now == on => Ok(()),
        Some((_, true)) => Err(format!("{name} of {port} is fixed")),
        Some(_) => {
            let short = if name == "tx-checksumming" { "tx" } else { name };
            port.run(PortCommand::Offload(short.to_owned(), on))?;
            port.wait_for_link()?;
            match port.feature(name) {
                Some((now, _)) if now == on => Ok(()),
                _ => Err(format!("{name} of {port} cannot be turned {}", switch(on))),
            }
        }
    }
}

/// Directions and settings of an offload, on or off, with which packets were compared.
#[derive(Default)]
struct Compared {
    settings: BTreeSet<(usize, bool)>,
    evidence: Vec<String>,
}

impl Compared {
    fn with(&mut self, from: usize, on: bool, evidence: String) {
        self.settings.insert((from, on));
        self.evidence.push(evidence);
    }

    fn without(&mut self, why: &str) {
        self.evidence.push(format!("not compared: {why}"));
    }

    /// The evidence, if both settings were compared both ways.
    fn conclude(self, more: &str) -> Checked {
        let evidence = self.evidence.join("; ") + more;
        if self.settings.len() == 4 { Ok(evidence) } else { Err(Fault::Impossible(evidence)) }
    }
}

pub(super) fn checksum(wire: &Wire) -> Checked {
    let mut compared = Compared::default();
    for from in [0, 1] {
        for on in [true, false] {
            if let Err(why) = set(wire, from, "tx-checksumming", on) {
                compared.without(&why);
                continue;
            }
            let (count, left) = checksums(wire, from, on)?;
            let seen = format!(
                "{} with tx-checksumming {}: {count} packets, {left} left unfinished by a virtual link",
                wire.direction(from),
                switch(on)
            );
            compared.with(from, on, seen);
        }
        wrong_checksum(wire, from)?;
    }
    compared.conclude("; packets with a wrong checksum arrive as they are, and no NIC calls them correct")
}

/// Sends packets with unfinished checksums. Returns how many arrived, and how many of those were still unfinished.
fn checksums(wire: &Wire, from: usize, on: bool) -> Result<(usize, usize), Fault> {
    let (source, to) = ends_of_run();
    let (mut count, mut left) = (0, 0);
    for (n, bytes) in PAYLOADS.iter().enumerate() {
        for tcp in [false, true] {
            let packet =
                if tcp { Packet::tcp_between(source, to, Tcp::ACK) } else { Packet::udp_between(source, to) };
            let packet = packet
                .payload(bytes_of(n, *bytes))
                .macs(wire.macs[from], wire.macs[1 - from])
                .with_hop_limit(1);
            let sent = unfinished(packet.clone());
            wire.tap(from).try_send_described(description(tcp, 0), &sent).map_err(|error| {
                Fault::Failed(format!("{} refuses a packet without a checksum: {error}", wire.ends[from]))
            })?;
            let what = format!(
                "{}, {} of {bytes} bytes, tx-checksumming {}",
                wire.direction(from),
                if tcp { "TCP" } else { "UDP" },
                switch(on)
            );
            let frame =
                next_of_run(wire, 1 - from, source)?.ok_or_else(|| Fault::Failed(format!("{what}: lost")))?;
            let arrived =
                frame.packet().ok_or_else(|| Fault::Failed(format!("{what}: not a packet any more")))?;
            if arrived.payload != packet.payload {
                return Err(Fault::Failed(format!("{what}: the payload changed")));
            }
            match (frame.unfinished, checksum_of(&arrived)) {
                (false, Checksum::Good) => {}
                (true, _) if on => left += 1,
                (unfinished, found) => {
                    return Err(Fault::Failed(format!(
                        "{what}: the checksum is {found:?}, unfinished: {unfinished}"
                    )));
                }
            }
            count += 1;
        }
    }
    Ok((count, left))
}

fn wrong_checksum(wire: &Wire, from: usize) -> Result<(), Fault> {
    let (source, to) = ends_of_run();
    let packet =
        Packet::udp_between(source, to).payload(bytes_of(7, 100)).with_l4_checksum(Checksum::Value(0x1234));
    let packet = packet.macs(wire.macs[from], wire.macs[1 - from]).with_hop_limit(1);
    let direction = wire.direction(from);
    wire.tap(from)
        .try_send(&packet.to_bytes())
        .map_err(|error| Fault::Failed(format!("{direction}: {error}")))?;
    // The NIC may drop the packet, as the stack would.
    let Some(frame) = next_of_run(wire, 1 - from, source)? else { return Ok(()) };
    if frame.verified {
        return Err(Fault::Failed(format!(
            "{direction}: {} calls a wrong checksum correct",
            wire.ends[1 - from]
        )));
    }
    match frame.bytes == packet.to_bytes() {
        true => Ok(()),
        false => Err(Fault::Failed(format!("{direction}: a packet with a wrong checksum was changed"))),
    }
}

fn next_of_run(wire: &Wire, at: usize, source: SocketAddr) -> Result<Option<Frame>, Fault> {
    next_beside_fragments(wire, at, source, &mut 0)
}

/// The same; counts the IPv4 fragments that arrive before.
fn next_beside_fragments(
    wire: &Wire,
    at: usize,
    source: SocketAddr,
    fragments: &mut usize,
) -> Result<Option<Frame>, Fault> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let received = wire.tap(at).receive_within(left);
        match received.map_err(|error| Fault::Broken(format!("receiving on {}: {error}", wire.ends[at])))? {
            None => return Ok(None),
            Some(frame) if is_fragment(&frame.bytes) => *fragments += 1,
            Some(frame) if packet_of_run(&frame, source).is_some() => return Ok(Some(frame)),
            Some(_) => {}
        }
    }
}

pub(super) fn segmentation(wire: &Wire) -> Checked {
    let mut compared = Compared::default();
    for from in [0, 1] {
        for (tso, gro) in [(true, true), (false, true), (true, false), (false, false)] {
            let prepared = set(wire, from, "tcp-segmentation-offload", tso)
                .and_then(|()| set(wire, 1 - from, "generic-receive-offload", gro));
            if let Err(why) = prepared {
                compared.without(&why);
                continue;
            }
            let frames = stream(wire, from)?;
            let seen = format!(
                "{} with TSO {} and GRO {}: {AGGREGATES} aggregates arrived in {frames} frames",
                wire.direction(from),
                switch(tso),
                switch(gro)
            );
            compared.with(from, tso, seen);
        }
    }
    compared.conclude("")
}

/// Sends a TCP stream in aggregates and compares the received stream. Returns the number of received frames.
fn stream(wire: &Wire, from: usize) -> Result<usize, Fault> {
    let (source, to) = ends_of_run();
    let direction = wire.direction(from);
    let sent = bytes_of(usize::from(source.port()), AGGREGATES * AGGREGATE_BYTES);
    let mut arrived: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let (mut frames, mut bytes, mut fragments) = (0, 0, 0);
    for (n, payload) in sent.chunks(AGGREGATE_BYTES).enumerate() {
        let mut packet = Packet::tcp_between(source, to, Tcp::ACK).payload(payload);
        packet = packet.macs(wire.macs[from], wire.macs[1 - from]).with_hop_limit(1);
        if let Transport::Tcp(tcp) = &mut packet.transport {
            tcp.sequence = (n * AGGREGATE_BYTES) as u32;
        }
        wire.tap(from).try_send_described(description(true, SEGMENT_BYTES), &unfinished(packet)).map_err(
            |error| {
                Fault::Failed(format!(
                    "{direction}: an aggregate of {AGGREGATE_BYTES} bytes is refused: {error}"
                ))
            },
        )?;
        while bytes < (n + 1) * AGGREGATE_BYTES {
            let Some(frame) = next_beside_fragments(wire, 1 - from, source, &mut fragments)? else {
                let cut = if fragments > 0 {
                    format!(
                        ", and {fragments} IP fragments: {} cuts packets by IP instead of TCP",
                        wire.ends[from]
                    )
                } else {
                    String::new()
                };
                return Err(Fault::Failed(format!(
                    "{direction}: {bytes} of {} bytes of the stream arrived{cut}",
                    (n + 1) * AGGREGATE_BYTES
                )));
            };
            let Some(packet) = frame.packet() else { continue };
            let Transport::Tcp(tcp) = &packet.transport else { continue };
            if !frame.unfinished && tcp.checksum != Checksum::Good {
                return Err(Fault::Failed(format!(
                    "{direction}: the segment at {} has a wrong checksum",
                    tcp.sequence
                )));
            }
            frames += 1;
            bytes += packet.payload.len();
            if arrived.insert(tcp.sequence as usize, packet.payload).is_some() {
                return Err(Fault::Failed(format!(
                    "{direction}: the segment at {} arrived twice",
                    tcp.sequence
                )));
            }
        }
    }
    let mut next = 0;
    for (at, payload) in &arrived {
        if *at != next || sent.get(next..next + payload.len()) != Some(payload) {
            return Err(Fault::Failed(format!(
                "{direction}: the stream differs at byte {next}, in the segment at {at}"
            )));
        }
        next += payload.len();
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_compared_both_ways_is_no_pass() {
        let with = |settings: &[(usize, bool)]| {
            let mut compared = Compared::default();
            compared.without("tx of eth0 is fixed");
            settings.iter().for_each(|(from, on)| compared.with(*from, *on, "seen".to_owned()));
            compared.conclude("")
        };
        let all = [(0, true), (0, false), (1, true), (1, false)];
        assert!(with(&all).is_ok());
        for some in [&all[..0], &all[..3], &[(0, true), (0, true), (1, true), (1, false)]] {
            assert!(
                matches!(with(some), Err(Fault::Impossible(why)) if why.contains("is fixed")),
                "{some:?}"
            );
        }
    }

    #[test]
    fn fragments_are_told_by_their_flags_and_offset() {
        let mut frame = Packet::tcp_between(ends_of_run().0, ends_of_run().1, Tcp::ACK).to_bytes();
        assert!(!is_fragment(&frame));
        frame[20] = 0x40; // Don't fragment.
        assert!(!is_fragment(&frame));
        frame[20] = 0x20; // More fragments.
        assert!(is_fragment(&frame));
        (frame[20], frame[21]) = (0, 185);
        assert!(is_fragment(&frame) && !is_fragment(&frame[..20]));
    }

    #[test]
    fn the_sum_of_the_pseudo_header_completes_to_the_right_checksum() {
        let (source, to) = ends_of_run();
        for packet in [Packet::udp_between(source, to), Packet::tcp_between(source, to, Tcp::ACK)] {
            let packet = packet.payload(bytes_of(1, 33));
            let mut bytes = unfinished(packet.clone());
            let at = if bytes[23] == 6 { 50 } else { 40 };
            // The NIC's arithmetic: the sum from the L4 header on, including the value in the field.
            let sum = !ones_complement_sum(&bytes[34..]);
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(bytes, packet.to_bytes());
        }
    }
}
