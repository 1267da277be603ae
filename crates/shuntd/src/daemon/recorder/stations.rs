//! Stations that change their port or their address again and again.

use shunt_bpf::StationChanges;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Changes within [`WITHIN`] that are told. A cable that is plugged in again makes two.
const CHANGES: u32 = 5;
const WITHIN: Duration = Duration::from_secs(60);

type Mac = [u8; 6];

/// What the data plane has counted of stations.
#[derive(Debug, Default)]
pub(super) struct Stations {
    /// The last counts, and since when each was counted; `None` before the first reading. What the daemon before has
    /// seen, it has told.
    counted: Option<BTreeMap<Mac, (u64, u32)>>,
    /// The changes that have not been told.
    recent: BTreeMap<Mac, VecDeque<(Duration, u32)>>,
    unstable: BTreeSet<Mac>,
}

/// What is told of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StationNews {
    /// It has changed several times.
    Moving(Mac),
    /// It changes so often that its traffic stays slow.
    Unstable(Mac),
}

impl Stations {
    /// Compares the counts with those before. `now` is the time since the boot.
    pub(super) fn follow(&mut self, now: Duration, stations: &[StationChanges]) -> Vec<StationNews> {
        let counted = stations.iter().map(|one| (one.mac, (one.since_ticks, one.changes))).collect();
        let unstable = stations.iter().filter(|one| one.is_unstable).map(|one| one.mac).collect();
        let before = self.counted.replace(counted);
        let were_unstable = std::mem::replace(&mut self.unstable, unstable);
        let Some(before) = before else { return Vec::new() };
        self.recent.retain(|_, changes| {
            changes.retain(|(at, _)| now.saturating_sub(*at) < WITHIN);
            !changes.is_empty()
        });
        stations
            .iter()
            .filter_map(|one| {
                let since = match before.get(&one.mac) {
                    Some((since, changes)) if *since == one.since_ticks => {
                        one.changes.saturating_sub(*changes)
                    }
                    _ => one.changes,
                };
                self.judge(now, one, since, were_unstable.contains(&one.mac))
            })
            .collect()
    }

    /// What is to be told of a station that has changed so often since the last reading.
    fn judge(
        &mut self,
        now: Duration,
        station: &StationChanges,
        since: u32,
        was_unstable: bool,
    ) -> Option<StationNews> {
        let mac = station.mac;
        if station.is_unstable {
            self.recent.remove(&mac);
            return (!was_unstable).then_some(StationNews::Unstable(mac));
        }
        if since == 0 {
            return None;
        }
        let changes = self.recent.entry(mac).or_default();
        changes.push_back((now, since));
        (changes.iter().map(|(_, count)| count).sum::<u32>() >= CHANGES).then(|| {
            self.recent.remove(&mac);
            StationNews::Moving(mac)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];

    fn station(since_ticks: u64, changes: u32, is_unstable: bool) -> StationChanges {
        StationChanges { mac: A, since_ticks, changes, is_unstable }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_station_that_changes_every_few_seconds_is_told_again_for_every_five_changes() {
        let mut stations = Stations::default();
        stations.follow(at(0), &[]);
        // The data plane counts from 1 again after ten seconds.
        let counts = [(0, 1), (0, 2), (0, 3), (15, 1), (15, 2), (15, 3), (30, 1), (30, 2), (30, 3), (45, 1)];
        let told = counts.iter().enumerate().map(|(n, (since, changes))| {
            let told = stations.follow(at(5 * n as u64), &[station(*since, *changes, false)]);
            assert_eq!(stations.follow(at(5 * n as u64 + 1), &[station(*since, *changes, false)]), []);
            told.len()
        });
        assert_eq!(told.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_cable_that_is_plugged_in_again_and_a_station_that_roams_now_and_then_are_no_news() {
        let mut stations = Stations::default();
        stations.follow(at(0), &[]);
        for n in 0..20 {
            let told = stations.follow(at(30 * n), &[station(n, 2, false)]);
            assert_eq!(told, [], "{n}");
        }
    }

    #[test]
    fn an_unstable_station_is_told_at_once_and_once() {
        let mut stations = Stations::default();
        stations.follow(at(0), &[]);
        let unstable = station(1, 10, true);
        assert_eq!(stations.follow(at(1), &[unstable]), [StationNews::Unstable(A)]);
        assert_eq!(stations.follow(at(2), &[unstable]), []);
        assert_eq!(stations.follow(at(80), &[station(1, 10, false)]), []);
        assert_eq!(stations.follow(at(81), &[unstable]), [StationNews::Unstable(A)]);
        // The daemon before has told it.
        let mut next = Stations::default();
        assert_eq!(next.follow(at(82), &[unstable]), []);
        assert_eq!(next.follow(at(83), &[unstable]), []);
    }
}
