//! Parsing: bytes to packets.

use crate::{
    Checksum, Ethernet, Extension, Ipv4, Ipv6, Network, Packet, Sum, Tcp, Transport, Udp, emit, encap,
    ones_complement_sum,
};
use std::{fmt, net::Ipv4Addr, net::Ipv6Addr};

/// The reason why bytes cannot be parsed as a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The frame ends inside this layer.
    Truncated(&'static str),
    /// Fields of this layer contradict each other.
    Malformed(&'static str),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(layer) => write!(f, "the frame is truncated in the {layer} header"),
            Self::Malformed(layer) => write!(f, "fields of the {layer} header contradict each other"),
        }
    }
}

impl std::error::Error for ParseError {}

impl Packet {
    /// Parses an Ethernet frame without FCS.
    ///
    /// The L4 bytes of fragments are payload: later fragments have no L4 header, and the checksum of the first fragment
    /// covers bytes that it does not have.
    ///
    /// # Errors
    /// If the frame is truncated, or lengths contradict each other. A wrong checksum is not an error.
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let (ethernet, ethertype) = Ethernet::parse(frame).ok_or(ParseError::Truncated("Ethernet"))?;
        let payload = &frame[ethernet.bytes()..];
        match ethertype {
            encap::IPV4 => parse_v4(ethernet, payload),
            encap::IPV6 => parse_v6(ethernet, payload),
            _ => Ok(Self {
                ethernet,
                network: Network::Other(ethertype),
                transport: Transport::None,
                payload: payload.to_vec(),
                trailer: Vec::new(),
            }),
        }
    }
}

fn parse_v4(ethernet: Ethernet, bytes: &[u8]) -> Result<Packet, ParseError> {
    let mut rest = Cursor { bytes, layer: "IPv4" };
    let [version_ihl, tos] = rest.array()?;
    let header_bytes = usize::from(version_ihl & 0xf) * 4;
    let total_bytes = usize::from(rest.u16()?);
    if version_ihl >> 4 != 4 || header_bytes < 20 || total_bytes < header_bytes {
        return Err(ParseError::Malformed("IPv4"));
    }
    let id = rest.u16()?;
    let fragment = rest.u16()?;
    let [ttl, protocol] = rest.array()?;
    let stored = rest.u16()?;
    let source = Ipv4Addr::from(rest.array::<4>()?);
    let destination = Ipv4Addr::from(rest.array::<4>()?);
    let options = rest.take(header_bytes - 20)?.to_vec();
    let l4 = rest.take(total_bytes - header_bytes)?;
    let ip = Ipv4 {
        source,
        destination,
        ttl,
        tos,
        id,
        dont_fragment: fragment & 0x4000 != 0,
        more_fragments: fragment & 0x2000 != 0,
        fragment_offset: fragment & 0x1fff,
        options,
        checksum: judged(ones_complement_sum(&bytes[..header_bytes]) == 0xffff, stored),
    };
    let whole = !ip.more_fragments && ip.fragment_offset == 0;
    let (transport, payload) = parse_l4(protocol, l4, emit::pseudo_v4(source, destination), whole)?;
    Ok(Packet { ethernet, network: Network::V4(ip), transport, payload, trailer: rest.bytes.to_vec() })
}

fn parse_v6(ethernet: Ethernet, bytes: &[u8]) -> Result<Packet, ParseError> {
    let mut rest = Cursor { bytes, layer: "IPv6" };
    let word = u32::from_be_bytes(rest.array()?);
    let payload_bytes = usize::from(rest.u16()?);
    let [mut next, hop_limit] = rest.array()?;
    if word >> 28 != 6 {
        return Err(ParseError::Malformed("IPv6"));
    }
    let source = Ipv6Addr::from(rest.array::<16>()?);
    let destination = Ipv6Addr::from(rest.array::<16>()?);
    let mut inner = Cursor { bytes: rest.take(payload_bytes)?, layer: "IPv6 extension" };
    let mut extensions = Vec::new();
    let mut whole = true;
    // A fragment header ends the chain: the bytes after it may begin in the middle of a header or of payload.
    while whole && matches!(next, 0 | 43 | 44 | 60) {
        let kind = next;
        let [after, length] = inner.array()?;
        next = after;
        let body_bytes = if kind == 44 { 6 } else { usize::from(length) * 8 + 6 };
        let mut body = vec![length];
        body.extend(inner.take(body_bytes)?);
        whole = kind != 44 || body[1..3] == [0, 0];
        extensions.push(Extension { kind, body });
    }
    let ip = Ipv6 {
        source,
        destination,
        hop_limit,
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0xf_ffff,
        extensions,
    };
    let (transport, payload) = parse_l4(next, inner.bytes, emit::pseudo_v6(source, destination), whole)?;
    Ok(Packet { ethernet, network: Network::V6(ip), transport, payload, trailer: rest.bytes.to_vec() })
}

fn parse_l4(
    protocol: u8,
    l4: &[u8],
    addresses: Sum,
    whole: bool,
) -> Result<(Transport, Vec<u8>), ParseError> {
    match protocol {
        17 if whole => {
            let mut rest = Cursor { bytes: l4, layer: "UDP" };
            let (source, destination) = (rest.u16()?, rest.u16()?);
            let length = usize::from(rest.u16()?);
            let stored = rest.u16()?;
            if length != l4.len() {
                return Err(ParseError::Malformed("UDP"));
            }
            // A checksum of zero means none, even if it would be correct for the bytes.
            let good = stored != 0 && is_good(addresses, protocol, l4);
            let udp = Udp { source, destination, checksum: judged(good, stored) };
            Ok((Transport::Udp(udp), rest.bytes.to_vec()))
        }
        6 if whole => {
            let mut rest = Cursor { bytes: l4, layer: "TCP" };
            let (source, destination) = (rest.u16()?, rest.u16()?);
            let sequence = u32::from_be_bytes(rest.array()?);
            let acknowledgement = u32::from_be_bytes(rest.array()?);
            let [offset, flags] = rest.array()?;
            let (window, stored, urgent) = (rest.u16()?, rest.u16()?, rest.u16()?);
            let header_bytes = usize::from(offset >> 4) * 4;
            let options = header_bytes.checked_sub(20).ok_or(ParseError::Malformed("TCP"))?;
            let options = rest.take(options)?.to_vec();
            let checksum = judged(is_good(addresses, protocol, l4), stored);
            let tcp = Tcp {
                source,
                destination,
                sequence,
                acknowledgement,
                flags,
                window,
                urgent,
                options,
                checksum,
            };
            Ok((Transport::Tcp(tcp), rest.bytes.to_vec()))
        }
        _ => Ok((Transport::Other(protocol), l4.to_vec())),
    }
}

fn is_good(addresses: Sum, protocol: u8, l4: &[u8]) -> bool {
    addresses.word(protocol.into()).word(l4.len() as u16).bytes(l4).folded() == 0xffff
}

fn judged(good: bool, stored: u16) -> Checksum {
    match stored {
        _ if good => Checksum::Good,
        0 => Checksum::Zero,
        value => Checksum::Value(value),
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    layer: &'static str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(ParseError::Truncated(self.layer))?;
        self.bytes = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(ParseError::Truncated(self.layer))?;
        self.bytes = tail;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, ParseError> {
        Ok(u16::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests;
