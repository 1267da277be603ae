//! Hosts that are not listed while the list is full: what each has used until now, in bounded space.

use super::host_id::HostId;

/// The most hosts that wait for a place.
const MOST: usize = 512;

/// Hosts that wait. If there are too many, the one that has used least gives its entry to the next, which begins with
/// the sum of that one as its doubt: so whoever uses more than a 512th of what all newcomers use is always in the list,
/// however many hosts somebody invents.
#[derive(Debug, Clone, Default)]
pub(super) struct Newcomers(Vec<Newcomer>);

#[derive(Debug, Clone, Copy)]
struct Newcomer {
    id: HostId,
    bytes: u64,
    /// How much of it others may have used.
    doubt: u64,
}

impl Newcomers {
    /// Adds what a host has used, and returns what it has certainly used since it waits.
    pub(super) fn add(&mut self, id: HostId, bytes: u64) -> u64 {
        if let Some(known) = self.0.iter_mut().find(|known| known.id == id) {
            known.bytes = known.bytes.saturating_add(bytes);
            return known.bytes - known.doubt;
        }
        let mut doubt = 0;
        if self.0.len() >= MOST
            && let Some(at) = (0..self.0.len()).min_by_key(|at| self.0[*at].bytes)
        {
            doubt = self.0.swap_remove(at).bytes;
        }
        self.0.push(Newcomer { id, bytes: doubt.saturating_add(bytes), doubt });
        bytes
    }

    /// Forgets a host, which is listed now.
    pub(super) fn remove(&mut self, id: HostId) {
        self.0.retain(|known| known.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn host(number: u32) -> HostId {
        HostId::Address(Ipv4Addr::from(number).into())
    }

    #[test]
    fn what_a_host_uses_adds_up_while_others_are_invented() {
        let mut newcomers = Newcomers::default();
        assert_eq!(newcomers.add(host(0), 1000), 1000);
        for minute in 1..=20u32 {
            for invented in 0..1000 {
                assert_eq!(newcomers.add(host(minute * 10_000 + invented), 1), 1);
            }
            assert_eq!(newcomers.add(host(0), 1000), 1000 * u64::from(minute + 1));
        }
        assert_eq!(newcomers.0.len(), MOST);
        newcomers.remove(host(0));
        assert!(newcomers.add(host(0), 5) == 5);
    }
}
