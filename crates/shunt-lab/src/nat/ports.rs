//! The four-tuples of new connections: every combination of a source and a destination port once, in a pseudo-random
//! order (RFC 9693, RFC 4814).

use shunt_traffic::TrafficEnds;
use std::net::Ipv4Addr;

/// Source ports: those that are not assigned to a service.
const SOURCE_PORTS: (u16, u32) = (1024, 64_512);
/// Destination ports: so many that a NAT with one address does not run out of ports.
const DESTINATION_PORTS: (u16, u32) = (5001, 66);
/// Number of combinations.
pub const TUPLES: u32 = SOURCE_PORTS.1 * DESTINATION_PORTS.1;
/// Fewer rounds leave patterns in the order.
const ROUNDS: u64 = 4;

/// A permutation of the numbers below a count, which needs no memory: a Feistel network whose results beyond the count
/// are permuted again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permutation {
    count: u32,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(super) fn new(count: u32, seed: u64) -> Self {
        let bits = 32 - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2), seed }
    }

    /// The number in this place; `place` is below the count.
    pub(super) fn at(&self, place: u32) -> u32 {
        let mut number = self.network(place);
        while number >= self.count {
            number = self.network(number);
        }
        number
    }

    /// A permutation of the numbers of `2 * half_bits` bits.
    fn network(&self, number: u32) -> u32 {
        let mask = (1u32 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let mixed = mix(self.seed ^ (round << 32 | u64::from(right)));
            (left, right) = (right, left ^ (mixed as u32 & mask));
        }
        left << self.half_bits | right
    }
}

/// The finalizer of SplitMix64: each bit of the input changes half of the output.
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The first tuples of the order that a seed gives; at most [`TUPLES`].
pub(super) fn tuples(count: u32, seed: u64, from: Ipv4Addr, to: Ipv4Addr) -> Vec<TrafficEnds> {
    let order = Permutation::new(TUPLES, seed);
    let tuple = |place| {
        let number = order.at(place);
        let [sport, dport] =
            [(SOURCE_PORTS.0, number % SOURCE_PORTS.1), (DESTINATION_PORTS.0, number / SOURCE_PORTS.1)]
                .map(|(first, after)| first + after as u16);
        TrafficEnds { src: from.to_bits(), dst: to.to_bits(), sport, dport }
    };
    (0..count.min(TUPLES)).map(tuple).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_comes_once_for_any_count_and_seed() {
        for (count, seed) in [(1, 1), (2, 7), (3, 0), (1000, 1), (4096, 2), (65_537, 3)] {
            let order = Permutation::new(count, seed);
            let seen: BTreeSet<u32> = (0..count).map(|place| order.at(place)).collect();
            assert_eq!((seen.len() as u32, seen.last().copied()), (count, Some(count - 1)), "{count} {seed}");
        }
    }

    #[test]
    fn the_order_depends_on_the_seed_and_has_no_runs() {
        let order =
            |seed| (0..10_000).map(|place| Permutation::new(TUPLES, seed).at(place)).collect::<Vec<_>>();
        let (one, two) = (order(1), order(2));
        assert_eq!(one, order(1));
        assert!(one.iter().zip(&two).filter(|(a, b)| a == b).count() < 3);
        assert!(one.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 16).count() < 5);
        // A few tuples are spread over the whole range.
        let mean = one.iter().map(|number| f64::from(*number)).sum::<f64>() / one.len() as f64;
        assert!((mean / f64::from(TUPLES) - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn tuples_are_distinct_and_have_ports_of_both_ranges() {
        let all = tuples(20_000, 5, Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1));
        let ports: BTreeSet<_> = all.iter().map(|ends| (ends.sport, ends.dport)).collect();
        assert_eq!(ports.len(), 20_000);
        assert!(all.iter().all(|ends| ends.sport >= 1024 && (5001..5067).contains(&ends.dport)));
        let destinations: BTreeSet<_> = all.iter().map(|ends| ends.dport).collect();
        assert_eq!(destinations.len(), 66);
        assert_eq!((all[0].src, all[0].dst), (0xc000_0201, 0xc633_6401));
    }
}
