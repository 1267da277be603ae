//! `shunt quality`: whether the LAN side, the router or the WAN side loses packets or lets them wait.

mod view;

use super::{
    arguments::{port_name, time_within},
    hosts::KnownHosts,
    measure::measure_and_show,
    off::{turn_off, turn_on},
};
use crate::{
    client::{candidates, control::Client},
    command::{Command, Context},
    failure::usage,
    output::{Show, write_stderr},
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use nix::unistd::geteuid;
use shunt_api::{
    Failure, FailureCode, HostNames, Instance, OffBy, PortStatus, Proto, Selection, Status, has_zone,
    not_a_host,
};
use shunt_inspect::quality::{self, QualityError, Request, Side, Unseen};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::atomic::AtomicBool,
    time::Duration,
};
use view::Shown;

const STARTED: &str = "shunt: observing; Ctrl-C ends it and shows what was seen\n";
const STATUS: &str = "/v1/status";
const SHORTEST: Duration = Duration::from_secs(1);
/// Longer, round trips of the night would hide those of the evening.
const LONGEST: Duration = Duration::from_secs(86_400);
/// The fast path is off for longer than the observation, which starts later.
const MARGIN: Duration = Duration::from_secs(10);

/// The most names of hosts that a message has.
const HOSTS_NAMED: usize = 10;

/// Find out who is to blame for a slow connection: the LAN side, the router, or the WAN side with the provider.
///
/// Observes TCP as it enters and leaves the ports, and measures round trips and losses beyond the ports of each side,
/// by host, and the time that packets spend inside the router. It sends nothing. UDP and QUIC have no acknowledgements
/// that a router can read. Packets that the engines xdp and external forward cannot be observed; with --off, there are
/// none. Exit code 0: nothing is wrong where there was enough traffic to tell; 30: something is, and what; 2: cannot
/// tell, and what would.
#[derive(Debug, Args)]
pub(crate) struct QualityArgs {
    /// How long to observe, 1s to 1d.
    #[arg(long = "for", visible_alias = "time", value_name = "TIME", default_value = "30s",
        value_parser = time_within(SHORTEST, LONGEST))]
    time: Duration,
    /// Only the traffic of this host, by name or address. The time inside the router is that of all packets.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// A port of the WAN side; may be given more than once. Without it, the ports that default routes lead to.
    #[arg(long, value_name = "PORT", value_parser = port_name, add = ArgValueCandidates::new(candidates::devices))]
    wan: Vec<String>,
    /// Take TCP off the fast path meanwhile, as by `shunt off`, so that no packet passes unseen. It costs CPU time. The
    /// daemon ends it by itself if this command dies.
    #[arg(long)]
    off: bool,
    /// Show at most this many hosts, those with most traffic.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    limit: usize,
}

impl Command for QualityArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt quality]
        shunt quality # who is to blame, from the traffic of half a minute
        shunt quality --host laptop --for 2m # the traffic of one host, for longer
        shunt quality --off # the same, where the engine xdp or external forwards
        shunt quality --wan wan0 --wan lte0 # name the ports of the WAN side
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        if let Some(host) = &plan.host {
            known_host(host, &KnownHosts::read(&context.client).await.names())?;
        }
        if !geteuid().is_root() {
            let why = "shunt quality needs root: it loads programs into the kernel; use sudo";
            return Err(Failure::new(FailureCode::NotRoot, why).into());
        }
        let now: Status = context.client.get(STATUS).await?;
        let default_routes = quality::default_route_devices();
        let request = Request { ports: sides(&now.ports, &plan.wan, &default_routes)?, time: plan.time };
        let tcp = Selection { proto: Some(Proto::Tcp), ..Selection::default() };
        // A rule of the user's stays.
        let off = (plan.off && !now.off.iter().any(|rule| rule.which == tcp)).then_some(tcp);
        if let Some(which) = &off {
            turn_off(&context.client, which.clone(), plan.time + MARGIN, OffBy::Quality).await?;
        }
        let instance = context.instance.clone();
        let shown = measure_and_show(show, move |stop| plan.observe(&request, &instance, stop)).await;
        match off {
            Some(which) => shown.and(turn_on(&context.client, which).await),
            None => shown,
        }
    }
}

impl QualityArgs {
    /// Observes, and counts what other engines forward meanwhile.
    fn observe(&self, request: &Request, instance: &Instance, stop: &AtomicBool) -> anyhow::Result<Shown> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let status = || runtime.block_on(Client::new(instance).get::<Status>(STATUS));
        let before = status()?;
        let observed = quality::observe(request, stop, || write_stderr(STARTED)).map_err(failure)?;
        let unseen = unseen(&before.ports, &status()?.ports);
        let names = runtime.block_on(KnownHosts::read(&Client::new(instance))).names();
        let report_of = |wanted: Option<&str>| {
            observed.report(
                Some(unseen),
                |host| is_wanted(host, wanted, &names),
                |host| names.name(host).map(str::to_owned),
            )
        };
        let report = report_of(self.host.as_deref());
        let unseen_host = self.host.clone().filter(|_| report.hosts.is_empty()).map(|wanted| {
            let all = report_of(None);
            let seen = all.hosts.iter().take(HOSTS_NAMED).map(view::name).collect();
            view::UnseenHost { wanted, seen }
        });
        Ok(Shown { report, limit: self.limit, unseen_host })
    }
}

/// The side of each port. Without names, the WAN side has the ports that default routes lead to; with names, it must
/// have them.
fn sides(
    ports: &[PortStatus],
    wan: &[String],
    default_routes: &BTreeSet<String>,
) -> Result<BTreeMap<String, Side>, Failure> {
    if let Some(unknown) = wan.iter().find(|name| !ports.iter().any(|port| port.name == **name)) {
        let all: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let why = format!("--wan: {unknown} is no port of this instance; its ports are {}", all.join(", "));
        return Err(usage(why));
    }
    let of_lines: Vec<&str> =
        ports.iter().map(|port| port.name.as_str()).filter(|name| default_routes.contains(*name)).collect();
    if let Some(line) = of_lines.iter().find(|line| !wan.is_empty() && !wan.iter().any(|one| one == **line)) {
        let no_lines: Vec<&str> =
            wan.iter().map(String::as_str).filter(|name| !of_lines.contains(name)).collect();
        let lan = if no_lines.is_empty() {
            String::new()
        } else {
            format!(", and none to {}", no_lines.join(", "))
        };
        let options: Vec<String> = of_lines.iter().map(|line| format!("--wan {line}")).collect();
        return Err(usage(format!(
            "--wan: a default route leads to {line}{lan}, so {line} cannot be on the LAN side: {}",
            options.join(" ")
        )));
    }
    let is_wan = |name: &String| {
        if wan.is_empty() { default_routes.contains(name) } else { wan.contains(name) }
    };
    let side = |name: &String| if is_wan(name) { Side::Wan } else { Side::Lan };
    let sides: BTreeMap<String, Side> =
        ports.iter().map(|port| (port.name.clone(), side(&port.name))).collect();
    match Side::ALL.into_iter().find(|side| !sides.values().any(|one| one == side)) {
        Some(Side::Wan) => {
            Err(usage("no default route leads to a port; name the port of the WAN side: --wan PORT"))
        }
        Some(Side::Lan) => Err(usage("all ports are on the WAN side; name its ports: --wan PORT")),
        None => Ok(sides),
    }
}

/// Refuses the name of a host that no lease and not /etc/hosts has, with those that they have.
fn known_host(wanted: &str, names: &HostNames) -> Result<(), Failure> {
    if wanted.parse::<IpAddr>().is_ok() || !names.addresses(wanted).is_empty() {
        return Ok(());
    }
    let why = has_zone(wanted).unwrap_or_else(|| format!("`{wanted}` is not {}", not_a_host(names.names())));
    Err(usage(format!("--host: {why}")))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "expected a whole number from 1 on".to_owned())
}

/// Packets that other engines forwarded meanwhile.
fn unseen(before: &[PortStatus], after: &[PortStatus]) -> Unseen {
    let mut unseen = Unseen { packets: 0, of: 0 };
    for port in after {
        let earlier = before.iter().find(|one| one.ifindex == port.ifindex);
        let earlier = earlier.map(|one| one.packets).unwrap_or_default();
        let (now, then) = (port.packets.xdp + port.packets.external, earlier.xdp + earlier.external);
        unseen.packets += now.saturating_sub(then);
        unseen.of += port.packets.all().saturating_sub(earlier.all());
    }
    unseen
}

/// Whether a host, which may be one of those without an address, is asked for.
fn is_wanted(host: Option<IpAddr>, wanted: Option<&str>, names: &HostNames) -> bool {
    let Some(wanted) = wanted else { return true };
    let Some(host) = host else { return false };
    wanted.parse() == Ok(host) || names.name(host).is_some_and(|name| name.eq_ignore_ascii_case(wanted))
}

fn failure(error: QualityError) -> Failure {
    let code = match &error {
        QualityError::NotAllowed(_) => FailureCode::NotRoot,
        QualityError::Programs(_) => FailureCode::KernelTooOld,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}

#[cfg(test)]
mod tests;
