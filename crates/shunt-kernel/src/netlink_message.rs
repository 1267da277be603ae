//! The netlink format: reads and writes messages and attributes.
//!
//! A reader looks only at the attributes it needs, so that new attributes and new lengths do not matter: a message that
//! could not be parsed would be a change that the policy misses.

use std::net::IpAddr;

pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;

pub(crate) const NLMSG_NOOP: u16 = 1;
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLMSG_OVERRUN: u16 = 4;

pub(crate) const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_BRIDGE: u8 = 7;
pub(crate) const AF_INET6: u8 = 10;

const HEADER_BYTES: usize = 16;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
    pub payload: &'a [u8],
}

/// The messages of a datagram. The last item is an error if the datagram ends within a message.
pub(crate) struct Messages<'a>(pub &'a [u8]);

/// The datagram ends within a message: it was longer than its buffer, or is not netlink.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Truncated;

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let Some(len) = u32_at(bytes, 0).map(|len| len as usize) else { return Some(Err(Truncated)) };
        let Some(payload) = bytes.get(HEADER_BYTES..len) else { return Some(Err(Truncated)) };
        self.0 = bytes.get(aligned(len)..).unwrap_or_default();
        let (Some(kind), Some(flags), Some(seq)) = (u16_at(bytes, 4), u16_at(bytes, 6), u32_at(bytes, 8))
        else {
            return Some(Err(Truncated));
        };
        Some(Ok(Message { kind, flags, seq, payload }))
    }
}

/// The attributes that follow the fixed part of a message, or are nested in an attribute. The list ends at the first
/// attribute whose length does not fit.
#[derive(Clone, Copy)]
pub(crate) struct Attrs<'a>(&'a [u8]);

impl<'a> Attrs<'a> {
    /// The attributes nested in an attribute with this value.
    pub fn new(nested: &'a [u8]) -> Self {
        Self(nested)
    }

    /// The attributes of `payload` that follow its first `fixed` bytes.
    pub fn after(payload: &'a [u8], fixed: usize) -> Self {
        Self(payload.get(aligned(fixed)..).unwrap_or_default())
    }

    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(k, _)| *k == kind).map(|(_, value)| value)
    }

    pub fn nested(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }

    pub fn has(self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    pub fn u8(self, kind: u16) -> Option<u8> {
        self.get(kind)?.first().copied()
    }

    pub fn u16(self, kind: u16) -> Option<u16> {
        u16_at(self.get(kind)?, 0)
    }

    pub fn u32(self, kind: u16) -> Option<u32> {
        u32_at(self.get(kind)?, 0)
    }

    /// A big-endian number, as netfilter uses.
    pub fn be32(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(kind)?.get(..4)?.try_into().ok()?))
    }

    pub fn be64(self, kind: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.get(kind)?.get(..8)?.try_into().ok()?))
    }

    pub fn u64(self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(self.get(kind)?.get(..8)?.try_into().ok()?))
    }

    pub fn text(self, kind: u16) -> Option<String> {
        let bytes = self.get(kind)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    pub fn addr(self, kind: u16) -> Option<IpAddr> {
        let bytes = self.get(kind)?;
        <[u8; 4]>::try_from(bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
            .ok()
    }
}

impl<'a> IntoIterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);
    type IntoIter = AttrsIter<'a>;

    fn into_iter(self) -> AttrsIter<'a> {
        AttrsIter(self.0)
    }
}

pub(crate) struct AttrsIter<'a>(&'a [u8]);

impl<'a> Iterator for AttrsIter<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.0);
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
        let value = bytes.get(4..len)?;
        self.0 = bytes.get(aligned(len)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Writes messages one after the other, for one send.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    start: usize,
}

impl Batch {
    /// Begins a message. `fixed` is the part before the attributes.
    pub fn message(&mut self, kind: u16, flags: u16, seq: u32, fixed: &[u8]) {
        self.start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(seq.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(fixed);
        self.close();
    }

    /// Adds an attribute to the message, or to the attribute that is being nested.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.close_attr(at);
    }

    /// Adds an attribute with the attributes that `inner` writes.
    pub fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend((kind | NLA_F_NESTED).to_ne_bytes());
        inner(self);
        self.close_attr(at);
    }

    /// The messages so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    fn close_attr(&mut self, at: usize) {
        let len = u16::try_from(self.bytes.len() - at).unwrap_or(u16::MAX);
        self.bytes[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self.close();
    }

    fn close(&mut self) {
        self.bytes.resize(aligned(self.bytes.len()), 0);
        let len = u32::try_from(self.bytes.len() - self.start).unwrap_or(u32::MAX);
        self.bytes[self.start..self.start + 4].copy_from_slice(&len.to_ne_bytes());
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The errno of an NLMSG_ERROR or NLMSG_DONE message; `None` for success.
pub(crate) fn errno(payload: &[u8]) -> Option<i32> {
    let code = i32::from_ne_bytes(payload.get(..4)?.try_into().ok()?);
    (code < 0).then(|| code.saturating_neg())
}

const fn aligned(len: usize) -> usize {
    (len + 3) & !3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_are_read_back() {
        let mut batch = Batch::default();
        batch.message(7, NLM_F_REQUEST, 1, &[9; 4]);
        batch.put(3, b"abc");
        batch.nest(5, |b| b.put(1, &42u32.to_ne_bytes()));
        batch.message(8, 0, 2, &[]);
        let messages: Vec<_> = Messages(batch.bytes()).map(|m| m.unwrap()).collect();
        assert_eq!(messages.iter().map(|m| (m.kind, m.seq)).collect::<Vec<_>>(), [(7, 1), (8, 2)]);
        let attrs = Attrs::after(messages[0].payload, 4);
        assert_eq!(attrs.get(3), Some(&b"abc"[..]));
        assert_eq!(attrs.nested(5).u32(1), Some(42));
        assert!(!attrs.has(4));
    }

    #[test]
    fn every_prefix_of_a_datagram_is_truncated() {
        let mut batch = Batch::default();
        batch.message(7, 0, 1, &[9; 4]);
        batch.put(3, b"abc");
        for len in 1..batch.bytes().len() {
            assert_eq!(Messages(&batch.bytes()[..len]).next().unwrap().err(), Some(Truncated), "{len}");
        }
    }

    #[test]
    fn only_negative_codes_are_errors() {
        let code_to_errno = |code: i32| errno(&code.to_ne_bytes());
        assert_eq!([0, 7, -2, i32::MIN].map(code_to_errno), [None, None, Some(2), Some(i32::MAX)]);
        assert_eq!(errno(&[1, 2, 3]), None);
    }

    #[test]
    fn an_attribute_that_does_not_fit_ends_the_list() {
        assert!(Attrs::new(&[200, 0, 1, 0, 5]).get(1).is_none());
        assert!(Attrs::new(&[2, 0, 1, 0, 5, 0, 0, 0]).get(1).is_none());
        assert_eq!(Attrs::new(&[5, 0, 1, 0, 5]).u8(1), Some(5));
    }
}
