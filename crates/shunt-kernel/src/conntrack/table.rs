//! Reads conntrack's table, over ctnetlink, a piece at a time.

use crate::{
    Error,
    conntrack::{
        CTA_PROTO_DST_PORT, CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTOINFO, CTA_PROTOINFO_TCP,
        CTA_TUPLE_IP, CTA_TUPLE_ORIG, CTA_TUPLE_PROTO, parse_addresses,
    },
    netlink_channel::{Channel, Dump},
    netlink_message::{AF_INET6, AF_UNSPEC, Attrs},
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use shunt_api::{Counted, Family, Icmp, Tracked, TrackedDirection};
use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET.
pub(super) const GET: u16 = 1 << 8 | 1;
/// The size of struct nfgenmsg.
pub(super) const FIXED: usize = 4;

const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_HELP: u16 = 5;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_COUNTERS_ORIG: u16 = 9;
const CTA_COUNTERS_REPLY: u16 = 10;
const CTA_USE: u16 = 11;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_SECCTX: u16 = 19;
const CTA_TIMESTAMP: u16 = 20;
/// CTA_HELP_NAME and CTA_SECCTX_NAME.
const NAME: u16 = 1;
const CTA_TIMESTAMP_START: u16 = 1;
const CTA_COUNTERS_PACKETS: u16 = 1;
const CTA_COUNTERS_BYTES: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;
const CTA_PROTOINFO_SCTP: u16 = 3;
/// CTA_PROTOINFO_TCP_STATE and CTA_PROTOINFO_SCTP_STATE.
const STATE: u16 = 1;
/// The attributes of ICMP and of ICMPv6: identifier, type, code.
const ICMP: [[u16; 3]; 2] = [[4, 5, 6], [7, 8, 9]];

const TCP_STATES: [&str; 10] = [
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
];
const SCTP_STATES: [&str; 10] = [
    "NONE",
    "CLOSED",
    "COOKIE_WAIT",
    "COOKIE_ECHOED",
    "ESTABLISHED",
    "SHUTDOWN_SENT",
    "SHUTDOWN_RECD",
    "SHUTDOWN_ACK_SENT",
    "HEARTBEAT_SENT",
    "HEARTBEAT_ACKED",
];

/// Reads all entries of the calling thread's network namespace, in the kernel's order. Their `fast` counts are 0.
///
/// # Errors
/// When the kernel has no ctnetlink, or the process may not use it.
pub fn conntrack_table() -> Result<ConntrackTable, Error> {
    let channel = Channel::open(NETLINK_NETFILTER, "NETLINK_NETFILTER")?;
    let dump = channel.start_dump("IPCTNL_MSG_CT_GET", GET, &[AF_UNSPEC; FIXED])?;
    Ok(ConntrackTable { dump, read: VecDeque::new() })
}

/// The entries of the table, read a few hundred at a time as the iterator is asked for them. An entry that comes or
/// goes meanwhile may be missing. Nothing follows an error.
pub struct ConntrackTable {
    dump: Dump,
    /// Entries of the last piece.
    read: VecDeque<Tracked>,
}

impl Iterator for ConntrackTable {
    type Item = Result<Tracked, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.read.is_empty() {
            let (read, now) = (&mut self.read, SystemTime::now());
            match self.dump.next_piece(|message| read.extend(entry(message.payload, now))) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.read.clear();
                    return Some(Err(error));
                }
            }
        }
        self.read.pop_front().map(Ok)
    }
}

/// The entry of a message, with its age at the beginning of 1970.
pub(crate) fn parse(payload: &[u8]) -> Option<Tracked> {
    entry(payload, SystemTime::UNIX_EPOCH)
}

fn entry(payload: &[u8], now: SystemTime) -> Option<Tracked> {
    let attrs = Attrs::after(payload, FIXED);
    let (orig, protocol) = direction(attrs, CTA_TUPLE_ORIG, CTA_COUNTERS_ORIG)?;
    let (reply, _) = direction(attrs, CTA_TUPLE_REPLY, CTA_COUNTERS_REPLY)?;
    let info = attrs.nested(CTA_PROTOINFO);
    let state = |protocol: u16, names: &[&str]| {
        let state = info.nested(protocol).u8(STATE)?;
        Some((*names.get(usize::from(state)).unwrap_or(&names[0])).to_owned())
    };
    Some(Tracked {
        family: if payload.first() == Some(&AF_INET6) { Family::V6 } else { Family::V4 },
        protocol,
        orig,
        reply,
        timeout_s: be32(attrs, CTA_TIMEOUT),
        state: state(CTA_PROTOINFO_TCP, &TCP_STATES).or_else(|| state(CTA_PROTOINFO_SCTP, &SCTP_STATES)),
        status: be32(attrs, CTA_STATUS).unwrap_or(0),
        mark: be32(attrs, CTA_MARK),
        secctx: attrs.nested(CTA_SECCTX).text(NAME),
        zone: be16(attrs, CTA_ZONE),
        age_s: be64(attrs.nested(CTA_TIMESTAMP), CTA_TIMESTAMP_START).map(|start| age(now, start)),
        helper: attrs.nested(CTA_HELP).text(NAME),
        used: be32(attrs, CTA_USE).unwrap_or(0),
    })
}

/// The number by which the kernel tells entries apart, both directions, the protocol and the status bits.
pub(super) fn counts(payload: &[u8]) -> Option<(u32, TrackedDirection, TrackedDirection, u8, u32)> {
    let attrs = Attrs::after(payload, FIXED);
    let (orig, protocol) = direction(attrs, CTA_TUPLE_ORIG, CTA_COUNTERS_ORIG)?;
    let (reply, _) = direction(attrs, CTA_TUPLE_REPLY, CTA_COUNTERS_REPLY)?;
    Some((be32(attrs, CTA_ID)?, orig, reply, protocol, be32(attrs, CTA_STATUS).unwrap_or(0)))
}

fn direction(attrs: Attrs, tuple: u16, counters: u16) -> Option<(TrackedDirection, u8)> {
    let (tuple, counters) = (attrs.nested(tuple), attrs.nested(counters));
    let (src, dst) = parse_addresses(tuple.nested(CTA_TUPLE_IP))?;
    let l4 = tuple.nested(CTA_TUPLE_PROTO);
    let icmp = ICMP.iter().find_map(|[id, kind, code]| {
        Some(Icmp { id: be16(l4, *id)?, kind: l4.u8(*kind)?, code: l4.u8(*code)? })
    });
    let count = be64(counters, CTA_COUNTERS_PACKETS).zip(be64(counters, CTA_COUNTERS_BYTES));
    let direction = TrackedDirection {
        src,
        dst,
        sport: be16(l4, CTA_PROTO_SRC_PORT),
        dport: be16(l4, CTA_PROTO_DST_PORT),
        icmp,
        zone: be16(tuple, CTA_TUPLE_ZONE),
        count: count.map(|(packets, bytes)| Counted { packets, bytes }),
        fast: Counted::default(),
    };
    Some((direction, l4.u8(CTA_PROTO_NUM)?))
}

/// The age in seconds, as conntrack(8) computes it: the difference of two times in whole seconds.
fn age(now: SystemTime, start_ns: u64) -> u64 {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_secs().saturating_sub(Duration::from_nanos(start_ns).as_secs())
}

fn be16(attrs: Attrs, kind: u16) -> Option<u16> {
    attrs.u16(kind).map(u16::from_be)
}

fn be32(attrs: Attrs, kind: u16) -> Option<u32> {
    attrs.u32(kind).map(u32::from_be)
}

fn be64(attrs: Attrs, kind: u16) -> Option<u64> {
    attrs.u64(kind).map(u64::from_be)
}
