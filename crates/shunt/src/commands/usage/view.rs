//! The text of `shunt usage`.

use crate::render::{
    Answer, Format,
    clock::{minute, rfc3339},
    columns::align,
    json, units,
};
use clap::ValueEnum;
use shunt_api::{Counted, FastCount, HostUsage, Usage, UsageCount, UsageStep};
use std::{fmt::Write, io};

/// Readings are a second late at most, twice in a step.
const LATE_S: u64 = 3;

const INCOMPLETE: &str =
    "incomplete: Shunt ended without writing what it had counted last, so all of these are too small\n";

/// The unit of a line in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Host,
    Minute,
    Hour,
    Day,
}

/// What was asked for, and how it is shown.
#[derive(Debug)]
pub(crate) struct UsageTable {
    pub(crate) usage: Usage,
    pub(crate) by: By,
    /// Whether one host was asked for: then others are left out.
    pub(crate) one_host: bool,
    pub(crate) csv: bool,
    /// Whether a period was asked for, and not all that is kept.
    pub(crate) has_period: bool,
    /// Whether it is what a daemon kept that does not run.
    pub(crate) is_kept: bool,
}

impl Answer for UsageTable {
    fn text(&self, _: Format) -> String {
        self.period() + &self.table() + &self.rest()
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.usage)
    }

    fn render(&self, format: Format) -> io::Result<Vec<u8>> {
        let printed = match (format.json, self.csv) {
            (true, _) => self.json()?,
            (false, true) => self.csv(),
            (false, false) => format.finish(&self.text(format)),
        };
        Ok(printed.into_bytes())
    }
}

/// The name of a host; without one its MAC, or its address.
pub(crate) fn name(host: &HostUsage) -> String {
    let mac = || host.mac.map(|mac| mac.to_string());
    let address = || host.addresses.first().map(ToString::to_string);
    host.name.clone().or_else(mac).or_else(address).unwrap_or_default()
}

impl UsageTable {
    /// The period, and how much of it was counted.
    fn period(&self) -> String {
        let Usage { from, to, now, counted_s, .. } = self.usage;
        let counted = units::time(counted_s.min(to.saturating_sub(from)));
        let end = match (self.is_kept, to == now) {
            (_, false) => "",
            (false, true) => " (now)",
            (true, true) => " (the last count)",
        };
        let incomplete = if self.usage.incomplete { INCOMPLETE } else { "" };
        format!(
            "{} to {} UTC{end}, of which {counted} were counted\n{incomplete}\n",
            minute(from),
            minute(to)
        )
    }

    /// The part of a step that is over, in seconds.
    fn elapsed_s(&self, step: &UsageStep) -> u64 {
        self.end(step).saturating_sub(step.at)
    }

    fn end(&self, step: &UsageStep) -> u64 {
        (step.at + self.usage.step_s).min(self.usage.to)
    }

    fn table(&self) -> String {
        let cells = |first: Vec<String>, count: &UsageCount| {
            let UsageCount { sent, received, .. } = count;
            let bytes = [received.bytes, sent.bytes, count.bytes()].map(units::bytes);
            first.into_iter().chain(bytes).chain([fast_share(count)]).collect::<Vec<_>>()
        };
        let head = |first: &[&str]| {
            let heads = first.iter().chain(&["received", "sent", "total", "fast"]);
            heads.map(|head| (*head).to_owned()).collect::<Vec<_>>()
        };
        if self.by == By::Host {
            if self.usage.hosts.is_empty() {
                return String::new();
            }
            let mut rows = vec![head(&["host", "address"])];
            rows.extend(self.usage.hosts.iter().map(|host| {
                let address = host.addresses.first().map_or_else(|| "-".to_owned(), ToString::to_string);
                cells(vec![name(host), address], &host.count)
            }));
            return align("<<>", &rows) + "\n";
        }
        let mut rows = vec![head(&["from"])];
        let partly = |step: &UsageStep| {
            let is_part = step.counted_s + LATE_S < self.elapsed_s(step);
            let counted = units::time(step.counted_s);
            let counted = if is_part { format!("{counted} counted") } else { String::new() };
            let incomplete = if step.incomplete { "incomplete" } else { "" };
            [counted.as_str(), incomplete]
                .into_iter()
                .filter(|note| !note.is_empty())
                .collect::<Vec<_>>()
                .join(", ")
        };
        // A young instance has counted little of what could be kept.
        let all = &self.usage.steps;
        let Some(first) = all.iter().position(|step| step.count().is_some()) else {
            return "nothing was counted in this time: Shunt did not run, or kept no ledger\n\n".to_owned();
        };
        let steps = &all[first..];
        rows.extend(steps.iter().map(|step| match step.count() {
            Some(count) => {
                let mut row = cells(vec![minute(step.at)], &count);
                row.extend(Some(partly(step)).filter(|note| !note.is_empty()));
                row
            }
            None => {
                let mut row = [minute(step.at).as_str(), "?", "?", "?", "?"].map(str::to_owned).to_vec();
                row.extend(step.incomplete.then(|| "incomplete".to_owned()));
                row
            }
        }));
        let mut text = align("<>>>><", &rows);
        if first > 0 && self.has_period {
            let at = minute(all[first].at);
            text += &format!("before {at}: not counted: Shunt did not run, or kept no ledger\n");
        }
        if steps.iter().any(|step| step.count().is_none()) {
            text += "?: not counted: Shunt did not run, or kept no ledger\n";
        }
        text + "\n"
    }

    /// What is not in a line of a host.
    fn rest(&self) -> String {
        if self.one_host {
            return String::new();
        }
        let Usage { others, merged_hosts, router, total, incomplete, .. } = &self.usage;
        let shown = |count: Counted| {
            format!("{} ({})", units::bytes(count.bytes), units::count(count.packets, "packet"))
        };
        let both = |count: &UsageCount| {
            format!(
                "{} received, {} sent",
                units::bytes(count.received.bytes),
                units::bytes(count.sent.bytes)
            )
        };
        let fast = match total.fast {
            Some(fast) => format!(", fast {}", shown(fast)),
            None => ", the fast part is not known: some of it was counted by an earlier version".to_owned(),
        };
        let merged = match merged_hosts {
            0 => String::new(),
            hosts => format!(", with {} that gave way to others", units::count(*hosts, "host")),
        };
        let least = if *incomplete { "at least " } else { "" };
        let lines = [
            (format!("other hosts{merged}"), others.bytes() > 0, both(others)),
            ("the router itself".to_owned(), router.bytes() > 0, both(router)),
            ("between local hosts".to_owned(), total.local.bytes > 0, shown(total.local)),
            ("without a local host".to_owned(), total.transit.bytes > 0, shown(total.transit)),
            ("received by all ports".to_owned(), true, shown(total.received) + &fast),
            ("not attributed".to_owned(), true, least.to_owned() + &shown(total.not_attributed)),
        ];
        let mut text = String::new();
        for (name, _, value) in lines.iter().filter(|(_, is_shown, _)| *is_shown) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }

    /// Comma-separated values, each line with its period, so that files can be joined. What is not known is empty. No
    /// name of a host has a comma.
    fn csv(&self) -> String {
        let Usage { from, to, counted_s, incomplete, .. } = self.usage;
        let head = "received_bytes,sent_bytes,received_packets,sent_packets,\
            fast_received_bytes,fast_sent_bytes,fast_received_packets,fast_sent_packets,counted_s,incomplete";
        let period = |from, to| format!("{},{}", rfc3339(from), rfc3339(to));
        if self.by != By::Host {
            let mut text = format!("from,to,{head}\n");
            for step in &self.usage.steps {
                let period = period(step.at, self.end(step));
                let values = values(step.count().as_ref());
                let _ = writeln!(text, "{period},{values},{},{}", step.counted_s, step.incomplete);
            }
            return text;
        }
        let period = period(from, to);
        let mut text = format!("from,to,host,mac,address,{head}\n");
        for host in &self.usage.hosts {
            let mac = host.mac.map(|mac| mac.to_string()).unwrap_or_default();
            let address = host.addresses.first().map(ToString::to_string).unwrap_or_default();
            let values = values(Some(&host.count));
            let _ =
                writeln!(text, "{period},{},{mac},{address},{values},{counted_s},{incomplete}", name(host));
        }
        let rest = [("others", &self.usage.others), ("router", &self.usage.router)];
        for (name, count) in rest.into_iter().filter(|_| !self.one_host) {
            let values = values(Some(count));
            let _ = writeln!(text, "{period},({name}),,,{values},{counted_s},{incomplete}");
        }
        text
    }
}

/// The share of bytes that took the fast path.
fn fast_share(count: &UsageCount) -> String {
    let share = |fast: FastCount| fast.bytes() as f64 / count.bytes() as f64;
    count
        .fast
        .filter(|_| count.bytes() > 0)
        .map_or_else(|| "-".to_owned(), |fast| units::percent(share(fast)))
}

/// The values of a line of CSV: empty where they are not known.
fn values(count: Option<&UsageCount>) -> String {
    let pair =
        |received: Counted, sent: Counted| [received.bytes, sent.bytes, received.packets, sent.packets];
    let all = count.map(|count| pair(count.received, count.sent));
    let fast = count.and_then(|count| count.fast).map(|fast| pair(fast.received, fast.sent));
    let cells = |known: Option<[u64; 4]>| {
        known.map_or_else(|| [const { String::new() }; 4], |known| known.map(|value| value.to_string()))
    };
    [cells(all), cells(fast)].concat().join(",")
}

#[cfg(test)]
pub(crate) fn sample() -> Usage {
    crate::golden::sample(include_str!("golden/usage.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, assert_golden, assert_golden_text, show};

    #[test]
    fn texts_match_their_golden_files() {
        let table = |by, csv| UsageTable {
            usage: sample(),
            by,
            one_host: false,
            csv,
            has_period: false,
            is_kept: false,
        };
        assert_golden("golden/usage.json", &table(By::Host, false), JSON);
        assert_golden("golden/usage.txt", &table(By::Host, false), TEXT);
        assert_golden("golden/usage-by-hour.txt", &table(By::Hour, false), TEXT);
        assert_golden_text("golden/usage.csv", &show(&table(By::Host, true), TEXT));
        assert_golden_text("golden/usage-by-hour.csv", &show(&table(By::Hour, true), TEXT));
    }

    #[test]
    fn one_host_is_shown_without_the_others_and_the_router() {
        let mut usage = sample();
        usage.hosts.truncate(1);
        let table = |csv| UsageTable {
            usage: usage.clone(),
            by: By::Host,
            one_host: true,
            csv,
            has_period: false,
            is_kept: false,
        };
        let csv = show(&table(true), TEXT);
        assert_eq!(csv.lines().count(), 2, "{csv}");
        let text = show(&table(false), TEXT);
        assert!(
            text.contains(&name(&usage.hosts[0])) && !text.contains("router") && !text.contains("all ports"),
            "{text}"
        );
    }

    #[test]
    fn an_incomplete_period_says_so_and_claims_no_exact_rest() {
        let usage = Usage { incomplete: true, ..sample() };
        let table = UsageTable {
            usage,
            by: By::Host,
            one_host: false,
            csv: false,
            has_period: false,
            is_kept: false,
        };
        let text = show(&table, TEXT);
        assert!(text.contains(INCOMPLETE) && text.contains("\nnot attributed: at least "), "{text}");
    }

    #[test]
    fn incomplete_steps_and_periods_are_marked_in_every_format() {
        let mut usage = Usage { incomplete: true, ..sample() };
        let last = usage.steps.len() - 1;
        usage.steps[last].incomplete = true;
        let table = |by, csv| UsageTable {
            usage: usage.clone(),
            by,
            one_host: false,
            csv,
            has_period: false,
            is_kept: false,
        };
        let text = show(&table(By::Hour, false), TEXT);
        assert_eq!(text.lines().filter(|line| line.ends_with("incomplete")).count(), 1, "{text}");
        let steps = show(&table(By::Hour, true), TEXT);
        let marks: Vec<&str> = steps.lines().filter_map(|line| line.rsplit(',').next()).collect();
        assert_eq!((marks[0], marks[marks.len() - 1]), ("incomplete", "true"), "{steps}");
        assert_eq!(marks.iter().filter(|mark| **mark == "true").count(), 1, "{steps}");
        let hosts = show(&table(By::Host, true), TEXT);
        assert!(hosts.lines().skip(1).all(|line| line.ends_with(",true")), "{hosts}");
        let json: serde_json::Value = serde_json::from_str(&show(&table(By::Hour, false), JSON)).unwrap();
        assert_eq!(json["steps"][last]["incomplete"], true);
    }

    #[test]
    fn hours_begin_with_the_first_that_was_counted() {
        let by_hour = |has_period, usage: Usage| {
            let table =
                UsageTable { usage, by: By::Hour, one_host: false, csv: false, has_period, is_kept: false };
            show(&table, TEXT)
        };
        let all = by_hour(false, sample());
        assert!(
            all.contains("2026-01-01 10:00") && !all.contains('?') && !all.contains("not counted:"),
            "{all}"
        );
        let asked = by_hour(true, sample());
        assert!(asked.contains("\nbefore 2026-01-01 10:00: not counted: Shunt did not run"), "{asked}");
        // A gap is shown.
        let mut gap = sample();
        gap.steps.rotate_left(1);
        assert!(by_hour(false, gap).contains("?: not counted"));
        let mut none = sample();
        none.steps.truncate(1);
        assert!(by_hour(false, none).contains("\nnothing was counted in this time: Shunt did not run"));
    }

    #[test]
    fn a_period_without_hosts_says_what_the_ports_received() {
        let table = UsageTable {
            usage: Usage::default(),
            by: By::Host,
            one_host: false,
            csv: false,
            has_period: false,
            is_kept: false,
        };
        let text = show(&table, TEXT);
        assert!(
            text.contains("received by all ports: 0 B (0 packets)")
                && text.ends_with("not attributed: 0 B (0 packets)\n"),
            "{text}"
        );
    }
}
