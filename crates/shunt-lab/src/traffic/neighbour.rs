//! ARP (RFC 826) and neighbour discovery (RFC 4861) of hosts: answers for addresses that no device has, and requests
//! for the MAC of the next hop.

use super::{Error, membership, station::Station};
use crate::net::Tap;
use nix::libc;
use shunt_gen::Addresses;
use shunt_wire::{Ethernet, Ipv6, Mac, Network, Packet, Sum, Tag, Transport};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Number of requests, and the time to wait for an answer to each: as Linux does.
const ASKED: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which the responder checks whether it should end.
const GLANCE: Duration = Duration::from_millis(100);
const ARP: u16 = 0x0806;
/// Start of an ARP payload for Ethernet and IPv4.
const ARP_HEAD: [u8; 7] = [0, 1, 8, 0, 6, 4, 0];
const ICMPV6: u8 = 58;
/// Hop limit of neighbour discovery: a packet that passed a router has a lower one.
const ON_LINK: u8 = 255;
const SMALLEST: usize = 60;

/// A responder for addresses, on one device.
pub(super) struct Responder {
    tap: Tap,
    _multicast: OwnedFd,
    mac: Mac,
    addresses: Addresses,
}

/// A request for the MAC of an address.
struct Question {
    asked: IpAddr,
    by: IpAddr,
    mac: Mac,
    tags: Vec<Tag>,
}

impl Responder {
    /// A responder for these addresses. None if the only address is the device's own, for which Linux answers, unless
    /// frames on the link have tags.
    pub(super) fn for_station(
        station: &Station<'_>,
        mut addresses: Addresses,
        is_tagged: bool,
    ) -> Result<Option<Self>, Error> {
        let own = [station.v4.map(IpAddr::from), station.v6.map(IpAddr::from)];
        let is_own = addresses.count == 1 && own.contains(&Some(addresses.first));
        if addresses.first.is_unspecified() || is_own {
            if !is_tagged {
                return Ok(None);
            }
            addresses = Addresses::one(station.address_like(addresses.first)?);
        }
        let (tap, multicast) = station.within(|| listen(station))?;
        Ok(Some(Self { tap, _multicast: multicast, mac: station.mac, addresses }))
    }

    /// Answers requests until `over` is set.
    pub(super) fn serve(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            match self.tap.receive_within(GLANCE) {
                Ok(Some(frame)) => {
                    let asked = frame.packet().as_ref().and_then(Question::in_packet);
                    if let Some(question) = asked.filter(|question| self.addresses.contains(question.asked)) {
                        self.tap.offer(&question.answer(self.mac).to_bytes());
                    }
                }
                Ok(None) => {}
                // The link is down and may come up again.
                Err(_) => thread::sleep(GLANCE),
            }
        }
    }
}

/// Finds the MAC of a neighbour by sending requests from this address.
pub(super) fn resolve(
    station: &Station<'_>,
    neighbour: IpAddr,
    from: &Addresses,
    tags: &[Tag],
) -> Result<Mac, Error> {
    let same = from.first.is_ipv4() == neighbour.is_ipv4() && !from.first.is_unspecified();
    let by = if same { from.first } else { station.address_like(neighbour)? };
    let question = Question { asked: neighbour, by, mac: station.mac, tags: tags.to_vec() }.packet();
    let (tap, _multicast) = station.within(|| listen(station))?;
    for _ in 0..ASKED {
        tap.offer(&question.to_bytes());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match tap.receive_within(left)? {
                Some(frame) => match frame.packet().as_ref().and_then(answered) {
                    Some((of, mac)) if of == neighbour => return Ok(mac),
                    _ => {}
                },
                None => break,
            }
        }
    }
    let asked = if neighbour.is_ipv4() { "ARP" } else { "neighbour discovery" };
    Err(Error::Asked(format!(
        "{}: {neighbour} does not answer {asked} from {by}; is it the router's address on this link?",
        station.ifname
    )))
}

/// Opens a raw socket, and one that makes the device receive all multicast: requests are sent to groups.
fn listen(station: &Station<'_>) -> Result<(Tap, OwnedFd), Error> {
    let tap = Tap::here(&station.ifname)
        .map_err(|error| Error::Machine(format!("{}: cannot open a raw socket: {error}", station.ifname)))?;
    Ok((tap, membership::join(&station.ifname, station.ifindex, libc::PACKET_MR_ALLMULTI)?))
}

impl Question {
    fn in_packet(packet: &Packet) -> Option<Self> {
        let (mac, tags) = (packet.ethernet.source, packet.ethernet.tags.clone());
        if let Some(arp) = arp_of(packet, 1) {
            let at = |at: usize| ipv4(&arp[at..at + 4]);
            return Some(Self { asked: at(24), by: at(14), mac, tags });
        }
        let (ip, target) = icmpv6_of(packet, 135)?;
        // A request from the unspecified address is duplicate address detection.
        (!ip.source.is_unspecified()).then(|| Self { asked: target.into(), by: ip.source.into(), mac, tags })
    }

    /// The request, to all hosts that may have the address.
    fn packet(&self) -> Packet {
        let (packet, to) = match (self.asked, self.by) {
            (IpAddr::V6(asked), IpAddr::V6(by)) => {
                let low = asked.octets();
                let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(low[13]), 0).to_bits()
                    | u128::from(u16::from_be_bytes([low[14], low[15]]));
                let to = Mac([0x33, 0x33, 0xff, low[13], low[14], low[15]]);
                (icmpv6(135, [0; 4], by, group.into(), asked, 1, self.mac), to)
            }
            _ => (arp(1, (self.mac, self.by), (Mac::default(), self.asked)), Mac([0xff; 6])),
        };
        packet.with_tags(&self.tags).macs(self.mac, to).padded_to(SMALLEST)
    }

    fn answer(&self, mac: Mac) -> Packet {
        let packet = match (self.asked, self.by) {
            // Flags: solicited and override.
            (IpAddr::V6(asked), IpAddr::V6(by)) => icmpv6(136, [0x60, 0, 0, 0], asked, by, asked, 2, mac),
            _ => arp(2, (mac, self.asked), (self.mac, self.by)),
        };
        packet.with_tags(&self.tags).macs(mac, self.mac).padded_to(SMALLEST)
    }
}

/// The address and the MAC in an answer.
fn answered(packet: &Packet) -> Option<(IpAddr, Mac)> {
    if let Some(arp) = arp_of(packet, 2) {
        return Some((ipv4(&arp[14..18]), Mac(arp[8..14].try_into().ok()?)));
    }
    let (_, target) = icmpv6_of(packet, 136)?;
    let option = packet.payload.get(24..32).filter(|option| option[..2] == [2, 1]);
    let mac = option.and_then(|option| option[2..].try_into().ok()).map(Mac);
    Some((target.into(), mac.unwrap_or(packet.ethernet.source)))
}

fn arp_of(packet: &Packet, operation: u8) -> Option<&[u8]> {
    let whole = packet.ethertype() == ARP && packet.payload.len() >= 28;
    (whole && packet.payload[..7] == ARP_HEAD && packet.payload[7] == operation).then_some(&packet.payload)
}

fn icmpv6_of(packet: &Packet, kind: u8) -> Option<(&Ipv6, Ipv6Addr)> {
    let ip = packet.ipv6()?;
    let fits = packet.transport == Transport::Other(ICMPV6) && ip.hop_limit == ON_LINK;
    let target: [u8; 16] = packet.payload.get(8..24)?.try_into().ok()?;
    (fits && packet.payload[..2] == [kind, 0]).then_some((ip, target.into()))
}

fn arp(operation: u8, from: (Mac, IpAddr), to: (Mac, IpAddr)) -> Packet {
    let mut payload = [&ARP_HEAD[..], &[operation]].concat();
    for (mac, ip) in [from, to] {
        payload.extend(mac.0);
        payload.extend(if let IpAddr::V4(ip) = ip { ip.octets() } else { [0; 4] });
    }
    Packet::other(ARP, payload)
}

/// A neighbour discovery message about `target`, with a link-layer address as its option.
fn icmpv6(
    kind: u8,
    flags: [u8; 4],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
    option: u8,
    mac: Mac,
) -> Packet {
    let mut payload = [&[kind, 0, 0, 0][..], &flags, &target.octets(), &[option, 1], &mac.0].concat();
    let sum = Sum::new().bytes(&source.octets()).bytes(&destination.octets());
    let sum = sum.word(payload.len() as u16).word(ICMPV6.into()).bytes(&payload).finished();
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    let network = Network::V6(Ipv6 {
        source,
        destination,
        hop_limit: ON_LINK,
        traffic_class: 0,
        flow_label: 0,
        extensions: Vec::new(),
    });
    let ethernet = Ethernet::default();
    Packet { ethernet, network, transport: Transport::Other(ICMPV6), payload, trailer: Vec::new() }
}

fn ipv4(bytes: &[u8]) -> IpAddr {
    bytes.try_into().map_or(Ipv4Addr::UNSPECIFIED, |octets: [u8; 4]| octets.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const HAS: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_request_and_its_answer_are_parsed() {
        for (asked, by, to) in [
            ("192.0.2.77", "192.0.2.1", "ff:ff:ff:ff:ff:ff"),
            ("fd00::12:3456", "fd00::1", "33:33:ff:12:34:56"),
        ] {
            for tags in [vec![], vec![Tag::service(5), Tag::vlan(6)]] {
                let (asked, by): (IpAddr, IpAddr) = (asked.parse().unwrap(), by.parse().unwrap());
                let question = Question { asked, by, mac: ASKS, tags: tags.clone() }.packet();
                assert_eq!(question.ethernet.destination, to.parse().unwrap());
                let wire = Packet::parse(&question.to_bytes()).unwrap();
                assert!(question.to_bytes().len() >= SMALLEST && answered(&wire).is_none());
                let understood = Question::in_packet(&wire).unwrap();
                assert_eq!((understood.asked, understood.by, understood.mac), (asked, by, ASKS));
                let answer = Packet::parse(&understood.answer(HAS).to_bytes()).unwrap();
                assert_eq!(answered(&answer), Some((asked, HAS)));
                assert_eq!((answer.ethernet.destination, &answer.ethernet.tags), (ASKS, &tags));
                assert!(Question::in_packet(&answer).is_none());
            }
        }
    }

    #[test]
    fn a_solicitation_has_the_group_and_checksum_of_the_rfc() {
        let (asked, by) = ("fd00::12:3456".parse().unwrap(), "fd00::1".parse().unwrap());
        let packet = Question { asked, by, mac: ASKS, tags: vec![] }.packet();
        let ip = packet.ipv6().unwrap();
        assert_eq!(ip.destination, "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
        let sum = Sum::new().bytes(&ip.source.octets()).bytes(&ip.destination.octets());
        assert_eq!(sum.word(32).word(58).bytes(&packet.payload).folded(), 0xffff);
    }

    #[test]
    fn other_packets_are_not_taken_for_requests() {
        let far = |packet: Packet| packet.with_hop_limit(64);
        let (asked, by) = ("fd00::2".parse().unwrap(), "fd00::1".parse().unwrap());
        let question = Question { asked, by, mac: ASKS, tags: vec![] };
        assert!(Question::in_packet(&far(question.packet())).is_none());
        let nobody = Question { by: Ipv6Addr::UNSPECIFIED.into(), ..question };
        assert!(Question::in_packet(&nobody.packet()).is_none());
        let short = Packet::other(ARP, [0, 1, 8, 0, 6, 4, 0, 1, 2]);
        assert!(Question::in_packet(&short).is_none());
        let udp = Packet::udp_between("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
        assert!(Question::in_packet(&udp).is_none() && answered(&udp).is_none());
    }
}
