//! Answers queries from the ledger.

use super::{
    host_id::HostId,
    ledger::{Host, Ledger, count, total},
    series::Step,
};
use shunt_api::{
    Failure, FailureCode, HostNames, HostUsage, StepSize, Usage, UsageCount, UsageQuery, UsageSpan, UsageStep,
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
        let period = Period::asked(query, self.time())?;
        let wanted: Vec<&Host> = match &query.host {
            None => self.hosts.iter().collect(),
            Some(name) => vec![self.host(name, names)?],
        };
        let mut hosts: Vec<HostUsage> =
            wanted.iter().map(|host| period.host(host, names, query.steps)).collect();
        hosts.retain(|host| query.host.is_some() || host.count != UsageCount::default());
        hosts.sort_by_key(|host| (Reverse(host.count.bytes()), host.mac, host.addresses.first().copied()));
        let (totals, counted_s) = total(self.totals.sum(period.step, period.steps.clone()));
        let steps = period.steps.clone().map(|index| self.step(period.step, index, &wanted, query));
        Ok(Usage {
            from: u64::from(*period.steps.start()) * period.step.seconds(),
            to: (u64::from(*period.steps.end()) + 1) * period.step.seconds(),
            step_s: period.step.seconds(),
            counted_s,
            accounting,
            hosts,
            others: count(self.others.sum(period.step, period.steps.clone())),
            merged_hosts: self.merged,
            router: count(self.router.sum(period.step, period.steps.clone())),
            total: totals,
            steps: steps.collect(),
        })
    }

    fn step(&self, step: Step, index: u32, wanted: &[&Host], query: &UsageQuery) -> UsageStep {
        let mut sum = wanted
            .iter()
            .map(|host| count(host.series.get(step, index)))
            .fold(UsageCount::default(), UsageCount::plus);
        if query.host.is_none() {
            sum = sum.plus(count(self.others.get(step, index))).plus(count(self.router.get(step, index)));
        }
        let (total, counted_s) = total(self.totals.get(step, index));
        UsageStep { at: u64::from(index) * step.seconds(), counted_s, count: sum, total }
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
            let why = format!("no host `{name}` in the ledger; `shunt usage` lists them");
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
        let (step, from, to) = match (query.span, query.from, query.to) {
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

    fn host(&self, host: &Host, names: &HostNames, by_step: bool) -> HostUsage {
        let steps = self.steps.clone().filter(|_| by_step);
        HostUsage {
            name: host.addresses.iter().find_map(|address| names.name(*address)).map(str::to_owned),
            mac: match host.id {
                HostId::Mac(mac) => Some(mac),
                HostId::Address(_) => None,
            },
            addresses: host.addresses.clone(),
            seen: host.seen,
            count: count(host.series.sum(self.step, self.steps.clone())),
            steps: steps.map(|index| count(host.series.get(self.step, index))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ledger::Record, *};
    use shunt_api::Counted;
    use shunt_core::End;
    use shunt_wire::Mac;

    /// 2026-01-01 12:00:00 UTC.
    const NOON: u64 = 1_767_268_800;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let hours = [(0, 1, 1000), (1, 2, 30), (2, 1, 4)];
        for (hour, last, bytes) in hours {
            let mut record = Record::default();
            let sent = UsageCount { sent: Counted { packets: 1, bytes }, ..UsageCount::default() };
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
        assert_eq!((day.router.bytes(), day.steps.last().unwrap().count.bytes()), (1034, 8));
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
        let hours = from(NOON, Some(NOON + 3600));
        assert_eq!((hours.step_s, hours.steps.len(), hours.hosts[0].count.bytes()), (3600, 2, 1000));
        let days = from(0, None);
        assert_eq!((days.step_s, days.steps.len()), (86_400, 31));
    }

    #[test]
    fn a_host_is_named_by_name_mac_or_address() {
        for name in ["laptop", "02:00:00:00:00:01", "192.0.2.1"] {
            let one = ask(&UsageQuery { host: Some(name.to_owned()), ..UsageQuery::default() }).unwrap();
            assert_eq!((one.hosts.len(), one.hosts[0].count.bytes()), (1, 1004), "{name}");
            assert_eq!(one.steps.last().unwrap().count.bytes(), 4);
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
        ] {
            assert_eq!(ask(&query).unwrap_err().code, FailureCode::Usage);
        }
    }
}
