//! Answers queries from the ledger.

use super::{
    counts::{PathCount, count, total},
    host_id::HostId,
    ledger::{Host, Ledger},
    series::Step,
};
use shunt_api::{
    Counted, Failure, FailureCode, HostNames, HostUsage, StepSize, Usage, UsageQuery, UsageSpan, UsageStep,
    not_a_host,
};
use std::{cmp::Reverse, net::IpAddr, ops::RangeInclusive};

/// The steps of a period, by number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Period {
    step: Step,
    steps: RangeInclusive<u32>,
}

impl Ledger {
    /// Answers a query; `accounting` says whether conntrack counts.
    ///
    /// # Errors
    /// If the period or the host does not exist.
    pub(crate) fn answer(
        &self,
        query: &UsageQuery,
        names: &HostNames,
        accounting: bool,
    ) -> Result<Usage, Failure> {
        let (period, none) = (Period::asked(query, self.time())?, Counted::default());
        let wanted: Vec<&Host> = match &query.host {
            None => self.hosts.iter().collect(),
            Some(name) => vec![self.host(name, names)?],
        };
        let mut hosts: Vec<HostUsage> =
            wanted.iter().map(|host| self.used(host, &period, names, query)).collect();
        hosts.retain(|host| query.host.is_some() || host.count.sent != none || host.count.received != none);
        hosts.sort_by_key(|host| (Reverse(host.count.bytes()), host.mac, host.addresses.first().copied()));
        let has_paths = self.tells_paths_apart(period.from());
        let (totals, counted_s) = total(self.totals.sum(period.step, period.steps.clone()), has_paths);
        let steps = period.steps.clone().map(|index| self.step(period.step, index, &wanted, query));
        Ok(Usage {
            from: period.from(),
            to: period.end().min(self.time()),
            now: self.time(),
            step_s: period.step.seconds(),
            counted_s,
            incomplete: self.is_incomplete(period.from(), period.end()),
            accounting,
            hosts,
            others: count(self.others.sum(period.step, period.steps.clone())).view(has_paths),
            merged_hosts: self.merged,
            router: count(self.router.sum(period.step, period.steps.clone())).view(has_paths),
            total: totals,
            steps: steps.collect(),
        })
    }

    /// What a host has used in a period.
    fn used(&self, host: &Host, period: &Period, names: &HostNames, query: &UsageQuery) -> HostUsage {
        let view = |words, from| count(words).view(self.tells_paths_apart(from));
        let steps = period.steps.clone().filter(|_| query.steps);
        HostUsage {
            name: host.addresses.iter().find_map(|address| names.name(*address)).map(str::to_owned),
            mac: match host.id {
                HostId::Mac(mac) => Some(mac),
                HostId::Address(_) => None,
            },
            addresses: host.addresses.clone(),
            seen: host.seen,
            count: view(host.series.sum(period.step, period.steps.clone()), period.from()),
            steps: steps
                .map(|index| {
                    let sums = view(host.series.get(period.step, index), period.step.begin(index));
                    self.is_counted(period.step, index).then_some(sums)
                })
                .collect(),
        }
    }

    /// Whether anybody counted in a step: the daemon ran, or went on from conntrack's counters afterwards.
    fn is_counted(&self, step: Step, index: u32) -> bool {
        let counted = self.totals.get(step, index);
        // A daemon that has just started may not have counted for a whole second.
        counted.iter().any(|sum| *sum != 0) || index == step.index(self.time())
    }

    fn step(&self, step: Step, index: u32, wanted: &[&Host], query: &UsageQuery) -> UsageStep {
        let at = step.begin(index);
        let incomplete = self.is_incomplete(at, at + step.seconds());
        let mut sum = wanted
            .iter()
            .map(|host| count(host.series.get(step, index)))
            .fold(PathCount::default(), PathCount::plus);
        if query.host.is_none() {
            sum = sum.plus(count(self.others.get(step, index))).plus(count(self.router.get(step, index)));
        }
        let has_paths = self.tells_paths_apart(at);
        let (total, counted_s) = total(self.totals.get(step, index), has_paths);
        if !self.is_counted(step, index) {
            return UsageStep { at, incomplete, ..UsageStep::default() };
        }
        let sum = sum.view(has_paths);
        UsageStep {
            at,
            counted_s,
            sent: Some(sum.sent),
            received: Some(sum.received),
            fast: sum.fast,
            total: Some(total),
            incomplete,
        }
    }

    fn host(&self, name: &str, names: &HostNames) -> Result<&Host, Failure> {
        let address: Option<IpAddr> = name.parse().ok();
        let by_id = self.hosts.iter().find(|host| host.id.to_string() == name.to_ascii_lowercase());
        let has_address = |host: &&Host| address.is_some_and(|address| host.addresses.contains(&address));
        let has_name = |host: &&Host| host.addresses.iter().any(|address| names.name(*address) == Some(name));
        // Hosts choose their names, so a name stands behind an address.
        let by_address = || self.hosts.iter().find(has_address);
        let found = by_id.or_else(by_address).or_else(|| self.hosts.iter().find(has_name));
        found.ok_or_else(|| {
            let is_host = address.is_some() || !names.addresses(name).is_empty();
            let counted = self.hosts.iter().flat_map(|host| &host.addresses);
            let why = if is_host {
                format!("nothing was counted for `{name}`; `shunt usage` lists the hosts with traffic")
            } else {
                format!("`{name}` is not {}", not_a_host(counted.filter_map(|address| names.name(*address))))
            };
            Failure::new(FailureCode::Usage, why)
        })
    }
}

impl Period {
    fn asked(query: &UsageQuery, now: u64) -> Result<Self, Failure> {
        let refused = |why: &str| Err(Failure::new(FailureCode::Usage, why.to_owned()));
        let finest = match query.step {
            None => None,
            Some(StepSize::Minute) => Some(Step::Minute),
            Some(StepSize::Hour) => Some(Step::Hour),
            Some(StepSize::Day) => Some(Step::Day),
        };
        let from = match (query.last_s, query.from) {
            (None, from) => from,
            (Some(_), _) if query.span.is_some() => return refused("last_s: not together with span"),
            (Some(_), Some(_)) => return refused("last_s: not together with from"),
            // The present second is one of them.
            (Some(last_s), None) => Some(now.saturating_sub(last_s) + 1),
        };
        let (step, from, to) = match (query.span, from, query.to) {
            (Some(_), Some(_), _) => return refused("span: not together with from"),
            (_, None, Some(_)) => return refused("to: needs from"),
            (_, Some(from), to) => {
                let to = to.unwrap_or(now);
                if to < from {
                    return refused("to: is before from");
                }
                let reaches = |step: &&Step| from / step.seconds() + step.kept() > now / step.seconds();
                let finest = finest.or_else(|| Step::ALL.iter().find(reaches).copied());
                (finest.unwrap_or(Step::Day), from, to.min(now))
            }
            (span, None, None) => {
                let (step, steps) = match span.unwrap_or_default() {
                    UsageSpan::Hour => (Step::Minute, 60),
                    UsageSpan::Day => (Step::Hour, 24),
                    UsageSpan::Week => (Step::Hour, 168),
                    UsageSpan::Month => (Step::Day, 31),
                };
                let from = now.saturating_sub((steps - 1) * step.seconds());
                (finest.unwrap_or(step), from, now)
            }
        };
        // Steps that are no longer kept are empty.
        let first = step.index(now).saturating_sub(step.kept() as u32 - 1);
        let end = step.index(to).clamp(first, step.index(now));
        Ok(Self { step, steps: step.index(from).clamp(first, end)..=end })
    }

    /// When its first step begins.
    fn from(&self) -> u64 {
        self.step.begin(*self.steps.start())
    }

    /// When its last step ends.
    fn end(&self) -> u64 {
        self.step.begin(*self.steps.end()) + self.step.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ledger::Record, *};
    use shunt_api::{FastCount, UsageTotal};
    use shunt_core::End;
    use shunt_wire::Mac;

    /// 2026-01-01 12:00:00 UTC.
    const NOON: u64 = 1_767_268_800;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let hours = [(0, 1, 1000), (1, 2, 30), (2, 1, 4)];
        for (hour, last, bytes) in hours {
            let mut record = Record::default();
            let sent = PathCount {
                sent: Counted { packets: 2, bytes },
                fast: FastCount { sent: Counted { packets: 1, bytes: bytes / 2 }, ..FastCount::default() },
                ..PathCount::default()
            };
            record.add(End::Host(Mac([2, 0, 0, 0, 0, last])), IpAddr::from([192, 0, 2, last]), sent);
            record.add(End::Router, IpAddr::from([192, 0, 2, 254]), sent);
            record.total.counted_s = 60;
            ledger.record(NOON + hour * 3600, 3600, record);
        }
        ledger
    }

    fn names() -> HostNames {
        HostNames::read(
            |path| if path == "/etc/hosts" { "192.0.2.1 laptop\n".to_owned() } else { String::new() },
        )
    }

    fn ask(query: &UsageQuery) -> Result<Usage, Failure> {
        ledger().answer(query, &names(), true)
    }

    #[test]
    fn hosts_are_listed_by_use_and_the_steps_have_all() {
        let day = ask(&UsageQuery::default()).unwrap();
        let listed: Vec<_> =
            day.hosts.iter().map(|host| (host.name.as_deref(), host.count.bytes())).collect();
        assert_eq!(listed, [(Some("laptop"), 1004), (None, 30)]);
        assert_eq!((day.steps.len(), day.step_s, day.counted_s), (24, 3600, 180));
        assert_eq!((day.router.bytes(), day.steps.last().unwrap().count().unwrap().bytes()), (1034, 8));
        assert!(day.hosts.iter().all(|host| host.steps.is_empty()));
        let hour =
            ask(&UsageQuery { span: Some(UsageSpan::Hour), steps: true, ..UsageQuery::default() }).unwrap();
        assert_eq!((hour.steps.len(), hour.hosts.len(), hour.hosts[0].steps.len()), (60, 1, 60));
        let month = ask(&UsageQuery { span: Some(UsageSpan::Month), ..UsageQuery::default() }).unwrap();
        assert_eq!((month.steps.len(), month.hosts[0].count.bytes()), (31, 1004));
    }

    #[test]
    fn a_period_has_the_finest_steps_that_reach_back() {
        let from = |from, to| ask(&UsageQuery { from: Some(from), to, ..UsageQuery::default() }).unwrap();
        let now = NOON + 7200;
        assert_eq!((from(now - 600, None).step_s, from(now - 600, None).steps.len()), (60, 11));
        let last = ask(&UsageQuery { last_s: Some(600), ..UsageQuery::default() }).unwrap();
        assert_eq!((last.step_s, last.steps.len(), last.to), (60, 11, now));
        let hours = from(NOON, Some(NOON + 3600));
        assert_eq!((hours.step_s, hours.steps.len(), hours.hosts[0].count.bytes()), (3600, 2, 1000));
        let days = from(0, None);
        assert_eq!((days.step_s, days.steps.len()), (86_400, 31));
    }

    #[test]
    fn the_period_ends_now_and_what_nobody_counted_is_unknown() {
        let mut ledger = ledger();
        ledger.record(NOON + 2 * 3600 + 1234, 60, Record::default());
        let day = ledger.answer(&UsageQuery::default(), &names(), true).unwrap();
        assert_eq!((day.to, day.now), (NOON + 2 * 3600 + 1234, NOON + 2 * 3600 + 1234));
        let known: Vec<bool> = day.steps.iter().map(|step| step.count().is_some()).collect();
        assert_eq!(known, [vec![false; 21], vec![true; 3]].concat());
        assert!(day.steps[0].total.is_none() && day.steps[23].total.is_some());
        let one = UsageQuery { host: Some("laptop".to_owned()), steps: true, ..UsageQuery::default() };
        let hours = &ledger.answer(&one, &names(), true).unwrap().hosts[0].steps;
        assert!(hours[20].is_none() && hours[22].is_some_and(|count| count.bytes() == 0), "{hours:?}");
        // Earlier hours end when they end.
        let past = UsageQuery { from: Some(NOON), to: Some(NOON + 60), ..UsageQuery::default() };
        let past = ledger.answer(&past, &names(), true).unwrap();
        assert_eq!((past.from, past.to), (NOON, NOON + 3600));
    }

    #[test]
    fn the_present_step_is_counted_as_soon_as_a_daemon_runs() {
        let mut ledger = Ledger::default();
        ledger.record(NOON, 0, Record::default());
        let day = ledger.answer(&UsageQuery::default(), &names(), true).unwrap();
        let known: Vec<_> = day.steps.iter().filter_map(|step| step.total).collect();
        assert_eq!(known, [UsageTotal { fast: Some(Counted::default()), ..UsageTotal::default() }]);
    }

    #[test]
    fn a_period_with_a_time_before_the_paths_were_told_apart_has_no_fast_part() {
        let asked = |ledger: &Ledger, hours: u64| {
            let from = Some(NOON + 2 * 3600 - hours * 3600);
            ledger.answer(&UsageQuery { from, ..UsageQuery::default() }, &names(), true).unwrap()
        };
        let fast = |usage: &Usage| usage.hosts[0].count.fast.map(|fast| fast.bytes());
        let ledger = ledger();
        assert_eq!(fast(&asked(&ledger, 2)), Some(502));
        // The file of an earlier version: four sums for each step, and nine for the totals.
        let mut kept: serde_json::Value = serde_json::from_slice(&ledger.encoded()).unwrap();
        let shorten = |series: &mut serde_json::Value, sums: usize| {
            for step in
                series.as_array_mut().unwrap().iter_mut().flat_map(|ring| ring.as_array_mut().unwrap())
            {
                step[1].as_array_mut().unwrap().truncate(sums);
            }
        };
        shorten(&mut kept["others"], 4);
        shorten(&mut kept["router"], 4);
        shorten(&mut kept["totals"], 9);
        for host in kept["hosts"].as_array_mut().unwrap() {
            shorten(&mut host["series"], 4);
            host["all"].as_object_mut().unwrap().remove("fast");
        }
        kept.as_object_mut().unwrap().remove("paths_after");
        let mut old = Ledger::decode(kept.to_string().as_bytes()).unwrap();
        let day = asked(&old, 2);
        assert_eq!((day.hosts[0].count.bytes(), fast(&day), day.total.fast), (1004, None, None));
        let mut record = Record::default();
        let count = Counted { packets: 1, bytes: 70 };
        let fast_sent = FastCount { sent: count, ..FastCount::default() };
        let sent = PathCount { sent: count, fast: fast_sent, ..PathCount::default() };
        record.add(End::Host(Mac([2, 0, 0, 0, 0, 1])), IpAddr::from([192, 0, 2, 1]), sent);
        record.total.counted_s = 60;
        old.record(NOON + 3 * 3600, 60, record);
        let again = Ledger::decode(&old.encoded()).unwrap();
        let all = asked(&again, 2);
        let by_hour: Vec<_> = all.steps.iter().map(|step| step.fast.map(|fast| fast.bytes())).collect();
        assert_eq!((fast(&all), by_hour), (None, vec![None, None, None, Some(70)]));
        let later = UsageQuery { from: Some(NOON + 3 * 3600), ..UsageQuery::default() };
        assert_eq!(fast(&again.answer(&later, &names(), true).unwrap()), Some(70));
    }

    #[test]
    fn a_host_is_named_by_name_mac_or_address() {
        for name in ["laptop", "02:00:00:00:00:01", "192.0.2.1"] {
            let one = ask(&UsageQuery { host: Some(name.to_owned()), ..UsageQuery::default() }).unwrap();
            assert_eq!((one.hosts.len(), one.hosts[0].count.bytes()), (1, 1004), "{name}");
            assert_eq!(one.steps.last().unwrap().count().unwrap().bytes(), 4);
        }
        let unknown = ask(&UsageQuery { host: Some("nobody".to_owned()), ..UsageQuery::default() });
        assert!(unknown.unwrap_err().message.contains("`nobody`"));
    }

    #[test]
    fn a_period_that_makes_no_sense_is_refused() {
        for query in [
            UsageQuery { to: Some(1), ..UsageQuery::default() },
            UsageQuery { from: Some(2), to: Some(1), ..UsageQuery::default() },
            UsageQuery { span: Some(UsageSpan::Day), from: Some(2), ..UsageQuery::default() },
            UsageQuery { last_s: Some(60), from: Some(2), ..UsageQuery::default() },
            UsageQuery { last_s: Some(60), span: Some(UsageSpan::Day), ..UsageQuery::default() },
        ] {
            assert_eq!(ask(&query).unwrap_err().code, FailureCode::Usage);
        }
    }
}
