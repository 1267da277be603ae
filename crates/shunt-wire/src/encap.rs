//! What stands before the IP header: an Ethernet header with VLAN tags. The twin of `bpf/core/encap.h`.

use crate::Mac;

/// The EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Offset of the outermost tag in a frame, and of the EtherType in a frame without tags: after both MACs.
pub const TAG_AT: usize = 12;
/// Size of a tag.
pub const TAG_BYTES: usize = 4;

const DOT1Q: u16 = 0x8100;
const DOT1AD: u16 = 0x88a8;
/// Used for outer tags before 802.1ad.
const OLD_QINQ: u16 = 0x9100;

/// The EtherType of packets of PPPoE in a session (RFC 2516).
const PPPOE_SESSION: u16 = 0x8864;
/// Version 1, type 1, and the code of packets in a session.
const PPPOE_VERSION: [u8; 2] = [0x11, 0];
/// Version, code, session, length, and the protocol of PPP.
pub const PPPOE_BYTES: usize = 8;
const PPP_IPV4: u16 = 0x21;
const PPP_IPV6: u16 = 0x57;

/// `enum shunt_tag_bits` of `bpf/abi`: a tag in a key of the flow table.
const KEY_VID: u16 = 0x0fff;
const KEY_8021AD: u16 = 0x1000;
const KEY_PRESENT: u16 = 0x8000;

/// The Ethernet header without the EtherType, which follows from the network layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination MAC.
    pub destination: Mac,
    /// Source MAC.
    pub source: Mac,
    /// VLAN tags, outermost first.
    pub tags: Vec<Tag>,
}

/// An 802.1Q or 802.1ad tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The tag's EtherType: 0x8100 (802.1Q), 0x88a8 (802.1ad) or 0x9100.
    pub tpid: u16,
    /// The VLAN id, 12 bits.
    pub vid: u16,
    /// The priority, 3 bits.
    pub priority: u8,
    /// The drop eligible bit.
    pub drop_eligible: bool,
}

/// Bytes before the IP header of a frame with `tags` tags.
pub const fn header_bytes(tags: usize) -> usize {
    TAG_AT + TAG_BYTES * tags + 2
}

/// What stands before an IP packet in a session of PPPoE; `None` if it is no IP packet, or longer than the header can
/// say.
pub fn session_header(ethernet: &Ethernet, session: u16, packet: &[u8]) -> Option<Vec<u8>> {
    let protocol = match packet.first()? >> 4 {
        4 => PPP_IPV4,
        6 => PPP_IPV6,
        _ => return None,
    };
    let length = u16::try_from(packet.len() + size_of_val(&protocol)).ok()?;
    let mut header = ethernet.header(PPPOE_SESSION);
    header.extend(PPPOE_VERSION);
    for word in [session, length, protocol] {
        header.extend(word.to_be_bytes());
    }
    Some(header)
}

/// The EtherType of a frame without tags, or the TPID of its outermost tag.
///
/// # Panics
/// If the frame is shorter than an Ethernet header.
pub fn outer_type(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[TAG_AT], frame[TAG_AT + 1]])
}

/// Changes the EtherType of a frame without tags.
///
/// # Panics
/// If the frame is shorter than an Ethernet header.
pub fn set_outer_type(frame: &mut [u8], ethertype: u16) {
    frame[TAG_AT..TAG_AT + 2].copy_from_slice(&ethertype.to_be_bytes());
}

/// The EtherType behind the tags of a frame, and the offset of what follows. None if the frame is too short.
pub fn payload(frame: &[u8]) -> Option<(u16, usize)> {
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let mut at = TAG_AT;
    while is_tag(word(at)?) {
        at += TAG_BYTES;
    }
    Some((word(at)?, at + 2))
}

/// Adds bytes of tags to a frame, outside of the tags that it has.
pub fn push_tags(frame: &mut Vec<u8>, tags: &[Tag]) {
    frame.splice(TAG_AT..TAG_AT, tags.iter().flat_map(|tag| tag.bytes()));
}

/// Removes these tags from a frame if its outermost tags have the same bytes. Returns whether they had.
pub fn pop_tags(frame: &mut Vec<u8>, tags: &[Tag]) -> bool {
    let bytes = tags.iter().flat_map(|tag| tag.bytes());
    let behind = TAG_AT + TAG_BYTES * tags.len();
    let same = frame.get(TAG_AT..behind).is_some_and(|outer| outer.iter().copied().eq(bytes));
    if same {
        frame.drain(TAG_AT..behind);
    }
    same
}

const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, DOT1Q | DOT1AD | OLD_QINQ)
}

impl Ethernet {
    /// The length of the header, including tags and EtherType.
    pub fn bytes(&self) -> usize {
        header_bytes(self.tags.len())
    }

    /// The header as on the wire, with the EtherType of what follows.
    pub fn header(&self, ethertype: u16) -> Vec<u8> {
        let mut header = Vec::with_capacity(self.bytes());
        header.extend(self.destination.0);
        header.extend(self.source.0);
        header.extend(self.tags.iter().flat_map(|tag| tag.bytes()));
        header.extend(ethertype.to_be_bytes());
        header
    }

    /// Parses the header of a frame, with the EtherType of what follows. None if the frame is too short.
    pub fn parse(frame: &[u8]) -> Option<(Self, u16)> {
        let (ethertype, at) = payload(frame)?;
        let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
        let tags = frame[TAG_AT..at - 2].chunks_exact(TAG_BYTES);
        let tags = tags.map(|tag| Tag::from_words(word(tag), word(&tag[2..]))).collect();
        let mac = |at: usize| frame[at..at + 6].try_into().ok().map(Mac);
        Some((Self { destination: mac(0)?, source: mac(6)?, tags }, ethertype))
    }
}

impl Tag {
    /// An 802.1Q tag.
    pub const fn vlan(vid: u16) -> Self {
        Self { tpid: DOT1Q, vid, priority: 0, drop_eligible: false }
    }

    /// An 802.1ad service tag, the outer one of QinQ.
    pub const fn service(vid: u16) -> Self {
        Self { tpid: DOT1AD, ..Self::vlan(vid) }
    }

    /// The tags of VLAN IDs, outermost first. If there are two, the outer one is a service tag.
    pub fn stack(vids: &[u16]) -> Vec<Self> {
        let tag = |(n, vid): (usize, &u16)| match vids.len() {
            2 if n == 0 => Self::service(*vid),
            _ => Self::vlan(*vid),
        };
        vids.iter().enumerate().map(tag).collect()
    }

    /// The tag control information (TCI): priority, drop eligible bit and VLAN id.
    pub const fn control(self) -> u16 {
        (self.priority as u16) << 13 | (self.drop_eligible as u16) << 12 | self.vid & 0xfff
    }

    /// A tag from its EtherType and its tag control information.
    pub const fn from_words(tpid: u16, control: u16) -> Self {
        Self {
            tpid,
            vid: control & 0xfff,
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
        }
    }

    /// The tag as on the wire.
    pub const fn bytes(self) -> [u8; TAG_BYTES] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.control().to_be_bytes());
        [a, b, c, d]
    }

    /// The tag in a key of the flow table, which has no priority.
    pub const fn key_bits(self) -> u16 {
        let service = if self.tpid == DOT1AD { KEY_8021AD } else { 0 };
        KEY_PRESENT | service | self.vid & KEY_VID
    }

    /// The tag of a key of the flow table. None if these bits stand for no tag.
    pub const fn from_key_bits(bits: u16) -> Option<Self> {
        let tpid = if bits & KEY_8021AD != 0 { DOT1AD } else { DOT1Q };
        if bits & KEY_PRESENT != 0 { Some(Self::from_words(tpid, bits & KEY_VID)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_parsed_as_it_was_written() {
        for tags in [vec![], Tag::stack(&[7]), Tag::stack(&[5, 4095]), vec![Tag::from_words(0x9100, 0xf001)]]
        {
            let (destination, source) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
            let ethernet = Ethernet { destination, source, tags };
            let header = ethernet.header(IPV6);
            assert_eq!(header.len(), ethernet.bytes());
            assert_eq!(Ethernet::parse(&header), Some((ethernet, IPV6)));
            for short in 0..header.len() {
                assert_eq!(Ethernet::parse(&header[..short]), None, "{short} bytes");
            }
        }
    }

    #[test]
    fn tags_are_pushed_outside_and_popped_if_they_are_the_same() {
        let frame = Ethernet { tags: Tag::stack(&[5]), ..Ethernet::default() }.header(IPV4);
        let mut pushed = frame.clone();
        push_tags(&mut pushed, &Tag::stack(&[7, 9]));
        let (ethernet, _) = Ethernet::parse(&pushed).unwrap();
        assert_eq!(ethernet.tags, [Tag::service(7), Tag::vlan(9), Tag::vlan(5)]);
        assert!(!pop_tags(&mut pushed, &[Tag::service(8)]) && pop_tags(&mut pushed, &Tag::stack(&[7, 9])));
        assert_eq!(pushed, frame);
    }

    #[test]
    fn the_outer_one_of_two_tags_is_a_service_tag() {
        assert_eq!(Tag::stack(&[7, 5]), [Tag::service(7), Tag::vlan(5)]);
        assert_eq!(Tag::stack(&[5]), [Tag::vlan(5)]);
    }

    #[test]
    fn a_key_has_the_tag_without_its_priority() {
        let tag = Tag { priority: 3, ..Tag::service(9) };
        assert_eq!(Tag::from_key_bits(tag.key_bits()), Some(Tag::service(9)));
        assert_eq!(Tag::from_key_bits(Tag::vlan(0).key_bits()), Some(Tag::vlan(0)));
        assert_eq!(Tag::from_key_bits(0), None);
    }
}
