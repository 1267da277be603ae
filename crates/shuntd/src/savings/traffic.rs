//! Kinds of traffic: packets of the same kind cost about the same.

use shunt_api::CannotTell;
use shunt_bpf::abi::Counters;
use std::{fmt, str::FromStr};

/// Rates of a class are within a factor of four.
const RATE_BITS: f64 = 2.0;
const RATE_CLASS_MAX: u8 = 8;
/// The largest mean sizes of packets, in bytes from the L3 header on. Larger ones are aggregates.
const SIZES: [f64; 4] = [256.0, 1024.0, 2048.0, 16384.0];
/// The share of packets from which on the engine `external` is in use.
const EXTERNAL_SHARE: f64 = 0.05;

/// A kind of traffic. The cost of a packet depends on these most: batches and caches follow the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Traffic {
    /// Whether XDP forwards most packets, not tc.
    xdp: bool,
    rate_class: u8,
    size_class: u8,
}

impl Traffic {
    /// Fast packets in a second that a measurement needs.
    pub(crate) const LEAST_PPS: u32 = 500;

    /// The kind of what was counted in some seconds, with its fast packets in a second.
    pub(crate) fn of(counted: &Counters, seconds: f64) -> Result<(Self, f64), CannotTell> {
        let packets = Self::fast_packets(counted);
        let pps = packets as f64 / seconds.max(f64::MIN_POSITIVE);
        if pps < f64::from(Self::LEAST_PPS) {
            return Err(CannotTell::FewPackets { least_pps: Self::LEAST_PPS });
        }
        if counted.external_pkts as f64 > packets as f64 * EXTERNAL_SHARE {
            return Err(CannotTell::External);
        }
        let bytes = (counted.xdp_bytes + counted.tc_bytes) as f64 / packets as f64;
        let rate_class = ((pps / f64::from(Self::LEAST_PPS)).log2() / RATE_BITS) as u8;
        let traffic = Self {
            xdp: counted.xdp_pkts > counted.tc_pkts,
            rate_class: rate_class.min(RATE_CLASS_MAX),
            size_class: SIZES.iter().filter(|size| bytes > **size).count() as u8,
        };
        Ok((traffic, pps))
    }

    /// Whether XDP forwards most packets.
    pub(crate) fn by_xdp(self) -> bool {
        self.xdp
    }

    /// Whether none of these packets can be a part of a merged one: those are cut into full frames.
    pub(crate) fn is_small(self) -> bool {
        self.size_class == 0
    }

    /// The packets of the fast path.
    pub(crate) fn fast_packets(counted: &Counters) -> u64 {
        counted.xdp_pkts + counted.tc_pkts + counted.external_pkts
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = if self.xdp { "xdp" } else { "tc" };
        write!(f, "{engine}-{}-{}", self.rate_class, self.size_class)
    }
}

impl FromStr for Traffic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let failed = || format!("`{text}` is not a kind of traffic");
        let parts: Vec<&str> = text.split('-').collect();
        let [engine @ ("xdp" | "tc"), rate, size] = parts[..] else { return Err(failed()) };
        Ok(Self {
            xdp: engine == "xdp",
            rate_class: rate.parse().map_err(|_| failed())?,
            size_class: size.parse().map_err(|_| failed())?,
        })
    }
}
