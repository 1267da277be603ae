//! Takes captured frames apart into the packets that are on the wire: aggregates of GRO and TSO become their segments.
//! Independent of the packet core, so that it can judge the packet core.

use shunt_wire::Sum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// A captured frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// From the Ethernet header on, or from the L3 header on without one; perhaps not to the end.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the whole frame.
    pub(crate) total: usize,
    pub(crate) l3_at: usize,
    /// L4 payload of each segment of an aggregate; 0 if it is none.
    pub(crate) segment_bytes: usize,
    /// Whether the L4 checksum is left to a device.
    pub(crate) is_unfinished: bool,
    /// A VLAN tag beside the frame: TPID and TCI.
    pub(crate) tag: Option<(u16, u16)>,
}

/// The fields of a packet that a router may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Treated {
    /// The L2 header with its tags; empty without layer 2.
    pub(crate) l2: Vec<u8>,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    pub(crate) dscp: u8,
    pub(crate) ecn: u8,
}

/// What TCP says about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) payload: u32,
}

/// A packet as it is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) treated: Treated,
    /// From the L3 header on, with zeros in place of what a router may change, of checksums, and of fields that differ
    /// between an aggregate and its segments.
    pub(crate) kept: Vec<u8>,
    /// IPv4 ID and TCP flags, which `kept` lacks or has in part, and which must not change between single packets.
    pub(crate) exact: (u16, u8),
    /// Whether it was a part of an aggregate.
    pub(crate) is_part: bool,
    /// Whether the checksum of the IPv4 header is right; true for IPv6.
    pub(crate) is_ip_sum_good: bool,
    /// Whether the L4 checksum is right, over the whole payload; None if nothing computes it here.
    pub(crate) is_l4_sum_good: Option<bool>,
    pub(crate) stream: Option<Stream>,
}

/// The packets of a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) whole: Vec<Segment>,
    /// Sequence number and bytes of TCP payload that was not captured whole.
    pub(crate) cut: Option<(u32, u32)>,
}

struct Headers<'f> {
    l3: &'f [u8],
    is_v4: bool,
    l4_at: usize,
    payload_at: usize,
    /// Bytes from the L3 header to the end of the packet, padding excluded.
    l3_bytes: usize,
    protocol: u8,
}

/// The packets of a captured frame; None if it is not TCP or UDP over IP.
pub(crate) fn segments(frame: &Frame) -> Option<Segments> {
    let headers = headers(frame)?;
    let Headers { l3, l4_at, payload_at, l3_bytes, protocol, .. } = headers;
    let payload_bytes = l3_bytes.checked_sub(payload_at)?;
    let captured = l3.len().min(l3_bytes).checked_sub(payload_at)?;
    let step = match frame.segment_bytes {
        0 => payload_bytes,
        bytes => bytes.min(payload_bytes),
    };
    let is_part = step < payload_bytes;
    let sequence = if protocol == TCP { word32(&l3[l4_at + 4..]) } else { 0 };
    let mut found = Segments::default();
    let mut at = 0;
    loop {
        let end = (at + step).min(payload_bytes);
        if end > captured {
            found.cut = Some((sequence.wrapping_add(at as u32), (payload_bytes - at) as u32));
            break;
        }
        found.whole.push(segment(frame, &headers, at, end, is_part)?);
        at = end;
        if at >= payload_bytes {
            break;
        }
    }
    Some(found)
}

fn headers(frame: &Frame) -> Option<Headers<'_>> {
    let l3 = frame.bytes.get(frame.l3_at..)?;
    let version = l3.first()? >> 4;
    let rest = frame.total.checked_sub(frame.l3_at)?;
    let (is_v4, l4_at, protocol, stated) = match version {
        4 if l3.len() >= IPV4_BYTES => {
            let fragment = word(&l3[6..]) & 0x3fff;
            let header = usize::from(l3[0] & 0xf) * 4;
            (true, header, (fragment == 0).then_some(l3[9])?, usize::from(word(&l3[2..])))
        }
        6 if l3.len() >= IPV6_BYTES => (false, IPV6_BYTES, l3[6], usize::from(word(&l3[4..])) + IPV6_BYTES),
        _ => return None,
    };
    // The lengths of aggregates above 64 KiB are 0.
    let l3_bytes = if frame.segment_bytes > 0 { rest } else { stated.min(rest) };
    let header_bytes = match protocol {
        TCP => usize::from(*l3.get(l4_at + 12)? >> 4) * 4,
        UDP => 8,
        _ => return None,
    };
    let payload_at = l4_at + header_bytes;
    let is_sound = l4_at >= IPV4_BYTES && header_bytes >= 8 && payload_at <= l3.len().min(l3_bytes);
    is_sound.then_some(Headers { l3, is_v4, l4_at, payload_at, l3_bytes, protocol })
}

fn segment(frame: &Frame, headers: &Headers<'_>, from: usize, to: usize, is_part: bool) -> Option<Segment> {
    let Headers { l3, is_v4, l4_at, payload_at, l3_bytes, protocol } = *headers;
    let l4 = &l3[l4_at..];
    let traffic_class = if is_v4 { l3[1] } else { l3[0] << 4 | l3[1] >> 4 };
    let (src, dst) = addresses(l3, is_v4)?;
    let treated = Treated {
        l2: l2(frame),
        src,
        dst,
        sport: word(l4),
        dport: word(&l4[2..]),
        ttl: if is_v4 { l3[8] } else { l3[7] },
        dscp: traffic_class >> 2,
        ecn: traffic_class & 3,
    };
    let mut kept = [&l3[..payload_at], &l3[payload_at + from..payload_at + to]].concat();
    hide(&mut kept, is_v4, l4_at, protocol);
    let mut stream = None;
    if protocol == TCP {
        let sequence = word32(&l4[4..]).wrapping_add(from as u32);
        kept[l4_at + 4..l4_at + 8].copy_from_slice(&sequence.to_be_bytes());
        stream = Some(Stream { sequence, acknowledgement: word32(&l4[8..]), payload: (to - from) as u32 });
    }
    let id = if is_v4 { word(&l3[4..]) } else { 0 };
    let flags = if protocol == TCP { l4[13] } else { 0 };
    let whole = l3.get(l4_at..l3_bytes).filter(|_| !is_part);
    Some(Segment {
        treated,
        kept,
        exact: (id, flags),
        is_part,
        is_ip_sum_good: !is_v4 || Sum::new().bytes(&l3[..l4_at]).folded() == 0xffff,
        is_l4_sum_good: whole.map(|l4| is_l4_sum_good(l3, is_v4, protocol, l4, frame.is_unfinished)),
        stream,
    })
}

/// Writes zeros over what a router may change, checksums, and what differs between an aggregate and its segments.
fn hide(l3: &mut [u8], is_v4: bool, l4_at: usize, protocol: u8) {
    let mut zero = |at: usize, bytes: usize| l3[at..at + bytes].fill(0);
    if is_v4 {
        // TOS, length and ID; TTL; checksum and addresses.
        zero(1, 5);
        zero(8, 1);
        zero(10, 10);
    } else {
        zero(4, 2);
        zero(7, 33);
    }
    zero(l4_at, 4);
    match protocol {
        TCP => zero(l4_at + 16, 2),
        _ => zero(l4_at + 4, 4),
    }
    if !is_v4 {
        // The traffic class is between the version and the flow label.
        l3[0] &= 0xf0;
        l3[1] &= 0x0f;
    }
    if protocol == TCP {
        l3[l4_at + 13] &= !(FIN_PSH | CWR);
    }
}

fn addresses(l3: &[u8], is_v4: bool) -> Option<(IpAddr, IpAddr)> {
    if is_v4 {
        let at = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(l3.get(at..at + 4)?).ok()?).into());
        Some((at(12)?, at(16)?))
    } else {
        let at = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(l3.get(at..at + 16)?).ok()?).into());
        Some((at(8)?, at(24)?))
    }
}

/// The L2 header as it will be on the wire: with the tag that is beside the frame.
fn l2(frame: &Frame) -> Vec<u8> {
    let mut l2 = frame.bytes[..frame.l3_at].to_vec();
    if let Some((tpid, tci)) = frame.tag
        && l2.len() >= shunt_wire::encap::TAG_AT
    {
        shunt_wire::encap::push_tags(&mut l2, &[shunt_wire::Tag::from_words(tpid, tci)]);
    }
    l2
}

/// Whether the L4 checksum, computed from scratch, is right. Where a device is to finish it, the field has the sum of
/// the pseudo header.
fn is_l4_sum_good(l3: &[u8], is_v4: bool, protocol: u8, l4: &[u8], is_unfinished: bool) -> bool {
    let addresses = if is_v4 { &l3[12..20] } else { &l3[8..40] };
    let pseudo = Sum::new().bytes(addresses).word(protocol.into()).word(l4.len() as u16);
    let stored = word(&l4[if protocol == TCP { 16 } else { 6 }..]);
    match () {
        () if is_unfinished => stored == pseudo.folded(),
        // UDP over IPv4 without a checksum.
        () if protocol == UDP && stored == 0 => is_v4,
        () => pseudo.bytes(l4).folded() == 0xffff,
    }
}

fn word(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn word32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests;
