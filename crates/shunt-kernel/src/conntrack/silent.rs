//! TCP connections that have fallen silent after conntrack has missed their last acknowledgements.

use super::{
    BE_LIBERAL, CHANGE, CTA_PROTOINFO, CTA_PROTOINFO_TCP, CTA_TUPLE_ORIG, Conntrack, family, put_flags,
    put_tuple,
};
use crate::{
    ConntrackTimeouts, Error,
    wire::{Attrs, Batch, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR},
};
use shunt_core::Silent;
use std::time::Duration;

/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET.
const GET: u16 = 1 << 8 | 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TIMEOUT: u16 = 7;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
const ESTABLISHED: u8 = 3;
/// struct nfgenmsg, before the attributes.
const HEADER_BYTES: usize = 4;

/// Entries for one send. Each comes back in a buffer of a page, and all of them must fit into SO_RCVBUF.
const AT_ONCE: usize = 32;

/// IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED: while it is set, each packet gives the connection the shorter timeout.
const UNACKNOWLEDGED: u8 = 0x10;
/// Liberal, and nothing to be acknowledged.
const SETTLED: [u8; 2] = [BE_LIBERAL, BE_LIBERAL | UNACKNOWLEDGED];

/// A connection and the time that it has left.
type Left = (Silent, Duration);

impl Conntrack {
    /// See [`crate::Linux::keep_silent`]. What conntrack does not know any more is left out.
    pub fn keep_silent(&mut self, silent: &[Silent], timeouts: ConntrackTimeouts) -> Result<(), Error> {
        if timeouts.tcp_established <= timeouts.tcp_unacknowledged {
            return Ok(());
        }
        // Both count from the last packet that conntrack has seen.
        let more = timeouts.tcp_established - timeouts.tcp_unacknowledged;
        for some in silent.chunks(AT_ONCE) {
            let early = self.forgotten_early(some, timeouts.tcp_unacknowledged)?;
            let sent = self.batch(CHANGE, &early, |batch, (_, left)| {
                let seconds = u32::try_from((*left + more).as_secs()).unwrap_or(u32::MAX);
                batch.put(CTA_TIMEOUT, &seconds.to_be_bytes());
                put_flags(batch, SETTLED);
            })?;
            self.answers(&sent, |_, _| {})?;
        }
        Ok(())
    }

    /// Those that are established, and have no more time left than unacknowledged data would give them. A rule may have
    /// given a connection a timeout of its own, and one that has ended since has another state.
    fn forgotten_early(&mut self, silent: &[Silent], at_most: Duration) -> Result<Vec<Left>, Error> {
        let asked: Vec<Left> = silent.iter().map(|silent| (*silent, at_most)).collect();
        let sent = self.batch(GET, &asked, |_, _| {})?;
        let mut early = Vec::new();
        self.answers(&sent, |silent, payload| {
            let attrs = Attrs::after(payload, HEADER_BYTES);
            let state = attrs.nested(CTA_PROTOINFO).nested(CTA_PROTOINFO_TCP).u8(CTA_PROTOINFO_TCP_STATE);
            let left = attrs.u32(CTA_TIMEOUT).map(|be| Duration::from_secs(u32::from_be(be).into()));
            early.extend(
                left.filter(|left| state == Some(ESTABLISHED) && *left <= at_most).map(|left| (silent, left)),
            );
        })?;
        Ok(early)
    }

    /// One message for each, in one send; the last asks for an answer, and the kernel works them off in order.
    fn batch(
        &mut self,
        kind: u16,
        silent: &[Left],
        more: impl Fn(&mut Batch, &Left),
    ) -> Result<Vec<(u32, Silent)>, Error> {
        let mut sent = Vec::with_capacity(silent.len());
        self.batch.clear();
        for (i, one) in silent.iter().enumerate() {
            let Silent { direction, reply } = one.0;
            let family = family(&direction).ok_or(Error::NotTcp(direction))?;
            let ack = if i + 1 == silent.len() { NLM_F_ACK } else { 0 };
            let seq = self.channel.number();
            self.batch.message(kind, NLM_F_REQUEST | ack, seq, &[family, 0, 0, 0]);
            put_tuple(&mut self.batch, if reply { CTA_TUPLE_REPLY } else { CTA_TUPLE_ORIG }, &direction);
            more(&mut self.batch, one);
            sent.push((seq, one.0));
        }
        if !sent.is_empty() {
            self.channel.send(&self.batch)?;
        }
        Ok(sent)
    }

    /// Hands over what answers a batch, up to the word about its last message.
    fn answers(&mut self, sent: &[(u32, Silent)], mut each: impl FnMut(Silent, &[u8])) -> Result<(), Error> {
        let Some((last, _)) = sent.last() else { return Ok(()) };
        let mut done = false;
        while !done {
            self.channel.receive(|message| {
                if message.kind == NLMSG_ERROR {
                    done |= message.seq == *last;
                } else if let Some((_, silent)) = sent.iter().find(|(seq, _)| *seq == message.seq) {
                    each(*silent, message.payload);
                }
            })?;
        }
        Ok(())
    }
}
