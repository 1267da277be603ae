//! The JSON of iperf3.

use super::Direction;
use serde::{Deserialize, Serialize};

/// Datagrams behind the last one that arrived may be under way when the test ends. More of them than are sent in this time are
/// not.
const UNDER_WAY_S: f64 = 0.1;

/// What arrived of one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Arrived {
    /// Payload.
    pub bits_per_second: f64,
    /// Payload.
    pub bytes: u64,
    /// By the receiver's clock.
    pub seconds: f64,
    /// Segments of TCP that were sent again.
    pub retransmits: Option<u64>,
    /// Of UDP.
    pub datagrams: Option<Datagrams>,
}

/// What became of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Datagrams {
    /// By the sender.
    pub sent: u64,
    /// By the receiver.
    pub received: u64,
    /// Those that are missing before the last one that arrived. iperf3 tells of no others; where the rest is more than can be under way,
    /// it is lost too.
    pub lost: u64,
    /// Of those whose fate is known.
    pub loss_ratio: f64,
    /// RFC 1889's, as the receiver has it.
    pub jitter_ms: f64,
}

#[derive(Deserialize)]
struct Said {
    error: Option<String>,
    start: Start,
    end: End,
}

#[derive(Deserialize)]
struct Start {
    test_start: Option<TestStart>,
}

#[derive(Deserialize)]
struct TestStart {
    blksize: u64,
}

#[derive(Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sum_sent_bidir_reverse: Option<Sum>,
    sum_received_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bytes: u64,
    seconds: f64,
    retransmits: Option<u64>,
    /// Of UDP only.
    packets: Option<u64>,
    /// Packets that came after their successors are taken off again, and a copy is one of them.
    lost_packets: Option<i64>,
    jitter_ms: Option<f64>,
}

/// What arrived each way; or why that is not known.
pub(super) fn understand(text: &str, direction: Direction) -> Result<Vec<Arrived>, String> {
    let not_understood = |why: &str| format!("its JSON is not understood: {why}");
    let said: Said = serde_json::from_str(text).map_err(|why| match text.trim() {
        "" => "it said nothing".to_owned(),
        text => not_understood(&format!("{why}, of `{}`", shortened(text))),
    })?;
    if let Some(error) = said.error {
        return Err(error);
    }
    let datagram_bytes = said.start.test_start.map(|test| test.blksize);
    let End { sum_sent, sum_received, sum_sent_bidir_reverse, sum_received_bidir_reverse } = said.end;
    let mut pairs = vec![("", sum_sent, sum_received)];
    if direction == Direction::Duplex {
        pairs.push(("_bidir_reverse", sum_sent_bidir_reverse, sum_received_bidir_reverse));
    }
    let arrived = |(end, sent, received): (&str, Option<Sum>, Option<Sum>)| {
        let lacks = |what: &str| not_understood(&format!("end.{what}{end} is missing"));
        let sent = sent.ok_or_else(|| lacks("sum_sent"))?;
        let received = received.ok_or_else(|| lacks("sum_received"))?;
        if !(received.seconds > 0.0 && sent.seconds > 0.0) {
            return Err(not_understood("a test of no time"));
        }
        let datagrams = sent.packets.zip(datagram_bytes);
        Ok(Arrived {
            bits_per_second: received.bytes as f64 * 8.0 / received.seconds,
            bytes: received.bytes,
            seconds: received.seconds,
            retransmits: sent.retransmits,
            datagrams: datagrams.map(|(count, bytes)| Datagrams::of(count, sent.seconds, &received, bytes)),
        })
    };
    pairs.into_iter().map(arrived).collect()
}

impl Datagrams {
    fn of(sent: u64, seconds: f64, received: &Sum, datagram_bytes: u64) -> Self {
        let arrived = received.bytes / datagram_bytes.max(1);
        let missing = u64::try_from(received.lost_packets.unwrap_or(0)).unwrap_or(0);
        let unseen = sent.saturating_sub(arrived + missing);
        let under_way = sent as f64 / seconds * UNDER_WAY_S;
        let lost = if unseen as f64 > under_way { missing + unseen } else { missing };
        Self {
            sent,
            received: arrived,
            lost,
            loss_ratio: lost as f64 / (arrived + lost).max(1) as f64,
            jitter_ms: received.jitter_ms.unwrap_or(0.0),
        }
    }
}

/// As much of it as fits into a line.
pub(super) fn shortened(text: &str) -> String {
    const CHARS: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
