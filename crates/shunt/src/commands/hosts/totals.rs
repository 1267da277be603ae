//! The text of `shunt flows --by host`.

use crate::render::{Format, Text, columns::align, units};
use serde::Serialize;
use std::net::IpAddr;

/// The connections of one host, fast and slow, added up. A connection counts for the hosts at both of its ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct HostTotal {
    /// The address of the host, behind NAT if there is any.
    pub(crate) addr: IpAddr,
    /// The name from a DHCP lease or /etc/hosts; none if neither has the address.
    pub(crate) name: Option<String>,
    /// Number of connections.
    pub(crate) connections: u64,
    /// Packets, sent and received.
    pub(crate) packets: u64,
    /// Bytes that the host sent, counted from the L3 header on.
    pub(crate) sent_bytes: u64,
    /// Bytes that were sent to the host, counted from the L3 header on.
    pub(crate) received_bytes: u64,
    /// Packets per second, sent and received.
    pub(crate) rate_pps: u64,
    /// Bits per second that the host sent, counted from the L3 header on.
    pub(crate) sent_bps: u64,
    /// Bits per second that were sent to the host, counted from the L3 header on.
    pub(crate) received_bps: u64,
    /// Bits per second that Linux forwards, sent and received; part of the two rates above.
    pub(crate) slow_bps: u64,
    /// Seconds since its oldest connection was learned, or, if it is slow, began; none if that is not known.
    pub(crate) age_s: Option<u64>,
    /// Seconds since the last packet of any of its connections; none if that is not known.
    pub(crate) idle_s: Option<u64>,
}

impl HostTotal {
    /// A host without connections.
    pub(crate) const fn new(addr: IpAddr, name: Option<String>) -> Self {
        Self {
            addr,
            name,
            connections: 0,
            packets: 0,
            sent_bytes: 0,
            received_bytes: 0,
            rate_pps: 0,
            sent_bps: 0,
            received_bps: 0,
            slow_bps: 0,
            age_s: None,
            idle_s: None,
        }
    }

    /// Bits per second, sent and received.
    pub(crate) const fn rate_bps(&self) -> u64 {
        self.sent_bps.saturating_add(self.received_bps)
    }

    /// Bytes, sent and received.
    pub(crate) const fn bytes(&self) -> u64 {
        self.sent_bytes.saturating_add(self.received_bytes)
    }
}

impl Text for Vec<HostTotal> {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(totals: &[HostTotal]) -> String {
    if totals.is_empty() {
        return String::new();
    }
    let head = [
        "host",
        "name",
        "connections",
        "sent",
        "received",
        "slow",
        "packets/s",
        "packets",
        "sent bytes",
        "received bytes",
        "age",
        "idle",
    ];
    let time = |seconds: Option<u64>| seconds.map_or_else(|| "-".to_owned(), units::time);
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(totals.iter().map(|total| {
        vec![
            total.addr.to_string(),
            total.name.clone().unwrap_or_else(|| "-".to_owned()),
            total.connections.to_string(),
            units::bits_per_second(total.sent_bps),
            units::bits_per_second(total.received_bps),
            units::bits_per_second(total.slow_bps),
            units::packets_per_second(total.rate_pps),
            total.packets.to_string(),
            units::bytes(total.sent_bytes),
            units::bytes(total.received_bytes),
            time(total.age_s),
            time(total.idle_s),
        ]
    }));
    align("<<>", &rows)
}
