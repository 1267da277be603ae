//! The busiest connections of a listing, without keeping the others.

use super::Listing;
use shunt_api::{Connection, Failure};
use std::cmp::Reverse;

/// The most connections that a client may ask for in one answer.
pub(super) const MOST_MAX: usize = 10_000;

/// The connections with the highest rates, sorted by rate; at most `most`, which is not 0. Keeps no more than twice as
/// many at a time.
///
/// # Errors
/// If the listing has one.
pub(super) fn busiest(listing: Listing, most: usize) -> Result<Vec<Connection>, Failure> {
    let rank = |one: &Connection| (Reverse((one.rate_bps, one.rate_pps, one.packets)), one.proto, one.orig);
    let mut kept: Vec<Connection> = Vec::new();
    for connection in listing {
        kept.push(connection?);
        if kept.len() >= 2 * most {
            kept.select_nth_unstable_by_key(most - 1, rank);
            kept.truncate(most);
        }
    }
    kept.sort_by_cached_key(rank);
    kept.truncate(most);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn connection(nth: u32, rate_bps: u64) -> Connection {
        let orig = json!({ "src": "10.0.0.1", "dst": "10.0.0.2", "sport": nth, "dport": 1 });
        let value = json!({
            "family": 4, "proto": "udp", "orig": orig, "reply": orig, "state": "active", "engine": "tc", "packets": 1,
            "bytes": 1, "rate_bps": rate_bps, "rate_pps": 1, "age_s": 1, "idle_s": 0, "directions": [],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_busiest_come_first_in_whatever_order_they_are_listed() {
        let rates = [5, 900, 3, 70, 70, 8000, 1, 2];
        let listing =
            || -> Listing { Box::new((0..8u32).map(move |nth| Ok(connection(nth, rates[nth as usize])))) };
        let ports = |most| {
            let found = busiest(listing(), most).unwrap();
            found.iter().map(|one| one.orig.sport).collect::<Vec<_>>()
        };
        assert_eq!(ports(1), [5]);
        assert_eq!(ports(3), [5, 1, 3]);
        assert_eq!(ports(4), [5, 1, 3, 4], "of equal rates, the one with the lower ports");
        assert_eq!(ports(100), [5, 1, 3, 4, 0, 2, 7, 6]);
    }

    #[test]
    fn a_listing_that_fails_is_a_failure() {
        let failure = Failure::new(shunt_api::FailureCode::Internal, "no table");
        let listing: Listing = Box::new([Ok(connection(1, 1)), Err(failure.clone())].into_iter());
        assert_eq!(busiest(listing, 5), Err(failure));
    }
}
