//! The text of `shunt history`.

use crate::render::{Answer, Format, clock::rfc3339, columns::align, json, units};
use shunt_api::{HistoryEvent, HistoryRow, HistoryTable};

/// The seconds of a day.
const DAY_S: u64 = 86_400;
/// The last events that follow the traffic.
const EVENTS_SHOWN: usize = 5;

/// A part of the history.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) table: HistoryTable,
    /// Whether the traffic was left out.
    pub(crate) only_events: bool,
    /// Whether all events follow the traffic.
    pub(crate) all_events: bool,
}

impl Answer for Shown {
    fn text(&self, format: Format) -> String {
        let Self { table, only_events, all_events } = self;
        if *only_events {
            return events(table, table.events.len());
        }
        let shown = if format.verbose || *all_events { table.events.len() } else { EVENTS_SHOWN };
        rows(&table.rows, format.verbose) + "\n" + &events(table, shown)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.table)
    }
}

fn rows(rows: &[HistoryRow], verbose: bool) -> String {
    if rows.is_empty() {
        return "no traffic was counted in this time; the daemon counts once a minute\n".to_owned();
    }
    let mut table = vec![["UTC", "in", "", "out", "", "fast", "saved"].map(str::to_owned).to_vec()];
    let mut end = None;
    for row in rows {
        if end.is_some_and(|end| row.at > end + HistoryTable::GAP_S) {
            let unknown = ["?"; 6].map(str::to_owned);
            table.push(end.map(day_and_minute).into_iter().chain(unknown).collect());
        }
        end = Some(row.end());
        table.push(vec![
            day_and_minute(row.at),
            units::bits_per_second(row.in_bps),
            units::packets_per_second(row.in_pps),
            units::bits_per_second(row.out_bps),
            units::packets_per_second(row.out_pps),
            row.fast_share.map_or_else(|| "-".to_owned(), units::percent),
            row.saved_cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2} cores")),
        ]);
    }
    let has_gap = table.iter().any(|row| row[1] == "?");
    let mut text = align("<>", &table);
    if has_gap {
        text += "?: not counted: Shunt did not run\n";
    }
    if verbose {
        text += &ports(rows);
        text += &reasons(rows);
    }
    text
}

/// The traffic of each port.
fn ports(rows: &[HistoryRow]) -> String {
    let mut table = vec![["UTC", "port", "in", "", "out", ""].map(str::to_owned).to_vec()];
    for row in rows {
        table.extend(row.ports.iter().map(|(name, rates)| {
            vec![
                day_and_minute(row.at),
                name.clone(),
                units::bits_per_second(rates.in_bps),
                units::packets_per_second(rates.in_pps),
                units::bits_per_second(rates.out_bps),
                units::packets_per_second(rates.out_pps),
            ]
        }));
    }
    if table.len() == 1 { String::new() } else { format!("\n{}", align("<<>", &table)) }
}

/// The packets of each path and reason.
fn reasons(rows: &[HistoryRow]) -> String {
    let mut table = vec![["UTC", "fast", "slow", "dropped", "main reasons"].map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| {
        let reasons: Vec<_> = row.reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let counts = [row.fast, row.slow, row.dropped].map(|count| count.to_string());
        [day_and_minute(row.at)].into_iter().chain(counts).chain([reasons.join(", ")]).collect()
    }));
    format!("\n{}", align("<>>><", &table))
}

/// The last `shown` events.
fn events(table: &HistoryTable, shown: usize) -> String {
    let HistoryTable { events, left_out, .. } = table;
    if events.is_empty() {
        return "nothing happened in this time\n".to_owned();
    }
    let (earlier, last) = events.split_at(events.len().saturating_sub(shown));
    let mut text: String = last.iter().map(event).collect();
    if !earlier.is_empty() {
        text += &format!("{} before; see --events\n", units::count(earlier.len() as u64, "event"));
    }
    if *left_out > 0 {
        let most = HistoryTable::OF_A_KIND_MAX;
        let events = units::count(*left_out, "event");
        text += &format!(
            "{events} more in this time, no longer known: only the last {most} of a kind are kept\n"
        );
    }
    text
}

fn event(event: &HistoryEvent) -> String {
    let HistoryEvent { at, last_at, times, what, .. } = event;
    let last = if last_at / DAY_S == at / DAY_S {
        time_of_day(*last_at)
    } else {
        format!("{}:{}", day_and_minute(*last_at), &time_of_day(*last_at)[6..])
    };
    let again = if *times == 1 { String::new() } else { format!(" ({times} times, last at {last})") };
    format!("{}:{}  {what}{again}\n", day_and_minute(*at), &time_of_day(*at)[6..])
}

/// `11-29 16:05`.
fn day_and_minute(at: u64) -> String {
    // 2026-11-29T16:05:12Z
    rfc3339(at)[5..16].replace('T', " ")
}

/// `16:05:12`.
fn time_of_day(at: u64) -> String {
    rfc3339(at)[11..19].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, VERBOSE, assert_golden, sample, show};

    fn shown(only_events: bool) -> Shown {
        Shown { table: sample(include_str!("golden/history.json")), only_events, all_events: false }
    }

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/history.txt", &shown(false), TEXT);
        assert_golden("golden/history-verbose.txt", &shown(false), VERBOSE);
        assert_golden("golden/history-events.txt", &shown(true), TEXT);
        assert_golden("golden/history.json", &shown(false), JSON);
    }

    #[test]
    fn all_events_of_a_time_are_shown_or_the_text_says_how_many_are_not() {
        let mut few = shown(false);
        assert!(show(&few, TEXT).contains("\n10 events before; see --events\n"));
        few.all_events = true;
        let text = show(&few, TEXT);
        assert!(!text.contains("before; see") && text.contains("lan0: link up"), "{text}");
        few.table.left_out = 12;
        let text = show(&few, TEXT);
        assert!(
            text.ends_with(
                "12 events more in this time, no longer known: only the last 64 of a kind are kept\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn an_empty_history_says_so() {
        let empty = |only_events| Shown { table: HistoryTable::default(), only_events, all_events: false };
        assert_eq!(show(&empty(true), TEXT), "nothing happened in this time\n");
        assert!(show(&empty(false), TEXT).starts_with("no traffic was counted in this time"));
    }
}
