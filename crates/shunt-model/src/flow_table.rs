//! The cost of a packet that is forwarded through Shunt's flow table: the program's work, and its waits for memory.
//!
//! A packet loads its bucket of the index and then, at an address that depends on the bucket, its entry, whose two
//! cache lines are loaded together. In random order it waits for both loads, one after the other. In turn, the CPU has
//! fetched both ahead, except where a page of the table begins. The share of the waits that a program does not hide
//! behind other work is fitted to measurements on one machine. It holds for another machine as far as its CPU looks
//! ahead as far.

use serde::{Deserialize, Serialize};

/// Bytes of an IPv4 entry and of its bucket.
const BYTES_PER_FLOW: u64 = 128 + 16;
/// Flows whose buckets are in one cache line: the line is loaded as often as if the table were smaller by this factor.
const BUCKETS_PER_LINE: u64 = 4;

/// The order in which packets of the flows arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOrder {
    /// One flow after the other, as they were learned.
    Sequence,
    /// Each packet is of a flow chosen at random.
    Random,
}

/// The time of a load whose address depends on the load before, by the number of bytes that are loaded at random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyCurve(Vec<(u64, f64)>);

impl LatencyCurve {
    /// The curve through points of bytes and nanoseconds; None unless the sizes increase and there are at least two.
    pub fn new(points: Vec<(u64, f64)>) -> Option<Self> {
        let increases = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (points.len() > 1 && points[0].0 > 0 && increases).then_some(Self(points))
    }

    /// The points.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.0
    }

    /// Nanoseconds for a working set of `bytes`, linear in the logarithm of the size; None outside of the points.
    pub fn at(&self, bytes: u64) -> Option<f64> {
        let pair = self.0.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&bytes))?;
        let [low, high] = [pair[0], pair[1]];
        let log = |bytes: u64| libm::log(bytes as f64);
        let part = (log(bytes) - log(low.0)) / (log(high.0) - log(low.0));
        Some(low.1 + part * (high.1 - low.1))
    }

    /// Nanoseconds for the two loads of a packet, bucket and entry, from the table of `flows` flows in random order.
    pub fn table_ns(&self, flows: u64) -> Option<f64> {
        let bytes = flows * BYTES_PER_FLOW;
        Some(self.at(bytes / BUCKETS_PER_LINE)? + self.at(bytes)?)
    }
}

/// A measured increase of the cost of a packet by the number of flows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowEffect {
    /// The order of the packets.
    pub order: FlowOrder,
    /// How much longer the two loads from the table take than with few flows, in random order.
    pub wait_ns: f64,
    /// How much more a packet costs than with few flows in turn.
    pub more_ns: f64,
}

/// The share of the wait for two loads from the table in random order that an engine's packets really wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExposedWait {
    /// In turn: near 0, since only the first packets of a page wait.
    pub sequence: f64,
    /// In random order: 1 if nothing hides the wait.
    pub random: f64,
}

impl ExposedWait {
    /// The shares that explain measurements best, by least squares; None unless there are measurements of both orders
    /// in which the loads take longer.
    pub fn fit(effects: &[FlowEffect]) -> Option<Self> {
        let share = |order| {
            let of_order = || effects.iter().filter(|effect| effect.order == order);
            let square: f64 = of_order().map(|effect| effect.wait_ns * effect.wait_ns).sum();
            let product: f64 = of_order().map(|effect| effect.wait_ns * effect.more_ns).sum();
            (square > 0.0).then(|| product / square)
        };
        Some(Self { sequence: share(FlowOrder::Sequence)?, random: share(FlowOrder::Random)? })
    }

    /// How much more a packet costs than with few flows in turn, where the two loads take `wait_ns` longer.
    pub fn more_ns(&self, order: FlowOrder, wait_ns: f64) -> f64 {
        match order {
            FlowOrder::Sequence => self.sequence * wait_ns,
            FlowOrder::Random => self.random * wait_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_linear_in_the_logarithm_and_unknown_outside() {
        let curve = LatencyCurve::new(vec![(1 << 10, 2.0), (1 << 20, 4.0), (1 << 22, 104.0)]).unwrap();
        let near = |bytes, ns: f64| assert!((curve.at(bytes).unwrap() - ns).abs() < 1e-9, "{bytes}");
        near(1 << 10, 2.0);
        near(1 << 15, 3.0);
        near(1 << 21, 54.0);
        near(1 << 22, 104.0);
        assert_eq!(curve.at(1 << 9), None);
        assert_eq!(curve.at(1 << 23), None);
        assert_eq!(LatencyCurve::new(vec![(4, 1.0), (4, 2.0)]), None);
    }

    #[test]
    fn shares_that_made_the_measurements_are_found_again() {
        let shares = ExposedWait { sequence: 0.05, random: 0.9 };
        let effects: Vec<_> = [FlowOrder::Sequence, FlowOrder::Random]
            .into_iter()
            .flat_map(|order| [160.0, 360.0].map(|wait_ns| (order, wait_ns)))
            .map(|(order, wait_ns)| FlowEffect { order, wait_ns, more_ns: shares.more_ns(order, wait_ns) })
            .collect();
        let found = ExposedWait::fit(&effects).unwrap();
        assert!((found.sequence - 0.05).abs() < 1e-9 && (found.random - 0.9).abs() < 1e-9);
        assert_eq!(ExposedWait::fit(&effects[..2]), None, "nothing in random order was measured");
    }

    #[test]
    fn a_packet_loads_its_bucket_as_from_a_quarter_of_the_table() {
        let curve =
            LatencyCurve::new(vec![(36_000, 5.0), (36_000_000, 105.0), (144_000_000, 205.0)]).unwrap();
        assert_eq!(curve.table_ns(1_000_000), Some(310.0));
        assert_eq!(curve.table_ns(2_000_000), None);
    }
}
