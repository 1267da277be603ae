//! The ledger: what each host of the local side sent and received, in bounded space.

use super::{
    counts::{COUNT_WORDS, PathCount, PortsReceived, TOTAL_WORDS, Total, total_words, words},
    followed::KnownCounter,
    host_id::HostId,
    newcomers::Newcomers,
    series::Series,
};
use serde::{Deserialize, Serialize};
use shunt_api::HostUsage;
use shunt_core::End;
use std::{
    collections::HashMap,
    io::{self, Write},
    net::IpAddr,
};

/// The most hosts that are listed; what others use is added up.
pub(crate) const HOSTS_MAX: usize = 256;
/// The most hosts of a record; what others used since the last one is added up.
const RECORDED_MAX: usize = 4096;
/// A clock that shows an earlier time was not set.
const PLAUSIBLE: u64 = 1_704_067_200;
/// A clock that stays behind the ledger for this long is believed, in seconds.
const BEHIND_MAX_S: u64 = 3600;
/// Ends of daemons that were not planned; with more, the time between the oldest ones counts as lost, too.
const LOST_MAX: usize = 64;
/// A host that is silent for this long gives way to any other, in seconds.
const SILENT_S: u64 = 7 * 86_400;

/// A host that is listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) id: HostId,
    /// The latest first.
    pub(super) addresses: Vec<IpAddr>,
    /// When it last sent or received.
    pub(super) seen: u64,
    /// Everything since the host was listed.
    pub(super) all: PathCount,
    /// Bytes that it had used before, while it waited for a place in the list.
    #[serde(default)]
    waited: u64,
    pub(super) series: Series<COUNT_WORDS>,
}

/// What was counted since the last record.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    pub(super) hosts: HashMap<HostId, (PathCount, Vec<IpAddr>)>,
    /// That of local addresses without a neighbour.
    pub(super) unknown: PathCount,
    pub(super) router: PathCount,
    pub(super) total: Total,
}

/// Counters of conntrack, from which the next start goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LeftCounters {
    /// The kernel's boot ID: its numbers of entries hold for one boot.
    pub(super) boot: String,
    pub(super) counters: Vec<KnownCounter>,
    /// Whether these are all that there were.
    pub(super) complete: bool,
    /// Those of flows, for the daemon that takes over the table; `None` if they are not all that there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flows: Option<Vec<KnownCounter>>,
    /// Those of ports, for the same daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ports: Option<LeftPorts>,
}

/// What the ports of a data plane had received when a daemon ended that left it to the next one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LeftPorts {
    /// The data plane, by the seed of its flow table.
    pub(super) seed: u64,
    pub(super) attached: PortsReceived,
}

/// What hosts used, as long as it is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(super) hosts: Vec<Host>,
    pub(super) others: Series<COUNT_WORDS>,
    pub(super) router: Series<COUNT_WORDS>,
    pub(super) totals: Series<TOTAL_WORDS>,
    /// How many hosts `others` has.
    pub(super) merged: u64,
    /// What conntrack had counted when the daemon ended, as far as the ledger has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<LeftCounters>,
    /// Steps that begin later tell the paths apart, in seconds since 1970. Files of versions that did not tell them
    /// apart lack it.
    #[serde(default = "no_step")]
    paths_after: u64,
    /// The time of the last record, in seconds since 1970.
    time: u64,
    /// Whether a daemon counts. A file that says so is of a daemon that did not end as planned.
    #[serde(default)]
    is_open: bool,
    /// From the last record that is in the file to the first one after it, in seconds since 1970, for each daemon that
    /// did not end as planned. Oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(u64, u64)>,
    /// Whether the next record is the first one after such an end.
    #[serde(skip)]
    is_lost_until_record: bool,
    /// Hosts that the list has no place for.
    #[serde(skip)]
    newcomers: Newcomers,
    /// For how long the clock has been behind that time, in seconds.
    #[serde(skip)]
    behind_s: u64,
}

const fn no_step() -> u64 {
    u64::MAX
}

impl Ledger {
    /// Reads a ledger that [`Self::encode`] has written.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut ledger: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        ledger.hosts.truncate(HOSTS_MAX);
        for host in &mut ledger.hosts {
            host.addresses.truncate(HostUsage::ADDRESSES_MAX);
        }
        if std::mem::take(&mut ledger.is_open) {
            if ledger.lost.len() >= LOST_MAX {
                // Rather too much is called incomplete than too little.
                let (oldest, _) = ledger.lost.remove(0);
                ledger.lost[0].0 = oldest;
            }
            ledger.lost.push((ledger.time, ledger.time));
            ledger.is_lost_until_record = true;
        }
        if ledger.paths_after == no_step() {
            ledger.paths_after = ledger.time;
        }
        Ok(ledger)
    }

    pub(crate) fn encode(&self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, self)?)
    }

    #[cfg(test)]
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes).unwrap();
        bytes
    }

    /// Notes that a daemon counts from now on, or that it ends as planned.
    pub(super) const fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// Whether counts of this time were lost, since a daemon did not end as planned.
    pub(super) fn is_incomplete(&self, from: u64, end: u64) -> bool {
        self.lost.iter().any(|(lost_from, lost_to)| *lost_from < end && *lost_to >= from)
    }

    /// The time of the ledger.
    pub(super) const fn time(&self) -> u64 {
        self.time
    }

    /// Whether the paths are told apart in steps that begin at this time or later.
    pub(super) const fn tells_paths_apart(&self, from: u64) -> bool {
        from > self.paths_after
    }

    /// Adds what was counted, at a time of the clock, `elapsed_s` after the last record.
    pub(super) fn record(&mut self, clock: u64, elapsed_s: u64, record: Record) {
        self.set_time(clock, elapsed_s);
        let now = self.time;
        if std::mem::take(&mut self.is_lost_until_record)
            && let Some(lost) = self.lost.last_mut()
        {
            lost.1 = lost.0.max(now);
        }
        self.router.add(now, &words(record.router));
        self.others.add(now, &words(record.unknown));
        self.totals.add(now, &total_words(record.total));
        let mut newcomers = Vec::new();
        for (id, (count, addresses)) in record.hosts {
            match self.hosts.iter_mut().find(|host| host.id == id) {
                Some(host) => host.add(now, count, addresses),
                None => newcomers.push((id, count, addresses)),
            }
        }
        newcomers.sort_by_key(|(_, count, _)| std::cmp::Reverse(count.bytes()));
        for (id, count, addresses) in newcomers {
            if let Some(waited) = self.make_room(id, count) {
                let mut host = Host { waited, ..Host::new(id) };
                host.add(now, count, addresses);
                self.hosts.push(host);
            } else {
                self.others.add(now, &words(count));
            }
        }
    }

    /// Follows the clock, but does not go back at once: without a clock of its own, a router starts in the past, and
    /// what it counts then is counted for the time at which it went off.
    fn set_time(&mut self, clock: u64, elapsed_s: u64) {
        let clock = clock.max(PLAUSIBLE);
        let before = self.time;
        self.behind_s = if clock < before { self.behind_s + elapsed_s } else { 0 };
        if clock >= before || (clock > PLAUSIBLE && self.behind_s > BEHIND_MAX_S) {
            (self.time, self.behind_s) = (clock, 0);
        }
        if before == PLAUSIBLE && self.time > before {
            // Counted before the clock was first set.
            let now = self.time;
            self.router.move_steps(before, now);
            self.others.move_steps(before, now);
            self.totals.move_steps(before, now);
            self.hosts.iter_mut().for_each(|host| host.move_to(before, now));
        }
    }

    /// Makes room for a host that has used this much since the last record, if there is room for it. Returns the bytes
    /// that it had used before, while it waited. Hosts that have been used for long do not give way unless they are
    /// silent, or have hardly used anything: whoever invents addresses must neither push others out nor keep them out.
    fn make_room(&mut self, newcomer: HostId, count: PathCount) -> Option<u64> {
        if self.hosts.len() < HOSTS_MAX {
            self.newcomers.remove(newcomer);
            return Some(0);
        }
        let now = self.time;
        // Not only the last record: a host that uses little, but always, has used more than one that came once.
        let used = self.newcomers.add(newcomer, count.bytes());
        let yields = |host: &Host| {
            let less = host.used() < used && host.series.days_in_use(now) < 2;
            let hardly = host.used() < count.bytes() / 1000;
            host.is_silent(now) || less || hardly
        };
        let yielding = self.hosts.iter().enumerate().filter(|(_, host)| yields(host));
        let least = yielding.min_by_key(|(_, host)| (!host.is_silent(now), host.used()));
        let at = least.map(|(at, _)| at)?;
        let host = self.hosts.swap_remove(at);
        self.others.merge(&host.series);
        self.merged += 1;
        self.newcomers.remove(newcomer);
        Some(used - count.bytes())
    }

    /// What each listed host has sent and received since it was listed, for metrics: its MAC or address, and counts.
    pub(crate) fn all(&self) -> Vec<(String, PathCount)> {
        self.hosts.iter().map(|host| (host.id.to_string(), host.all)).collect()
    }
}

impl Host {
    fn new(id: HostId) -> Self {
        let (all, series) = (PathCount::default(), Series::default());
        Self { id, addresses: Vec::new(), seen: 0, all, waited: 0, series }
    }

    /// Bytes since it was first seen.
    const fn used(&self) -> u64 {
        self.all.bytes().saturating_add(self.waited)
    }

    fn add(&mut self, now: u64, count: PathCount, addresses: Vec<IpAddr>) {
        for address in addresses {
            self.addresses.retain(|known| *known != address);
            self.addresses.insert(0, address);
        }
        self.addresses.truncate(HostUsage::ADDRESSES_MAX);
        self.seen = now;
        self.all = self.all.plus(count);
        self.series.add(now, &words(count));
    }

    fn move_to(&mut self, before: u64, now: u64) {
        self.series.move_steps(before, now);
        if self.seen == before {
            self.seen = now;
        }
    }

    fn is_silent(&self, now: u64) -> bool {
        self.seen + SILENT_S < now
    }
}

impl Record {
    /// Adds what an end of a connection sent and received.
    pub(super) fn add(&mut self, end: End, addr: IpAddr, count: PathCount) {
        let id = match end {
            End::Host(mac) => HostId::Mac(mac),
            End::Address(addr) => HostId::Address(addr),
            End::Router => return self.router = self.router.plus(count),
            End::Unknown => return self.unknown = self.unknown.plus(count),
            End::Remote => return,
        };
        if self.hosts.len() >= RECORDED_MAX && !self.hosts.contains_key(&id) {
            return self.unknown = self.unknown.plus(count);
        }
        let (sum, addresses) = self.hosts.entry(id).or_default();
        *sum = sum.plus(count);
        if addresses.len() < HostUsage::ADDRESSES_MAX && !addresses.contains(&addr) {
            addresses.push(addr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{counts::count, series::Step},
        *,
    };
    use shunt_api::Counted;
    use shunt_wire::Mac;

    /// 2026-01-01 12:00:00 UTC.
    const NOON: u64 = 1_767_268_800;

    fn mac(number: u32) -> Mac {
        let [_, _, a, b] = number.to_be_bytes();
        Mac([2, 0, 0, 0, a, b])
    }

    fn bytes(bytes: u64) -> PathCount {
        PathCount { sent: Counted { packets: 1, bytes }, ..PathCount::default() }
    }

    fn of(hosts: impl IntoIterator<Item = (u32, u64)>) -> Record {
        let mut record = Record::default();
        for (number, used) in hosts {
            let addr = IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
            record.add(End::Host(mac(number)), addr, bytes(used));
        }
        record
    }

    fn used(ledger: &Ledger, number: u32, step: Step, at: u64) -> u64 {
        let host = ledger.hosts.iter().find(|host| host.id == HostId::Mac(mac(number)));
        host.map_or(0, |host| count(host.series.get(step, step.index(at))).sent.bytes)
    }

    fn everything(ledger: &Ledger) -> u64 {
        let days = |series: &Series<COUNT_WORDS>| {
            count(series.sum(Step::Day, Step::Day.index(NOON) - 1..=Step::Day.index(NOON) + 29)).bytes()
        };
        ledger.hosts.iter().map(|host| days(&host.series)).sum::<u64>() + days(&ledger.others)
    }

    #[test]
    fn use_is_counted_in_its_minute_hour_and_day() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, of([(1, 100)]));
        ledger.record(NOON + 60, 60, of([(1, 20)]));
        ledger.record(NOON + 3600, 3540, of([(1, 3)]));
        ledger.record(NOON + 86_400, 82_800, of([(1, 4)]));
        let at = |step, at| used(&ledger, 1, step, at);
        assert_eq!((at(Step::Hour, NOON), at(Step::Hour, NOON + 3600)), (120, 3));
        assert_eq!((at(Step::Day, NOON), at(Step::Day, NOON + 86_400)), (123, 4));
        assert_eq!((at(Step::Minute, NOON), at(Step::Minute, NOON + 86_400)), (0, 4));
        assert_eq!(
            ledger.all(),
            [(
                "02:00:00:00:00:01".to_owned(),
                PathCount { sent: Counted { packets: 4, bytes: 127 }, ..PathCount::default() }
            )]
        );
    }

    #[test]
    fn the_least_used_hosts_are_merged_and_nothing_is_lost() {
        let mut ledger = Ledger::default();
        let many = HOSTS_MAX as u32;
        ledger.record(NOON, 0, of((0..many).map(|n| (n, 1000 + u64::from(n)))));
        ledger.record(NOON + 60, 60, of([(many, 1001), (many + 1, 5), (7, 1)]));
        assert_eq!((ledger.hosts.len(), ledger.merged), (HOSTS_MAX, 1));
        assert!(ledger.hosts.iter().all(|host| host.id != HostId::Mac(mac(0))));
        assert_eq!(used(&ledger, many, Step::Day, NOON), 1001);
        let sum: u64 = (0..u64::from(many)).map(|n| 1000 + n).sum();
        assert_eq!(everything(&ledger), sum + 1001 + 5 + 1);
    }

    #[test]
    fn invented_hosts_push_out_no_host_that_has_been_used_for_long() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, of((0..100).map(|n| (n, 10_000))));
        ledger.record(NOON + 86_400, 86_400, of((0..100).map(|n| (n, 10_000))));
        for minute in 1..=20 {
            let invented = (0..100).map(|n| (1000 + minute * 100 + n, 1_000_000));
            ledger.record(NOON + 86_400 + u64::from(minute) * 60, 60, of(invented));
        }
        assert_eq!(ledger.hosts.len(), HOSTS_MAX);
        assert!((0..100).all(|n| used(&ledger, n, Step::Day, NOON) == 10_000));
        // One that is silent for a week gives way.
        let later = NOON + 9 * 86_400;
        ledger.record(
            later,
            0,
            of((0..99).map(|n| (n, 10_000)).chain((0..200).map(|n| (5000 + n, 2_000_000)))),
        );
        assert_eq!((used(&ledger, 98, Step::Day, later), used(&ledger, 99, Step::Day, NOON)), (10_000, 0));
        assert_eq!(everything(&ledger), 2_000_000 + 2_000_000_000 + 990_000 + 400_000_000);
    }

    #[test]
    fn hosts_that_were_hardly_used_keep_no_place_from_one_that_is() {
        let mut ledger = Ledger::default();
        let tiny = || of((0..HOSTS_MAX as u32).map(|n| (n, 38)));
        ledger.record(NOON, 0, tiny());
        ledger.record(NOON + 86_400, 86_400, tiny());
        ledger.record(NOON + 86_460, 60, of([(9000, 1_000_000)]));
        assert_eq!(used(&ledger, 9000, Step::Day, NOON + 86_460), 1_000_000);
    }

    #[test]
    fn a_host_that_uses_little_but_always_is_listed_before_one_that_came_once() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, of((0..HOSTS_MAX as u32).map(|n| (n, 1000))));
        let is_listed = |ledger: &Ledger| ledger.hosts.iter().any(|host| host.id == HostId::Mac(mac(9000)));
        for minute in 1..=5 {
            assert!(!is_listed(&ledger), "{minute}");
            ledger.record(NOON + minute * 60, 60, of([(9000, 250)]));
        }
        assert!(is_listed(&ledger));
        assert_eq!(used(&ledger, 9000, Step::Day, NOON), 250, "what it used before is among the others");
        assert_eq!(everything(&ledger), 1000 * HOSTS_MAX as u64 + 5 * 250);
        // It has used more than a host that uses as much as its last minute.
        ledger.record(NOON + 360, 60, of([(9001, 260)]));
        assert!(is_listed(&ledger));
    }

    #[test]
    fn local_addresses_without_a_neighbour_are_added_up() {
        let mut record = Record::default();
        for number in 0..=255 {
            record.add(End::Unknown, IpAddr::from([10, 0, 0, number]), bytes(1));
        }
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, record);
        assert_eq!((ledger.hosts.len(), everything(&ledger)), (0, 256));
    }

    #[test]
    fn a_ledger_is_the_same_after_a_restart_and_a_damaged_one_is_refused() {
        let mut ledger = Ledger::default();
        let mut record = of((0..300).map(|n| (n, 10)));
        record.total =
            Total { received: Counted { packets: 9, bytes: 900 }, counted_s: 60, ..Total::default() };
        ledger.record(NOON, 60, record);
        let kept = ledger.encoded();
        let again = Ledger::decode(&kept).unwrap();
        assert_eq!(again.encoded(), kept);
        assert_eq!((everything(&again), again.time()), (3000, NOON));
        assert!(Ledger::decode(&kept[..kept.len() / 2]).is_err());
        assert!(Ledger::decode(b"[]").is_err());
    }

    #[test]
    fn what_a_killed_daemon_counted_last_is_missing_and_the_ledger_says_so() {
        let mut ledger = Ledger::default();
        ledger.set_open(true);
        ledger.record(NOON, 60, of([(1, 10)]));
        let written = ledger.encoded();
        ledger.record(NOON + 600, 60, of([(1, 20)]));
        assert!(!ledger.is_incomplete(NOON, NOON + 3600));

        // Killed: only the file is left, with and without a daemon that goes on from it.
        let mut again = Ledger::decode(&written).unwrap();
        assert!(again.is_incomplete(NOON, NOON + 3600));
        again.set_open(true);
        again.record(NOON + 900, 60, of([(1, 5)]));
        again.record(NOON + 7200, 60, of([(1, 5)]));
        let incomplete = |ledger: &Ledger| {
            [0, 840, 900, 3600, 7200].map(|at| ledger.is_incomplete(NOON + at, NOON + at + 60))
        };
        assert_eq!(incomplete(&again), [true, true, true, false, false]);

        // Ended as planned.
        again.set_open(false);
        let third = Ledger::decode(&again.encoded()).unwrap();
        assert_eq!((incomplete(&third), third.lost.len()), (incomplete(&again), 1));
        for _ in 0..2 * LOST_MAX {
            again.set_open(true);
            again = Ledger::decode(&again.encoded()).unwrap();
        }
        assert_eq!((again.lost.len(), again.is_incomplete(NOON, NOON + 60)), (LOST_MAX, true));
    }

    #[test]
    fn a_month_of_250_hosts_takes_a_few_megabytes() {
        let mut ledger = Ledger::default();
        let large = |n| (n, 1_000_000_000_000);
        for hour in 0..31 * 24 {
            ledger.record(NOON + hour * 3600, 3600, of((0..250).map(large)));
        }
        for minute in 0..60 {
            ledger.record(NOON + 31 * 86_400 + minute * 60, 60, of((0..250).map(large)));
        }
        let bytes = ledger.encoded().len() as u64;
        assert!((1_000_000..super::super::FILE_BYTES_MAX).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_clock_that_goes_back_a_little_is_waited_for() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, of([(1, 1)]));
        ledger.record(NOON - 600, 60, of([(1, 2)]));
        assert_eq!((ledger.time(), used(&ledger, 1, Step::Minute, NOON)), (NOON, 3));
        // After an hour, it is right.
        ledger.record(NOON - 600, 3600, of([(1, 4)]));
        assert_eq!((ledger.time(), used(&ledger, 1, Step::Minute, NOON - 600)), (NOON - 600, 4));
    }

    #[test]
    fn a_clock_that_was_wrong_and_far_ahead_leaves_the_month_as_it_was() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, of([(1, 1)]));
        let wrong = NOON + 10 * 365 * 86_400;
        ledger.record(wrong, 60, of([(1, 2)]));
        ledger.record(NOON + 60, 3601, of([(1, 4)]));
        assert_eq!(used(&ledger, 1, Step::Day, NOON), 5);
    }

    #[test]
    fn a_router_without_a_clock_counts_for_the_time_at_which_it_went_off_until_its_clock_is_set() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, of([(1, 1)]));
        let mut ledger = Ledger::decode(&ledger.encoded()).unwrap();
        for _ in 0..100 {
            // 1970, for longer than an hour.
            ledger.record(60, 60, of([(1, 1)]));
        }
        assert_eq!(used(&ledger, 1, Step::Minute, NOON), 101);
        ledger.record(NOON + 3600, 60, of([(1, 7)]));
        assert_eq!(used(&ledger, 1, Step::Minute, NOON + 3600), 7);
    }

    #[test]
    fn what_was_counted_before_the_clock_was_first_set_moves_to_the_present() {
        let mut ledger = Ledger::default();
        ledger.record(30, 0, of([(1, 1)]));
        ledger.record(90, 60, of([(1, 2)]));
        ledger.record(NOON, 60, of([(1, 4)]));
        assert_eq!(used(&ledger, 1, Step::Minute, NOON), 7);
    }
}
