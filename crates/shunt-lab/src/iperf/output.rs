//! Parser for the JSON of iperf3.

use super::Direction;
use serde::{Deserialize, Serialize};

/// Datagrams behind the last one that arrived may be under way when the test ends, if there are no more of them than
/// are sent in this many seconds.
const UNDER_WAY_S: f64 = 0.1;

/// The data received in one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Arrived {
    /// Received payload in bit/s.
    pub bits_per_second: f64,
    /// Received payload in bytes.
    pub bytes: u64,
    /// Duration by the receiver's clock.
    pub seconds: f64,
    /// Number of TCP segments that were sent again; None if unknown.
    pub retransmits: Option<u64>,
    /// Counts of datagrams; None for TCP.
    pub datagrams: Option<Datagrams>,
}

/// Counts of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Datagrams {
    /// Number sent, by the sender's count.
    pub sent: u64,
    /// Number received, by the receiver's count.
    pub received: u64,
    /// Number lost. iperf3 counts only datagrams that are missing before the last one that arrived; the rest is added
    /// if it is more than can be under way.
    pub lost: u64,
    /// Share of lost datagrams among those that were lost or received.
    pub loss_ratio: f64,
    /// Jitter of RFC 1889 as the receiver measures it.
    pub jitter_ms: f64,
}

#[derive(Deserialize)]
struct Output {
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
    /// UDP only.
    packets: Option<u64>,
    /// iperf3 subtracts datagrams that arrive late or twice, so the number may be negative.
    lost_packets: Option<i64>,
    jitter_ms: Option<f64>,
}

/// Parses the JSON; the error says what is missing.
pub(super) fn parse(text: &str, direction: Direction) -> Result<Vec<Arrived>, String> {
    let not_understood = |why: &str| format!("unexpected JSON: {why}");
    let parsed: Output = serde_json::from_str(text).map_err(|why| match text.trim() {
        "" => "no output".to_owned(),
        text => not_understood(&format!("{why}, of `{}`", shortened(text))),
    })?;
    if let Some(error) = parsed.error {
        return Err(error);
    }
    let datagram_bytes = parsed.start.test_start.map(|test| test.blksize);
    let End { sum_sent, sum_received, sum_sent_bidir_reverse, sum_received_bidir_reverse } = parsed.end;
    let mut pairs = vec![("", sum_sent, sum_received)];
    if direction == Direction::Duplex {
        pairs.push(("_bidir_reverse", sum_sent_bidir_reverse, sum_received_bidir_reverse));
    }
    let arrived = |(end, sent, received): (&str, Option<Sum>, Option<Sum>)| {
        let lacks = |what: &str| not_understood(&format!("end.{what}{end} is missing"));
        let sent = sent.ok_or_else(|| lacks("sum_sent"))?;
        let received = received.ok_or_else(|| lacks("sum_received"))?;
        if !(received.seconds > 0.0 && sent.seconds > 0.0) {
            return Err(not_understood("the test has no duration"));
        }
        let datagrams = sent.packets.zip(datagram_bytes);
        Ok(Arrived {
            bits_per_second: received.bytes as f64 * 8.0 / received.seconds,
            bytes: received.bytes,
            seconds: received.seconds,
            retransmits: sent.retransmits,
            datagrams: datagrams.map(|(count, bytes)| Datagrams::new(count, sent.seconds, &received, bytes)),
        })
    };
    pairs.into_iter().map(arrived).collect()
}

impl Datagrams {
    fn new(sent: u64, seconds: f64, received: &Sum, datagram_bytes: u64) -> Self {
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

/// The beginning of a text, short enough for one line.
pub(super) fn shortened(text: &str) -> String {
    const CHARS: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
