//! `shunt usage`: what each host of the local side has sent and received.

pub(crate) mod view;

use super::arguments::{at_least_one, duration};
use crate::{
    client::kept::{Answered, get_or_kept, kept_until},
    command::{Command, Context},
    failure::usage,
    output::{Show, write_stderr},
};
use clap::{Args, ValueEnum};
use shunt_api::{StepSize, Usage, UsageQuery, has_zone};
use std::{cmp::Reverse, time::Duration};
use view::{By, UsageTable};

/// Show who uses the line: what each host of the local side has sent (upload) and received (download).
///
/// The daemon counts every packet of tracked connections, fast and slow, and keeps the last 60 minutes, 7 days by hour,
/// and 31 days, also across restarts. While it does not run, what it kept is shown; times that nobody counted are ?.
/// Slow packets need conntrack's counters: sysctl -w net.netfilter.nf_conntrack_acct=1. Names come from DHCP leases of
/// this machine (dnsmasq, odhcpd, ISC dhcpd, Kea) and /etc/hosts.
#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// One line for each host, or for each minute, hour or day (of UTC).
    #[arg(long, value_enum, default_value = "host")]
    by: By,
    /// Until now from this time ago, such as 1h or 7d; without it, all that is kept of the size in --by, or, by host, a
    /// day.
    #[arg(long = "for", visible_alias = "time", value_name = "TIME", value_parser = duration)]
    during: Option<Duration>,
    /// Only this host, by name, MAC or address.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The order of hosts: largest first, or by name.
    #[arg(long, value_enum, default_value = "total")]
    sort: SortKey,
    /// Show at most this many hosts.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<usize>,
    /// Print comma-separated values, in bytes and packets.
    #[arg(long)]
    csv: bool,
}

/// The order of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortKey {
    Total,
    Sent,
    Received,
    Name,
}

impl Command for UsageArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt usage]
        shunt usage # who used the line in the last 24 hours
        shunt usage --for 31d --sort sent --limit 10 # the ten hosts that uploaded most in a month
        shunt usage --by day # the last 31 days
        shunt usage --by hour --host laptop --for 7d # a week of one host
        shunt usage --for 1h --csv # for a spreadsheet
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, context: &Context) -> anyhow::Result<Self> {
        if self.csv && context.json {
            return Err(usage("--csv: not together with --json").into());
        }
        if let Some(why) = self.host.as_deref().and_then(has_zone) {
            return Err(usage(format!("--host: {why}")).into());
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if let Some(host) = self.host.as_deref().filter(|host| !host.chars().all(is_plain)) {
            return Err(usage(format!(
                "--host: `{host}` is no address, MAC or name of a host; `shunt usage` lists the hosts"
            ))
            .into());
        }
        let most = Duration::from_secs(self.most_s());
        match self.during {
            Some(during) if during < Duration::from_secs(60) || during > most => {
                let [typed, most] = [during, most].map(|time| shunt_wire::units::time(time.as_secs()));
                Err(usage(format!("--for: {typed} is not from 1m to {most}: that much is kept")).into())
            }
            _ => Ok(self),
        }
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let query = plan.query();
        let path = format!("/v1/usage?{}", query.query());
        let Answered { answer: mut usage, is_kept } =
            get_or_kept::<Usage>(&context.client, &path, ("--kept-usage", &query)).await?;
        if !usage.accounting && !is_kept {
            write_stderr(
                "conntrack counts no packets: only the fast path is counted; turn its counters on: sysctl -w net.netfilter.nf_conntrack_acct=1\n",
            );
        }
        plan.arrange(&mut usage);
        let until = usage.now;
        let has_period = plan.during.is_some();
        show(&UsageTable {
            usage,
            by: plan.by,
            one_host: plan.host.is_some(),
            csv: plan.csv,
            has_period,
            is_kept,
        })?;
        if is_kept { Err(kept_until(&context.instance, until).into()) } else { Ok(()) }
    }
}

impl UsageArgs {
    /// Seconds that are kept.
    const fn most_s(&self) -> u64 {
        match self.by {
            By::Minute => 3600,
            By::Hour => 7 * 86_400,
            By::Host | By::Day => 31 * 86_400,
        }
    }

    fn query(&self) -> UsageQuery {
        let step = match self.by {
            By::Host => None,
            By::Minute => Some(StepSize::Minute),
            By::Hour => Some(StepSize::Hour),
            By::Day => Some(StepSize::Day),
        };
        // The present step is one of those that are kept.
        let all = step.map(|_| Duration::from_secs(self.most_s()));
        let last_s = self.during.or(all).map(|during| during.as_secs());
        UsageQuery { last_s, step, host: self.host.clone(), ..UsageQuery::default() }
    }

    fn arrange(&self, usage: &mut Usage) {
        let hosts = &mut usage.hosts;
        match self.sort {
            SortKey::Total => {}
            SortKey::Sent => hosts.sort_by_key(|host| Reverse(host.count.sent.bytes)),
            SortKey::Received => hosts.sort_by_key(|host| Reverse(host.count.received.bytes)),
            SortKey::Name => hosts.sort_by_key(view::name),
        }
        hosts.truncate(self.limit.unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    fn query(words: &str) -> String {
        parse_args::<UsageArgs>(words).unwrap().query().query()
    }

    #[test]
    fn a_period_ends_now_and_its_steps_are_those_of_the_lines() {
        assert_eq!(query(""), "");
        assert_eq!(query("--for 1h"), "last_s=3600");
        assert_eq!(query("--by day"), "step=day&last_s=2678400");
        assert_eq!(
            query("--by hour --for 1d --host 02:00:00:00:00:01"),
            "step=hour&last_s=86400&host=02%3A00%3A00%3A00%3A00%3A01"
        );
    }

    #[test]
    fn hosts_are_sorted_by_what_is_asked_for() {
        let mut usage = view::sample();
        let mut first = |words: &str| {
            let typed: UsageArgs = parse_args(words).unwrap();
            typed.arrange(&mut usage);
            view::name(&usage.hosts[0])
        };
        assert_eq!(first("--sort sent"), "10.9.0.7");
        assert_eq!(first("--sort received"), "laptop");
        assert_eq!(first("--sort name"), "02:00:00:00:00:03");
        assert_eq!((first("--sort sent --limit 1").as_str(), usage.hosts.len()), ("10.9.0.7", 1));
        let none = parse_args::<UsageArgs>("--limit 0").unwrap_err().to_string();
        assert!(none.contains("'0' for '--limit <N>': expected a number from 1 on"), "{none}");
    }
}
