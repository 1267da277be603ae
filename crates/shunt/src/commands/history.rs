//! `shunt history`: traffic of the last day, and what happened.

pub(crate) mod view;

use super::arguments::time_within;
use crate::{
    client::{
        control::Client,
        kept::{Answered, get_or_kept, kept_until},
    },
    command::{Command, Context},
    output::{Screen, Show},
};
use clap::Args;
use serde::Serialize;
use shunt_api::HistoryTable;
use std::time::Duration;
use view::Shown;

const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(HistoryTable::KEPT_S);

/// Show the traffic of the last day and what happened in it: restarts, engines, links, rules, changes that invalidated
/// flows.
///
/// The minutes of the time are merged into as many rows as the terminal has, or 20; with --json, each minute is a row.
/// The daemon keeps the history across restarts; while it does not run, what it kept is shown. Times are UTC, by the
/// router's clock.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Only this time until now, such as 2h, with everything that happened in it; at most a day [default: 1d].
    #[arg(long = "for", visible_alias = "time", value_name = "TIME", value_parser = time_within(SHORTEST, LONGEST))]
    during: Option<Duration>,
    /// Only what happened, not the traffic.
    #[arg(long)]
    events: bool,
}

/// The rows of a text that is not on a terminal.
const ROWS: u16 = 20;
/// Lines of a terminal that are left for the heading, the events and the prompt.
const OTHER_LINES: u16 = 12;
/// The fewest rows, however small the terminal is.
const ROWS_MIN: u16 = 6;

impl Command for HistoryArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt history]
        shunt history # the last day
        shunt history --for 2h # the last two hours
        shunt history --events # what happened, and why
        shunt history --json # each minute, for a program
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let lines = Screen::of_stdout().map(|screen| screen.rows.saturating_sub(OTHER_LINES).max(ROWS_MIN));
        let rows = (!context.json).then(|| u64::from(lines.unwrap_or(ROWS)));
        let range =
            Range { for_s: plan.during.map_or(HistoryTable::KEPT_S, |during| during.as_secs()), rows };
        let Answered { answer: mut table, is_kept } =
            get_or_kept::<HistoryTable>(&context.client, &range.path(), ("--kept-history", &range)).await?;
        if plan.events {
            table.rows.clear();
        }
        let until = table.now;
        show(&Shown { table, only_events: plan.events, all_events: plan.during.is_some() })?;
        if is_kept { Err(kept_until(&context.instance, until).into()) } else { Ok(()) }
    }
}

/// The last part of the history, in at most so many rows.
pub(crate) async fn read(
    client: &Client,
    during: Duration,
    rows: Option<u64>,
) -> anyhow::Result<HistoryTable> {
    client.get(&Range { for_s: during.as_secs(), rows }.path()).await
}

/// The part of the history that is asked for.
#[derive(Debug, Serialize)]
struct Range {
    for_s: u64,
    rows: Option<u64>,
}

impl Range {
    fn path(&self) -> String {
        let Self { for_s, rows } = self;
        let rows = rows.map_or_else(String::new, |rows| format!("&rows={rows}"));
        format!("/v1/history?for_s={for_s}{rows}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn the_time_is_at_most_a_day() {
        let during = |words: &str| {
            parse_args::<HistoryArgs>(words).map(|args| args.during.map(|during| during.as_secs()))
        };
        assert_eq!((during("").unwrap(), during("--for 2h").unwrap()), (None, Some(7200)));
        for wrong in ["--for 2days", "--for 1s", "--for x"] {
            assert!(during(wrong).is_err(), "{wrong}");
        }
    }
}
