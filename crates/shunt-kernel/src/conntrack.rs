//! Changes to conntrack entries that exist, over ctnetlink.

mod silent;

use crate::{
    Error, Liberal,
    channel::Channel,
    wire::{AF_INET, AF_INET6, Attrs, Batch, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, errno},
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;
use shunt_core::{Connection, Proto};
use std::{
    io,
    net::{IpAddr, SocketAddr},
};

/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW. Without NLM_F_CREATE it changes what is there, and of that only what the
/// message has attributes for.
const CHANGE: u16 = 1 << 8;

pub(crate) const CTA_TUPLE_ORIG: u16 = 1;
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

const BE_LIBERAL: u8 = 0x08;
/// struct nf_ct_tcp_flags: the flags, and which of them to set.
const FLAGS: [u8; 2] = [BE_LIBERAL; 2];

/// Messages for one send: about 130 bytes each, so well below any SO_SNDBUF, and their errors below any SO_RCVBUF.
const AT_ONCE: usize = 128;

pub(crate) struct Conntrack {
    channel: Channel,
    batch: Batch,
}

impl Conntrack {
    pub fn open() -> Result<Self, Error> {
        Ok(Self { channel: Channel::open(NETLINK_NETFILTER, "NETLINK_NETFILTER")?, batch: Batch::default() })
    }

    pub fn set_be_liberal(&mut self, connections: &[Connection]) -> Vec<Result<Liberal, Error>> {
        let mut results = Vec::with_capacity(connections.len());
        for some in connections.chunks(AT_ONCE) {
            self.set_some(some, &mut results);
        }
        results
    }

    /// The kernel works a batch off in order, within the send, and answers for a message that fails or that asks for
    /// an answer. So the last one asks, and silence about another means success.
    fn set_some(&mut self, connections: &[Connection], results: &mut Vec<Result<Liberal, Error>>) {
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
            let seq = self.channel.number();
            self.batch.message(CHANGE, NLM_F_REQUEST | ack, seq, &[family, 0, 0, 0]);
            describe(&mut self.batch, connection);
            sent.push((seq, first + i));
            results.push(Ok(Liberal::Set));
        }
        if sent.is_empty() {
            return;
        }
        if let Err(e) = self.exchange(&sent, results) {
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

    fn exchange(
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
                // Numbers wrap around, so they are looked up rather than subtracted; a batch is small.
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

fn family(connection: &Connection) -> Option<u8> {
    match (connection.proto, connection.src, connection.dst) {
        (Proto::Tcp, SocketAddr::V4(_), SocketAddr::V4(_)) => Some(AF_INET),
        (Proto::Tcp, SocketAddr::V6(_), SocketAddr::V6(_)) => Some(AF_INET6),
        (Proto::Tcp | Proto::Udp, _, _) => None,
    }
}

fn describe(batch: &mut Batch, connection: &Connection) {
    put_tuple(batch, CTA_TUPLE_ORIG, connection);
    put_flags(batch, FLAGS);
}

/// One direction of a connection.
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

/// The same flags for both directions.
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

/// The source and destination within CTA_TUPLE_IP.
pub(crate) fn ip_of(ip: Attrs) -> Option<(IpAddr, IpAddr)> {
    let v4 = ip.addr(CTA_IP_V4_SRC).zip(ip.addr(CTA_IP_V4_DST));
    v4.or_else(|| ip.addr(CTA_IP_V6_SRC).zip(ip.addr(CTA_IP_V6_DST)))
}
