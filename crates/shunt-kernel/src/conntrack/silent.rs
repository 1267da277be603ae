//! Extends the timeouts of silent TCP connections whose last acknowledgements conntrack has not seen.

use super::{BE_LIBERAL, CHANGE, CTA_TIMEOUT, Conntrack, ESTABLISHED, GET, Standing, put_flags};
use crate::{ConntrackTimeouts, Error};
use shunt_core::TrackedDirection;
use std::time::Duration;

/// Entries in one send. Each answer takes a buffer of a page, and all answers must fit into SO_RCVBUF.
const BATCH: usize = 32;

/// IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED: while it is set, each packet gives the connection the shorter timeout.
const UNACKNOWLEDGED: u8 = 0x10;
/// The flags and their mask: liberal, and no unacknowledged data.
const SETTLED: [u8; 2] = [BE_LIBERAL, BE_LIBERAL | UNACKNOWLEDGED];

/// A connection and the time until its entry expires.
type TimeLeft = (TrackedDirection, Duration);

impl Conntrack {
    /// See [`crate::Linux::keep_silent`]. Skips connections that conntrack does not know any more.
    pub fn keep_silent(
        &mut self,
        silent: &[TrackedDirection],
        timeouts: ConntrackTimeouts,
    ) -> Result<(), Error> {
        if timeouts.tcp_established <= timeouts.tcp_unacknowledged {
            return Ok(());
        }
        // Both timeouts start at the last packet that conntrack has seen.
        let extension = timeouts.tcp_established - timeouts.tcp_unacknowledged;
        for batch in silent.chunks(BATCH) {
            let early = self.early_to_expire(batch, timeouts.tcp_unacknowledged)?;
            let sent = self.send_batch(CHANGE, &early, |batch, left| {
                let seconds = u32::try_from((*left + extension).as_secs()).unwrap_or(u32::MAX);
                batch.put(CTA_TIMEOUT, &seconds.to_be_bytes());
                put_flags(batch, SETTLED);
            })?;
            self.receive_answers(&sent, |_, _| {})?;
        }
        Ok(())
    }

    /// The established connections that have no more time left than `at_most`, the timeout of unacknowledged data. This
    /// leaves out connections to which a rule gave another timeout, and connections that have ended since.
    fn early_to_expire(
        &mut self,
        silent: &[TrackedDirection],
        at_most: Duration,
    ) -> Result<Vec<TimeLeft>, Error> {
        let requests: Vec<TimeLeft> = silent.iter().map(|silent| (*silent, at_most)).collect();
        let sent = self.send_batch(GET, &requests, |_, _| {})?;
        let mut early = Vec::new();
        self.receive_answers(&sent, |silent, payload| {
            let standing = Standing::parse(payload);
            early.extend(
                standing.filter(|s| s.state == ESTABLISHED && s.left <= at_most).map(|s| (silent, s.left)),
            );
        })?;
        Ok(early)
    }
}
