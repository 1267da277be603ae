//! What a check asks of a partner: the agent on the machine at the other end of the cable, which lends a port.
//!
//! The list is closed. A partner runs no other command, changes only the settings in [`PortCommand`], and sends and
//! shows only frames that a check makes.

use serde::{Deserialize, Serialize};
use shunt_lab::net::Frame;
use shunt_wire::encap;
use std::fmt;

/// EtherType for local experiments (IEEE 802, 88B5): no stack takes such frames.
pub(super) const ETHERTYPE: u16 = 0x88b5;
/// Source address of the IPv4 packets of a check. The stack at the other end drops packets from 127.0.0.1 that arrive
/// through a cable, and answers none.
pub(super) const SOURCE: [u8; 4] = [127, 0, 0, 1];
/// Destination address of the IPv4 packets of a check (TEST-NET-1).
pub(super) const DESTINATION: [u8; 4] = [192, 0, 2, 2];
/// Bytes before the packet in a frame without a tag.
const UNTAGGED: usize = encap::header_bytes(0);
/// Offset of the source address in an IPv4 frame without tags.
const ADDRESSES_AT: usize = 26;
/// The offloads that a check turns on and off at both ends.
const OFFLOADS: [&str; 3] = ["tx", "tcp-segmentation-offload", "generic-receive-offload"];

/// A port that an agent on another machine lends.
pub trait Partner: fmt::Debug + fmt::Display + Send + Sync {
    /// The name of the port there.
    fn port(&self) -> &str;
    /// Has the partner carry out a request. Once the partner is lost, fails at once.
    ///
    /// # Errors
    /// If the partner refuses the request or is lost.
    fn call(&self, request: Request) -> Result<Answer, String>;
    /// Why the partner no longer answers; None while it does.
    fn lost(&self) -> Option<String>;
}

/// A request of one check for the port that the agent lends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// A number of the check's choice, by which the agent knows its requests.
    pub check: u64,
    /// The name of the port.
    pub port: String,
    /// What to do.
    pub request: Request,
}

/// What a partner can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Save the settings of the port and open a raw socket on it, for one case.
    Begin,
    /// Run a command about the port.
    Run(PortCommand),
    /// Send frames, one directly after the other.
    Send(Vec<Bytes>),
    /// Send a frame behind a `struct virtio_net_hdr`.
    SendDescribed([u8; 10], Bytes),
    /// Wait this many milliseconds for a frame, and return all that have arrived.
    Receive(u64),
    /// Count frames with these bytes for this many milliseconds from the first one on.
    Count(Bytes, u64),
    /// Close the socket and restore the settings.
    End,
}

/// What a partner answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The settings are saved, and the socket is open. Whether the port is up.
    Begun(bool),
    /// What the command printed.
    Printed(String),
    /// Everything was sent, or restored.
    Done,
    /// The frames that arrived; frames of other senders without their bytes.
    Received(Vec<ArrivedFrame>),
    /// The frames counted after the first one, and their time in nanoseconds.
    Counted(usize, u64),
    /// The port did not take the frame with this number, counted from 0, with the reason.
    NotSent(usize, String),
    /// The request could not be carried out, with the reason.
    Refused(String),
}

/// A command about a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortCommand {
    /// Show the device and its counters.
    Show,
    /// Show speed, duplex and modes.
    Modes,
    /// Show which offloads are on.
    Features,
    /// Turn promiscuous mode on.
    Promisc,
    /// Set the MTU.
    Mtu(u32),
    /// Turn an offload on or off.
    Offload(String, bool),
}

/// The bytes of a frame; hexadecimal digits in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bytes(pub Vec<u8>);

/// A frame that arrived at the partner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArrivedFrame {
    bytes: Bytes,
    #[serde(default, skip_serializing_if = "is_false")]
    unfinished: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    verified: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    for_other: bool,
}

impl PortCommand {
    /// The command line for a port; an error if no check turns this offload on and off.
    pub(super) fn line(&self, port: &str) -> Result<String, String> {
        Ok(match self {
            Self::Show => format!("ip -details -statistics -json link show dev {port}"),
            Self::Modes => format!("ethtool {port}"),
            Self::Features => format!("ethtool -k {port}"),
            Self::Promisc => format!("ip link set {port} promisc on"),
            Self::Mtu(bytes) => format!("ip link set {port} mtu {bytes}"),
            Self::Offload(name, on) if OFFLOADS.contains(&name.as_str()) => {
                format!("ethtool -K {port} {name} {}", if *on { "on" } else { "off" })
            }
            Self::Offload(name, _) => return Err(format!("no check changes the offload `{name}`")),
        })
    }
}

impl ArrivedFrame {
    pub(super) fn from_frame(frame: Frame) -> Self {
        let Frame { bytes, unfinished, verified, for_other } = frame;
        let bytes = Bytes(if is_of_check(&bytes) { bytes } else { Vec::new() });
        Self { bytes, unfinished, verified, for_other }
    }

    pub(super) fn into_frame(self) -> Frame {
        let Self { bytes: Bytes(bytes), unfinished, verified, for_other } = self;
        Frame { bytes, unfinished, verified, for_other }
    }
}

/// Whether a frame is one that a check sends, perhaps changed on its way: no stack takes such frames or answers them.
pub(super) fn is_of_check(frame: &[u8]) -> bool {
    match encap::payload(frame) {
        Some((ETHERTYPE, _)) => true,
        Some((0x0800, UNTAGGED)) => {
            frame.get(ADDRESSES_AT..ADDRESSES_AT + 8) == Some(&[SOURCE, DESTINATION].concat()[..])
        }
        _ => false,
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl From<Bytes> for String {
    fn from(Bytes(bytes): Bytes) -> Self {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
        bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
    }
}

impl TryFrom<String> for Bytes {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0);
        let digits = digits.ok_or("expected the bytes of a frame as an even number of hexadecimal digits")?;
        Ok(Self(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_hexadecimal_digits() {
        let all = Bytes((0..=255).collect());
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.starts_with("\"000102") && text.ends_with("feff\""), "{text}");
        assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), all);
        for wrong in ["\"0\"", "\"0g\"", "[1]", "\"0é\""] {
            assert!(serde_json::from_str::<Bytes>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_partner_sends_and_shows_only_frames_of_a_check() {
        let ipv4 = |source: [u8; 4], to: [u8; 4]| {
            [&[2; 12][..], &[8, 0, 0x45, 0, 0, 28], &[0; 8], &source, &to, &[0; 8]].concat()
        };
        let ours = [&[2; 12][..], &[0x81, 0, 0, 7, 0x88, 0xb5, 0, 0]].concat();
        assert!(is_of_check(&ours) && is_of_check(&ipv4(SOURCE, DESTINATION)));
        let arp = [&[2; 12][..], &[8, 6, 0, 1]].concat();
        for other in [arp, ipv4([192, 0, 2, 1], DESTINATION), ipv4(SOURCE, [192, 0, 2, 3]), vec![0x88; 13]] {
            assert!(!is_of_check(&other), "{other:?}");
            let frame = Frame { bytes: other, unfinished: false, verified: true, for_other: false };
            assert!(ArrivedFrame::from_frame(frame).into_frame().bytes.is_empty());
        }
    }

    #[test]
    fn a_partner_changes_only_the_offloads_of_a_check() {
        let line = |name: &str| PortCommand::Offload(name.to_owned(), true).line("p0");
        assert_eq!(line("tx").unwrap(), "ethtool -K p0 tx on");
        for other in ["rx", "tx off lro", "--help", ""] {
            assert!(line(other).unwrap_err().contains(other), "{other}");
        }
        assert!(serde_json::from_str::<PortCommand>(r#"{"shell":"reboot"}"#).is_err());
    }
}
