//! The text of `shunt usage`.

use crate::render::{Answer, Format, columns::align, json, units};
use clap::ValueEnum;
use shunt_api::{Counted, HostUsage, Usage, UsageCount};
use std::{
    fmt::Write,
    io,
    time::{Duration, SystemTime},
};

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
        let Usage { from, to, counted_s, .. } = self.usage;
        let counted = units::time(counted_s);
        format!("{} to {} UTC, of which {counted} were counted\n\n", minute(from), minute(to))
    }

    fn table(&self) -> String {
        let cells = |first: Vec<String>, count: &UsageCount| {
            let UsageCount { sent, received } = count;
            let bytes = [received.bytes, sent.bytes, count.bytes()].map(units::bytes);
            first.into_iter().chain(bytes).collect::<Vec<_>>()
        };
        let head = |first: &[&str]| {
            let heads = first.iter().chain(&["received", "sent", "total"]);
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
        rows.extend(self.usage.steps.iter().map(|step| cells(vec![minute(step.at)], &step.count)));
        align("<>", &rows) + "\n"
    }

    /// What is not in a line of a host.
    fn rest(&self) -> String {
        if self.one_host {
            return String::new();
        }
        let Usage { others, merged_hosts, router, total, .. } = &self.usage;
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
        let merged = match merged_hosts {
            0 => String::new(),
            hosts => format!(", with {} that gave way to others", units::count(*hosts, "host")),
        };
        let lines = [
            (format!("other hosts{merged}"), *others != UsageCount::default(), both(others)),
            ("the router itself".to_owned(), *router != UsageCount::default(), both(router)),
            ("between local hosts".to_owned(), total.local.bytes > 0, shown(total.local)),
            ("without a local host".to_owned(), total.transit.bytes > 0, shown(total.transit)),
            ("received by all ports".to_owned(), true, shown(total.received)),
            ("not attributed".to_owned(), true, shown(total.not_attributed)),
        ];
        let mut text = String::new();
        for (name, _, value) in lines.iter().filter(|(_, is_shown, _)| *is_shown) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }

    /// Comma-separated values. No name of a host has a comma.
    fn csv(&self) -> String {
        let counts = |count: &UsageCount| {
            let UsageCount { sent, received } = count;
            format!("{},{},{},{}", received.bytes, sent.bytes, received.packets, sent.packets)
        };
        let head = "received_bytes,sent_bytes,received_packets,sent_packets";
        if self.by != By::Host {
            let steps = self.usage.steps.iter();
            let lines = steps.map(|step| format!("{},{}\n", step.at, counts(&step.count)));
            return format!("from,{head}\n{}", lines.collect::<String>());
        }
        let mut text = format!("host,mac,address,{head}\n");
        for host in &self.usage.hosts {
            let mac = host.mac.map(|mac| mac.to_string()).unwrap_or_default();
            let address = host.addresses.first().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "{},{mac},{address},{}", name(host), counts(&host.count));
        }
        let rest = [("others", &self.usage.others), ("router", &self.usage.router)];
        for (name, count) in rest.into_iter().filter(|_| !self.one_host) {
            let _ = writeln!(text, "({name}),,,{}", counts(count));
        }
        text
    }
}

/// A time of UTC, in minutes.
fn minute(at: u64) -> String {
    let whole =
        humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).to_string();
    whole.get(..16).unwrap_or(&whole).replace('T', " ")
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
        let table = |by, csv| UsageTable { usage: sample(), by, one_host: false, csv };
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
        let table = |csv| UsageTable { usage: usage.clone(), by: By::Host, one_host: true, csv };
        let csv = show(&table(true), TEXT);
        assert_eq!(csv.lines().count(), 2, "{csv}");
        let text = show(&table(false), TEXT);
        assert!(
            text.contains(&name(&usage.hosts[0])) && !text.contains("router") && !text.contains("all ports"),
            "{text}"
        );
    }

    #[test]
    fn a_period_without_hosts_says_what_the_ports_received() {
        let table = UsageTable { usage: Usage::default(), by: By::Host, one_host: false, csv: false };
        let text = show(&table, TEXT);
        assert!(
            text.ends_with("received by all ports: 0 B (0 packets)\nnot attributed: 0 B (0 packets)\n"),
            "{text}"
        );
    }
}
