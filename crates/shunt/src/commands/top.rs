//! `shunt top`: connections, hosts, ports and reasons by rate, on a terminal or once.

mod history;
mod keys;
mod sample;
mod session;

use super::{arguments::duration, hosts::Names};
use crate::{
    client::control::Client,
    failure::usage,
    output::{Screen, Show},
    render::{Answer, top::Top},
};
use clap::Args;
use history::History;
use sample::Sample;
use shunt_api::Failure;
use std::time::Duration;
use tokio::time::sleep;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print the state once, as text or JSON, and end: for scripts, pipes and terminals without a cursor.
    #[arg(long)]
    once: bool,
    /// The time between two samples, which rates are measured over, from 100ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print at most this many connections and hosts.
    #[arg(long, value_name = "N", default_value = "20", requires = "once")]
    limit: usize,
}

impl TopArgs {
    /// Checks that the terminal can show the screen, if a screen is wanted.
    pub(crate) fn resolve(self, json: bool) -> Result<Self, Failure> {
        if self.once {
            return Ok(self);
        }
        if json {
            return Err(usage("--json needs --once"));
        }
        match Screen::of_stdout() {
            Some(_) => Ok(self),
            None => Err(usage(
                "standard output is not a terminal that can move its cursor (a pipe, a file, or TERM=dumb); \
                 print the state once with `shunt top --once`",
            )),
        }
    }
}

pub(crate) async fn run(typed: TopArgs, client: &Client, show: Show<'_>) -> anyhow::Result<()> {
    let TopArgs { once, interval, limit } = typed;
    if !once {
        return session::run(client, interval).await;
    }
    let mut top = measure(client, interval).await?;
    top.connections.truncate(limit);
    top.hosts.truncate(limit);
    show(&Answer::Top(Box::new(top)))
}

/// Takes samples until two of them are of the same daemon.
async fn measure(client: &Client, interval: Duration) -> anyhow::Result<Top> {
    let mut history = History::default();
    loop {
        let sample = Sample::take(client).await?;
        if let Some(top) = history.add(sample, &Names::of_this_machine()) {
            return Ok(top);
        }
        sleep(interval).await;
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    if allowed.contains(&time) { Ok(time) } else { Err("expected 100ms to 1m".to_owned()) }
}

#[cfg(test)]
mod tests;
