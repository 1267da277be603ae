//! Finds the devices on which packet sockets capture.

use crate::{
    Error,
    netlink_channel::Channel,
    netlink_message::{Attrs, u16_at},
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use nix::libc;
use std::{collections::BTreeSet, fs};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const PACKET_SHOW_INFO: u32 = 1;
const PACKET_SHOW_RING_CFG: u32 = 4;
const PACKET_SHOW_FILTER: u32 = 0x20;

/// The size of struct packet_diag_msg.
const MESSAGE_BYTES: usize = 16;
const PACKET_DIAG_INFO: u16 = 0;
const PACKET_DIAG_RX_RING: u16 = 2;
const PACKET_DIAG_FILTER: u16 = 7;
/// The size of struct sock_filter. A filter of one instruction accepts everything or nothing.
const INSTRUCTION_BYTES: usize = 8;

const ETH_P_ALL: u16 = 3;
/// The protocols whose packet sockets receive forwarded packets.
const FORWARDED: [u16; 6] = [ETH_P_ALL, 0x0800, 0x86dd, 0x8100, 0x88a8, 0x8864];

const PROC: &str = "/proc/net/packet";

/// How packet sockets are listed.
pub(crate) enum PacketSockets {
    Diag(Channel),
    /// By /proc/net/packet, because the kernel lacks packet_diag. The filters of the sockets are not visible.
    Proc,
}

impl PacketSockets {
    pub fn open() -> Result<Self, Error> {
        let mut channel = Channel::open(NETLINK_SOCK_DIAG, "NETLINK_SOCK_DIAG")?;
        match list(&mut channel) {
            Ok(_) => Ok(Self::Diag(channel)),
            Err(Error::Refused { .. }) => Ok(Self::Proc),
            Err(e) => Err(e),
        }
    }

    /// The devices on which forwarded packets are captured; 0 stands for all devices.
    pub fn captured(&mut self) -> Result<BTreeSet<u32>, Error> {
        match self {
            Self::Diag(channel) => list(channel),
            Self::Proc => fs::read_to_string(PROC)
                .map(|text| text.lines().skip(1).filter_map(captured_by_proc_line).collect())
                .map_err(|source| Error::Proc { path: PROC, source }),
        }
    }
}

fn list(channel: &mut Channel) -> Result<BTreeSet<u32>, Error> {
    let mut request = [0; 20];
    request[0] = libc::AF_PACKET as u8;
    request[8..12]
        .copy_from_slice(&(PACKET_SHOW_INFO | PACKET_SHOW_RING_CFG | PACKET_SHOW_FILTER).to_ne_bytes());
    let answers = channel.dump("packet_diag", SOCK_DIAG_BY_FAMILY, &request)?;
    Ok(answers.iter().filter_map(|answer| captured(&answer.payload)).collect())
}

/// The device of a socket that captures forwarded packets; `None` for other sockets.
///
/// DHCP clients and servers, LLDP and EAPOL daemons keep packet sockets open as long as a router runs, some of them
/// (dhclient, lldpd) for all protocols. They read one protocol of the router itself, through a filter and packet by
/// packet. So a socket counts if forwarded packets can reach it and it has either no filter or a receive ring: libpcap
/// always maps a ring. Promiscuous mode is no criterion: `tcpdump -i any` and `tcpdump -p` do not set it.
pub(crate) fn captured(payload: &[u8]) -> Option<u32> {
    let attrs = Attrs::after(payload, MESSAGE_BYTES);
    let filtered = attrs.get(PACKET_DIAG_FILTER).is_some_and(|program| program.len() > INSTRUCTION_BYTES);
    let reads = !filtered || attrs.has(PACKET_DIAG_RX_RING);
    (FORWARDED.contains(&u16_at(payload, 2)?) && reads).then(|| attrs.u32(PACKET_DIAG_INFO))?
}

/// The same from a line of /proc/net/packet: sk, references, type, protocol, device, ... Filters are not visible there,
/// so only sockets for all protocols count; sockets for IP mostly belong to DHCP clients.
pub(crate) fn captured_by_proc_line(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(3);
    let protocol = u16::from_str_radix(words.next()?, 16).ok()?;
    let ifindex = words.next()?.parse().ok()?;
    (protocol == ETH_P_ALL).then_some(ifindex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::{Batch, Messages};

    fn socket(protocol: u16, instructions: usize, ring: bool) -> Option<u32> {
        let mut fixed = [0; MESSAGE_BYTES];
        fixed[2..4].copy_from_slice(&protocol.to_ne_bytes());
        let mut batch = Batch::default();
        batch.message(SOCK_DIAG_BY_FAMILY, 0, 0, &fixed);
        batch.put(PACKET_DIAG_INFO, &[[7, 0, 0, 0], [0; 4]].concat());
        if ring {
            batch.put(PACKET_DIAG_RX_RING, &[0; 28]);
        }
        if instructions > 0 {
            batch.put(PACKET_DIAG_FILTER, &vec![0; instructions * INSTRUCTION_BYTES]);
        }
        captured(Messages(batch.bytes()).next().unwrap().unwrap().payload)
    }

    #[test]
    fn sockets_that_forwarded_packets_reach_count_as_captures() {
        assert_eq!(socket(ETH_P_ALL, 0, false), Some(7), "a raw capture program");
        assert_eq!(socket(ETH_P_ALL, 1, true), Some(7), "tcpdump");
        assert_eq!(socket(ETH_P_ALL, 24, true), Some(7), "tcpdump udp port 53");
        assert_eq!(socket(0x86dd, 0, false), Some(7), "IPv6 only");
    }

    #[test]
    fn sockets_of_protocol_daemons_do_not_count_as_captures() {
        assert_eq!(socket(ETH_P_ALL, 11, false), None, "dhclient");
        assert_eq!(socket(0x0800, 14, false), None, "systemd-networkd");
        assert_eq!(socket(0x88cc, 0, false), None, "LLDP");
        assert_eq!(socket(0x0806, 0, false), None, "ARP");
        assert_eq!(socket(0, 0, false), None, "a socket that only sends");
    }

    #[test]
    fn without_packet_diag_only_sockets_for_all_protocols_count() {
        let line = |protocol| format!("0000000000000000 3      3    {protocol}   2     1 0      0      4711");
        assert_eq!(captured_by_proc_line(&line("0003")), Some(2));
        assert_eq!(captured_by_proc_line(&line("0800")), None);
        assert_eq!(
            captured_by_proc_line("sk               RefCnt Type Proto  Iface R Rmem   User   Inode"),
            None
        );
    }
}
