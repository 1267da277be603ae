//! Corrects the entries of TCP connections when conntrack has missed so many packets that it misjudges a FIN or RST.

use super::{
    BE_LIBERAL, CHANGE, CTA_PROTOINFO, CTA_PROTOINFO_TCP, CTA_PROTOINFO_TCP_FLAGS_ORIGINAL,
    CTA_PROTOINFO_TCP_FLAGS_REPLY, CTA_PROTOINFO_TCP_STATE, CTA_TIMEOUT, CTA_TUPLE_ORIG, Conntrack,
    ESTABLISHED, GET, HEADER_BYTES, Standing,
};
use crate::{
    ConntrackTimeouts, Error,
    netlink_message::{Attrs, Batch},
};
use shunt_core::{Correction, CorrectionKind, TrackedDirection};
use std::{collections::HashSet, time::Duration};

/// TCP_CONNTRACK_CLOSE, the highest state that a connection can have once it was established.
const CLOSE: u8 = 8;
/// IP_CT_TCP_FLAG_CLOSE_INIT: a FIN was seen.
const CLOSE_INIT: u8 = 0x04;
/// IP_CT_TCP_FLAG_MAXACK_SET: td_maxack is valid, and conntrack ignores an RST with a lower sequence number.
const MAXACK_SET: u8 = 0x20;

/// Entries in one send. Each answer takes a buffer of a page, and all answers must fit into SO_RCVBUF.
const BATCH: usize = 32;

/// A correction of a conntrack entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Clear MAXACK_SET of a direction, so that conntrack believes any RST of the other direction.
    ForgetMaxack { reply: bool },
    /// Close the connection.
    Close,
    /// Return the connection to ESTABLISHED, with this timeout.
    Reopen { left: Duration },
}

/// The state of a connection in conntrack, and its CTA_TUPLE_ORIG, which identifies the connection.
#[derive(Debug, Clone)]
struct Found {
    standing: Standing,
    orig: Vec<u8>,
}

impl Conntrack {
    /// See [`crate::Linux::correct`]. Skips connections that conntrack does not know any more.
    pub fn correct(
        &mut self,
        due: &[Correction],
        later: &[Correction],
        timeouts: ConntrackTimeouts,
    ) -> Result<(), Error> {
        let found = self.find(due)?;
        let found_later = self.find(later)?;
        let ended: HashSet<&[u8]> = due
            .iter()
            .zip(&found)
            .chain(later.iter().zip(&found_later))
            .filter(|(correction, _)| correction.kind == CorrectionKind::Ended)
            .filter_map(|(_, found)| Some(found.as_ref()?.orig.as_slice()))
            .collect();
        let changes: Vec<(TrackedDirection, Change)> = due
            .iter()
            .zip(&found)
            .filter_map(|(correction, found)| {
                let found = found.as_ref()?;
                let change =
                    change(correction, found.standing, ended.contains(found.orig.as_slice()), timeouts)?;
                Some((correction.of, change))
            })
            .collect();
        for batch in changes.chunks(BATCH) {
            let sent = self.send_batch(CHANGE, batch, |batch, change| put_change(batch, *change))?;
            self.receive_answers(&sent, |_, _| {})?;
        }
        Ok(())
    }

    /// Reads the entry of each correction; `None` for connections that conntrack does not know.
    fn find(&mut self, corrections: &[Correction]) -> Result<Vec<Option<Found>>, Error> {
        let mut found = Vec::with_capacity(corrections.len());
        for batch in corrections.chunks(BATCH) {
            let requests: Vec<(TrackedDirection, ())> = batch.iter().map(|c| (c.of, ())).collect();
            let sent = self.send_batch(GET, &requests, |_, ()| {})?;
            let mut answers = Vec::with_capacity(batch.len());
            self.receive_answers(&sent, |tracked, payload| {
                let orig = Attrs::after(payload, HEADER_BYTES).get(CTA_TUPLE_ORIG);
                if let (Some(standing), Some(orig)) = (Standing::parse(payload), orig) {
                    answers.push((tracked, Found { standing, orig: orig.to_vec() }));
                }
            })?;
            found.extend(batch.iter().map(|correction| {
                answers.iter().find(|(tracked, _)| *tracked == correction.of).map(|(_, found)| found.clone())
            }));
        }
        Ok(found)
    }
}

/// The change that a correction requires; `None` if the entry is right. `ended` says that a genuine FIN or RST was seen
/// as well.
fn change(
    correction: &Correction,
    standing: Standing,
    ended: bool,
    timeouts: ConntrackTimeouts,
) -> Option<Change> {
    let Standing { state, left } = standing;
    // An RST that conntrack saw gives the entry this timeout, in any state. A rule may have dropped the RST before.
    let reset = left <= timeouts.tcp_close;
    let idle = Duration::from_secs(correction.idle_s.into());
    let reopen = |time: Duration| Change::Reopen { left: time.max(left) };
    match correction.kind {
        CorrectionKind::Lags => Some(Change::ForgetMaxack { reply: correction.of.reply }),
        CorrectionKind::Ended => (state == ESTABLISHED && reset).then_some(Change::Close),
        // If the connection is alive, a challenge ACK follows and restores the full timeout.
        CorrectionKind::Near => {
            (state == CLOSE && reset && !ended).then(|| reopen(timeouts.tcp_unacknowledged))
        }
        // Without Shunt, Linux would believe the packet too, except while MAXACK_SET is clear.
        CorrectionKind::Blind if timeouts.tcp_be_liberal => {
            (state == CLOSE && reset && !ended).then(|| reopen(left))
        }
        CorrectionKind::Blind => {
            let believed = if state == ESTABLISHED { reset } else { (ESTABLISHED..=CLOSE).contains(&state) };
            (believed && !ended).then(|| reopen(timeouts.tcp_established.saturating_sub(idle)))
        }
    }
}

fn put_change(batch: &mut Batch, change: Change) {
    let both = |tcp: &mut Batch, flags: [u8; 2]| {
        tcp.put(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &flags);
        tcp.put(CTA_PROTOINFO_TCP_FLAGS_REPLY, &flags);
    };
    if let Change::Reopen { left } = change {
        let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
        batch.put(CTA_TIMEOUT, &seconds.to_be_bytes());
    }
    batch.nest(CTA_PROTOINFO, |info| {
        info.nest(CTA_PROTOINFO_TCP, |tcp| match change {
            Change::ForgetMaxack { reply: false } => {
                tcp.put(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &[0, MAXACK_SET])
            }
            Change::ForgetMaxack { reply: true } => tcp.put(CTA_PROTOINFO_TCP_FLAGS_REPLY, &[0, MAXACK_SET]),
            Change::Close => tcp.put(CTA_PROTOINFO_TCP_STATE, &[CLOSE]),
            Change::Reopen { .. } => {
                tcp.put(CTA_PROTOINFO_TCP_STATE, &[ESTABLISHED]);
                both(tcp, [BE_LIBERAL, BE_LIBERAL | CLOSE_INIT]);
            }
        });
    });
}

#[cfg(test)]
mod tests;
