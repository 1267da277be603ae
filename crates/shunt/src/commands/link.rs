//! `shunt link`: the settings and counters of ports, and changes of settings.
//!
//! Settings are changed by ethtool, read back, and shown with the command that undoes the change.

pub(crate) mod view;

use super::arguments::{SHORTEST_INTERVAL, port_name, time_from};
use crate::{
    client::candidates,
    command::{Command, Context},
    failure::{no_device, usage},
    output::Show,
    signals::Signals,
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use shunt_api::{Failure, FailureCode};
use shunt_inspect::link::{Group, Interval, Link, Setting, undo};
use std::time::Duration;
use tokio::{select, time::sleep};
use view::{LinkChange, LinkScreen, LinkScreens};

/// Show the settings and counters of ports on one screen, and change settings.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The port [default: all ports].
    #[arg(value_parser = port_name, add = ArgValueCandidates::new(candidates::devices))]
    port: Option<String>,
    /// Show the rates again and again.
    #[arg(long)]
    watch: bool,
    /// The time over which counters become rates.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_from(SHORTEST_INTERVAL))]
    interval: Duration,
    /// With --watch, end after this many intervals.
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    changes: ChangeArgs,
}

#[derive(Debug, Args)]
#[group(multiple = true, requires = "port", conflicts_with_all = ["watch"])]
struct ChangeArgs {
    /// Flow control: on, off, auto, or rx=on,tx=off,autoneg=off.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Pause, text))]
    pause: Option<Setting>,
    /// Sizes of the rings: rx=512,tx=256.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Ring, text))]
    ring: Option<Setting>,
    /// Interrupt coalescing: rx-usecs, rx-frames, tx-usecs, tx-frames, adaptive-rx and adaptive-tx, as in
    /// rx-usecs=50,adaptive-rx=off.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Coalesce, text))]
    coalesce: Option<Setting>,
    /// Numbers of queues: combined=2, or rx=2,tx=2.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Channels, text))]
    channels: Option<Setting>,
    /// Offloads, by the kernel's names, or gro, lro, gso, tso, sg, rx: gro=off,tso=on.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Offload, text))]
    offload: Option<Setting>,
    /// Energy-Efficient Ethernet: on or off.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Eee, text))]
    eee: Option<Setting>,
    /// Speed, duplex and autonegotiation: speed=100,duplex=full,autoneg=off.
    #[arg(long, value_parser = |text: &str| Setting::parse(Group::Mode, text))]
    mode: Option<Setting>,
}

/// A resolved `shunt link`.
#[derive(Debug)]
pub(crate) struct LinkPlan {
    ports: Vec<String>,
    settings: Vec<Setting>,
    interval: Duration,
    /// How often rates are shown.
    times: u64,
}

impl Command for LinkArgs {
    type Plan = LinkPlan;
    const EXAMPLES: &str = "
        [shunt link]
        shunt link eth0 # settings and counters on a screen
        shunt link eth0 --ring rx=512 # a larger receive ring; prints how to undo it
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<LinkPlan> {
        Ok(LinkPlan::resolve(self)?)
    }

    async fn run(plan: LinkPlan, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        plan.run(show).await
    }
}

impl LinkPlan {
    fn resolve(typed: LinkArgs) -> Result<Self, Failure> {
        let ports = typed.port.map_or_else(Link::all, |port| vec![port]);
        if ports.is_empty() {
            return Err(Failure::new(
                FailureCode::PortMissing,
                "this network namespace has no port but the loopback",
            ));
        }
        let ChangeArgs { pause, ring, coalesce, channels, offload, eee, mode } = typed.changes;
        let settings = [mode, channels, ring, coalesce, offload, pause, eee].into_iter().flatten().collect();
        let times = if typed.watch { typed.count.unwrap_or(u64::MAX) } else { 1 };
        Ok(Self { ports, settings, interval: typed.interval, times })
    }

    async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        let mut links = Vec::new();
        for port in &self.ports {
            links.push(read(port).await?);
        }
        match links.first() {
            Some(link) if !self.settings.is_empty() => change(link, &self.settings, show).await,
            _ => self.show_rates(links, show).await,
        }
    }

    async fn show_rates(self, links: Vec<Link>, show: Show<'_>) -> anyhow::Result<()> {
        let mut signals = Signals::install()?;
        let mut intervals: Vec<Interval> = links.iter().map(Interval::begin).collect();
        for n in 0..self.times {
            select! {
                () = sleep(self.interval) => {}
                signal = signals.next() => {
                    return if self.times == u64::MAX { Ok(()) } else { Err(crate::failure::cut_short(signal).into()) };
                }
            }
            let screens = links.iter().zip(&mut intervals).map(|(link, interval)| {
                let (seconds, rates) = interval.end();
                LinkScreen { link: link.clone(), seconds, rates, rates_only: n > 0 }
            });
            show(&LinkScreens { screens: screens.collect(), more: self.times > 1 })?;
        }
        Ok(())
    }
}

pub(super) async fn read(port: &str) -> Result<Link, Failure> {
    Link::read(port).await.ok_or_else(|| no_device(port))
}

/// Changes settings in turn. If one is refused, those before it stay, and the failure says how to undo them.
async fn change(before: &Link, settings: &[Setting], show: Show<'_>) -> anyhow::Result<()> {
    let port = &before.nic.name;
    for (done, setting) in settings.iter().enumerate() {
        if let Err(error) = setting.apply(before) {
            let after = read(port).await?;
            let applied: Vec<_> =
                settings[..done].iter().flat_map(|one| one.applied(before, &after)).collect();
            let undone = undo(port, &applied)
                .map_or(String::new(), |command| format!("\n  changed before that; to undo it: {command}"));
            let (code, way_out) = if nix::unistd::geteuid().is_root() {
                (FailureCode::Usage, "")
            } else {
                (FailureCode::NotRoot, "; changing settings needs root: use sudo")
            };
            return Err(Failure::new(code, format!("{error}{way_out}{undone}")).into());
        }
    }
    let after = read(port).await?;
    let applied: Vec<_> = settings.iter().flat_map(|one| one.applied(before, &after)).collect();
    let change = LinkChange { port: port.clone(), undo: undo(port, &applied), applied };
    let differ: Vec<String> = change
        .applied
        .iter()
        .filter(|one| one.took() == Some(false))
        .map(|one| {
            format!(
                "{} {}={} reads back as {}",
                one.group,
                one.name,
                one.wanted,
                one.after.as_deref().unwrap_or("?")
            )
        })
        .collect();
    show(&change)?;
    if differ.is_empty() { Ok(()) } else { Err(usage(format!("{port}: {}", differ.join("; "))).into()) }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn settings_need_a_port_and_exclude_watch() {
        let plan = |words: &str| parse_args::<LinkArgs>(words).map(LinkPlan::resolve);
        let typed = plan("eth0 --pause on --ring rx=512 --mode speed=100").unwrap().unwrap();
        let groups: Vec<_> = typed.settings.iter().map(|setting| setting.group).collect();
        assert_eq!((groups, typed.times), (vec![Group::Mode, Group::Ring, Group::Pause], 1));
        assert_eq!(plan("eth0 --watch").unwrap().unwrap().times, u64::MAX);
        for wrong in [
            "--pause on",
            "eth0 --watch --ring rx=5",
            "eth0 --count 3",
            "eth0 --ring rx",
            "eth0 --interval 1ms",
        ] {
            assert!(plan(wrong).is_err(), "{wrong}");
        }
    }
}
