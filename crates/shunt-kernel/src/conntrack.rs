//! Reads conntrack entries and changes existing ones, over ctnetlink.

mod corrections;
pub(crate) mod counts;
mod silent;
pub(crate) mod table;

use crate::{
    Error, Liberal,
    netlink_channel::Channel,
    netlink_message::{AF_INET, AF_INET6, Attrs, Batch, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, errno},
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;
use shunt_core::{Connection, Proto, TrackedDirection};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW. Without NLM_F_CREATE the message changes an existing entry, and only the
/// fields for which it has attributes.
const CHANGE: u16 = 1 << 8;

/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET.
const GET: u16 = 1 << 8 | 1;

pub(crate) const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TIMEOUT: u16 = 7;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
pub(crate) const CTA_PROTOINFO: u16 = 4;
pub(crate) const CTA_TUPLE_IP: u16 = 1;
pub(crate) const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
pub(crate) const CTA_PROTO_NUM: u16 = 1;
pub(crate) const CTA_PROTO_SRC_PORT: u16 = 2;
pub(crate) const CTA_PROTO_DST_PORT: u16 = 3;
pub(crate) const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;

/// TCP_CONNTRACK_ESTABLISHED.
const ESTABLISHED: u8 = 3;
/// The size of struct nfgenmsg, which precedes the attributes.
const HEADER_BYTES: usize = 4;

const BE_LIBERAL: u8 = 0x08;
/// struct nf_ct_tcp_flags: the flags and the mask of flags to change.
const FLAGS: [u8; 2] = [BE_LIBERAL; 2];

/// Messages in one send. A message has about 130 bytes, so the batch is well below any SO_SNDBUF, and its errors are
/// below any SO_RCVBUF.
const BATCH: usize = 128;

/// A ctnetlink socket.
pub(crate) struct Conntrack {
    channel: Channel,
    batch: Batch,
}

impl Conntrack {
    pub fn open() -> Result<Self, Error> {
        Ok(Self { channel: Channel::open(NETLINK_NETFILTER, "NETLINK_NETFILTER")?, batch: Batch::default() })
    }

    /// See [`crate::Linux::set_be_liberal`].
    pub fn set_be_liberal(&mut self, connections: &[Connection]) -> Vec<Result<Liberal, Error>> {
        let mut results = Vec::with_capacity(connections.len());
        for batch in connections.chunks(BATCH) {
            self.set_batch_liberal(batch, &mut results);
        }
        results
    }

    /// The kernel processes a batch in order, within send(), and answers messages that fail or that request an
    /// acknowledgement. Only the last message requests one; no answer to another message means success.
    fn set_batch_liberal(&mut self, connections: &[Connection], results: &mut Vec<Result<Liberal, Error>>) {
        let first = results.len();
        let last = connections.iter().rposition(|c| family(c).is_some());
        let mut sent = Vec::with_capacity(connections.len());
        self.batch.clear();
        for (i, connection) in connections.iter().enumerate() {
            let Some(family) = family(connection) else {
                results.push(Err(Error::NotTcp(*connection)));
                continue;
            };
            let ack = if Some(i) == last { NLM_F_ACK } else { 0 };
            let seq = self.channel.next_seq();
            self.batch.message(CHANGE, NLM_F_REQUEST | ack, seq, &[family, 0, 0, 0]);
            put_tuple(&mut self.batch, CTA_TUPLE_ORIG, connection);
            put_flags(&mut self.batch, FLAGS);
            sent.push((seq, first + i));
            results.push(Ok(Liberal::Set));
        }
        if sent.is_empty() {
            return;
        }
        if let Err(e) = self.send_and_collect(&sent, results) {
            let (protocol, code) = match &e {
                Error::Socket { protocol, source } => (*protocol, source.raw_os_error()),
                _ => ("NETLINK_NETFILTER", None),
            };
            for (_, at) in sent {
                let source =
                    code.map_or_else(|| io::Error::other(e.to_string()), io::Error::from_raw_os_error);
                results[at] = Err(Error::Socket { protocol, source });
            }
        }
    }

    /// Sends one message for each direction, all in one send. `put_attrs` adds attributes to a message. The last
    /// message requests an acknowledgement. Returns the sequence number of each message.
    fn send_batch<T>(
        &mut self,
        kind: u16,
        directions: &[(TrackedDirection, T)],
        put_attrs: impl Fn(&mut Batch, &T),
    ) -> Result<Vec<(u32, TrackedDirection)>, Error> {
        let mut sent = Vec::with_capacity(directions.len());
        self.batch.clear();
        for (i, (tracked, argument)) in directions.iter().enumerate() {
            let TrackedDirection { direction, reply } = tracked;
            let family = family(direction).ok_or(Error::NotTcp(*direction))?;
            let ack = if i + 1 == directions.len() { NLM_F_ACK } else { 0 };
            let seq = self.channel.next_seq();
            self.batch.message(kind, NLM_F_REQUEST | ack, seq, &[family, 0, 0, 0]);
            put_tuple(&mut self.batch, if *reply { CTA_TUPLE_REPLY } else { CTA_TUPLE_ORIG }, direction);
            put_attrs(&mut self.batch, argument);
            sent.push((seq, *tracked));
        }
        if !sent.is_empty() {
            self.channel.send(&self.batch)?;
        }
        Ok(sent)
    }

    /// Passes the entries that answer a batch to `each`, until the acknowledgement of the last message.
    fn receive_answers(
        &mut self,
        sent: &[(u32, TrackedDirection)],
        mut each: impl FnMut(TrackedDirection, &[u8]),
    ) -> Result<(), Error> {
        let Some((last, _)) = sent.last() else { return Ok(()) };
        let mut done = false;
        while !done {
            self.channel.receive(|message| {
                if message.kind == NLMSG_ERROR {
                    done |= message.seq == *last;
                } else if let Some((_, tracked)) = sent.iter().find(|(seq, _)| *seq == message.seq) {
                    each(*tracked, message.payload);
                }
            })?;
        }
        Ok(())
    }

    fn send_and_collect(
        &mut self,
        sent: &[(u32, usize)],
        results: &mut [Result<Liberal, Error>],
    ) -> Result<(), Error> {
        self.channel.send(&self.batch)?;
        let last = sent.last().map(|(seq, _)| *seq);
        let mut done = false;
        while !done {
            self.channel.receive(|message| {
                if message.kind != NLMSG_ERROR {
                    return;
                }
                done |= Some(message.seq) == last;
                // Sequence numbers wrap around, so they are searched for; a batch is small.
                let at = sent.iter().find(|(seq, _)| *seq == message.seq).map(|(_, at)| *at);
                if let (Some(at), Some(code)) = (at, errno(message.payload)) {
                    results[at] = match code {
                        libc::ENOENT => Ok(Liberal::Gone),
                        code => {
                            let source = io::Error::from_raw_os_error(code);
                            Err(Error::Refused { request: "set BE_LIBERAL", source })
                        }
                    };
                }
            })?;
        }
        Ok(())
    }
}

/// The state and timeout of a TCP connection in conntrack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// `enum tcp_conntrack`.
    state: u8,
    /// The time until the entry expires.
    left: Duration,
}

impl Standing {
    fn parse(payload: &[u8]) -> Option<Self> {
        let attrs = Attrs::after(payload, HEADER_BYTES);
        let state = attrs.nested(CTA_PROTOINFO).nested(CTA_PROTOINFO_TCP).u8(CTA_PROTOINFO_TCP_STATE)?;
        let left = Duration::from_secs(u32::from_be(attrs.u32(CTA_TIMEOUT)?).into());
        Some(Self { state, left })
    }
}

fn family(connection: &Connection) -> Option<u8> {
    match (connection.proto, connection.src, connection.dst) {
        (Proto::Tcp, SocketAddr::V4(_), SocketAddr::V4(_)) => Some(AF_INET),
        (Proto::Tcp, SocketAddr::V6(_), SocketAddr::V6(_)) => Some(AF_INET6),
        (Proto::Tcp | Proto::Udp, _, _) => None,
    }
}

/// Adds the tuple of one direction.
fn put_tuple(batch: &mut Batch, which: u16, connection: &Connection) {
    batch.nest(which, |tuple| {
        tuple.nest(CTA_TUPLE_IP, |ip| {
            put_addr(ip, connection.src.ip(), CTA_IP_V4_SRC, CTA_IP_V6_SRC);
            put_addr(ip, connection.dst.ip(), CTA_IP_V4_DST, CTA_IP_V6_DST);
        });
        tuple.nest(CTA_TUPLE_PROTO, |l4| {
            l4.put(CTA_PROTO_NUM, &[libc::IPPROTO_TCP as u8]);
            l4.put(CTA_PROTO_SRC_PORT, &connection.src.port().to_be_bytes());
            l4.put(CTA_PROTO_DST_PORT, &connection.dst.port().to_be_bytes());
        });
    });
}

/// Adds the same TCP flags for both directions.
fn put_flags(batch: &mut Batch, flags: [u8; 2]) {
    batch.nest(CTA_PROTOINFO, |info| {
        info.nest(CTA_PROTOINFO_TCP, |tcp| {
            tcp.put(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &flags);
            tcp.put(CTA_PROTOINFO_TCP_FLAGS_REPLY, &flags);
        });
    });
}

fn put_addr(batch: &mut Batch, addr: IpAddr, v4: u16, v6: u16) {
    match addr {
        IpAddr::V4(addr) => batch.put(v4, &addr.octets()),
        IpAddr::V6(addr) => batch.put(v6, &addr.octets()),
    }
}

/// The source and destination address in CTA_TUPLE_IP.
pub(crate) fn parse_addresses(ip: Attrs) -> Option<(IpAddr, IpAddr)> {
    let v4 = ip.addr(CTA_IP_V4_SRC).zip(ip.addr(CTA_IP_V4_DST));
    v4.or_else(|| ip.addr(CTA_IP_V6_SRC).zip(ip.addr(CTA_IP_V6_DST)))
}
