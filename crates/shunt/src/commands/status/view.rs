//! The text of `shunt status`, and of `shunt up`.

use super::{
    costs,
    reasons::{engine_rows, reason_lines},
    savings, verdict,
};
use crate::{
    command::instance_option,
    commands::{off::view::describe as off_rules, reload::view::lines as config_lines},
    render::{Answer, Format, Text, columns::align, json_line, style, units},
};
use shunt_api::{
    Engine, FilterHook, LongestStep, NotKept, PortStatus, Probe, RestartKind, RuleNote, RulesetStatus,
    SlowCause, Status, TopReason, UnstableStation, UnusedKey, UnusedQueues,
};
use std::collections::BTreeMap;

/// The state, one of several: JSON on one line, or text that a blank line ends.
#[derive(Debug)]
pub(crate) struct StatusLine(pub(crate) Status);

impl Text for Status {
    fn text(&self, format: Format) -> String {
        if format.brief { brief(self) } else { describe(self, format.verbose) }
    }
}

impl Answer for StatusLine {
    fn text(&self, format: Format) -> String {
        if format.brief { brief(&self.0) } else { describe(&self.0, format.verbose) + "\n" }
    }

    fn json(&self) -> serde_json::Result<String> {
        json_line(&self.0)
    }
}

/// The text of `shunt up`: the ports, what will stay slow, and that nobody watches over the daemon.
pub(crate) fn started(status: &Status) -> String {
    ports(status)
        + &slow_causes(&status.slow_causes)
        + &off_rules(&status.off)
        + &unused_queues(&status.unused_queues)
        + &unused_keys(&status.unused_keys)
        + &format!(
            "nothing restarts this daemon if it dies; to let systemd run it, now and at each boot: shunt down{}, then systemctl enable --now shuntd@{}\n",
            instance_option(&status.instance),
            status.instance
        )
}

/// The lasting causes, each with what to do.
pub(crate) fn slow_causes(causes: &[SlowCause]) -> String {
    causes
        .iter()
        .map(|SlowCause { what, remedy }| format!("{} {what}\n    {remedy}\n", style::warning("slow:")))
        .collect()
}

/// Queues that are not in use, each with why and what to do.
pub(crate) fn unused_queues(unused: &[UnusedQueues]) -> String {
    let one = |UnusedQueues { port, why, remedy }: &UnusedQueues| {
        format!("{} the queues of {port} are not in use: {why}\n    {remedy}\n", style::warning("queues:"))
    };
    unused.iter().map(one).collect()
}

/// Keys of the configuration that have no effect, each with why and what to do.
pub(crate) fn unused_keys(unused: &[UnusedKey]) -> String {
    let one = |UnusedKey { key, why, remedy }: &UnusedKey| {
        format!("{} {key} has no effect: {why}\n    {remedy}\n", style::warning("config:"))
    };
    unused.iter().map(one).collect()
}

/// A file that could not be written, and what is lost without it.
fn not_kept(file: &NotKept) -> String {
    format!("{} {}\n    {}\n", style::warning("not kept:"), file.why, file.loss)
}

/// One line for each port, as `ip -br link` has it: engine, link, fast share, and packets.
pub(crate) fn brief(status: &Status) -> String {
    let row = |port: &PortStatus| {
        let fast = port.packets.xdp + port.packets.tc;
        let all = fast + port.packets.slow + port.packets.dropped;
        let share = if all == 0 { "-".to_owned() } else { units::percent(fast as f64 / all as f64) };
        vec![
            port.name.clone(),
            port.engine.to_string(),
            link(port.up),
            share,
            format!("fast {fast}"),
            format!("slow {}", port.packets.slow),
            format!("dropped {}", port.packets.dropped),
        ]
    };
    align("<<<>", &status.ports.iter().map(row).collect::<Vec<_>>())
}

fn link(up: bool) -> String {
    if up { style::good("up") } else { style::bad("down") }
}

/// One line for each engine and reason: the ports, their engine, and the reason for it.
fn ports(status: &Status) -> String {
    let ports = status.ports.iter();
    engine_rows(ports.map(|port| (port.name.as_str(), port.engine, port.engine_reason.as_str())))
}

pub(crate) fn describe(status: &Status, verbose: bool) -> String {
    let Status { packets, bytes, flows, .. } = status;
    let mut text = verdict::line(status);
    text += &format!(
        "instance {}, up {}, pid {}, epoch {}, version {}\n",
        status.instance,
        units::time(status.uptime_s),
        status.pid,
        status.epoch,
        status.version,
    );
    if let Some(RestartKind::Clean { why }) = &status.start {
        text += &format!("started without the flows of the daemon before: {why}\n");
    }
    text += &savings::lines(status.savings.as_ref(), verbose);
    text += &costs::lines(status.costs.as_ref(), verbose);
    text += &config_lines(status.config.as_ref(), verbose);
    text += &slow_causes(&status.slow_causes);
    text += &off_rules(&status.off);
    text += &unused_queues(&status.unused_queues);
    text += &unused_keys(&status.unused_keys);
    text.extend(status.not_kept.iter().map(not_kept));
    text += &format!(
        "packets  fast {} ({}), slow {}, dropped {}\n",
        packets.fast,
        units::percent(packets.fast_share),
        packets.slow,
        packets.dropped
    );
    text += &format!(
        "bytes    fast {} ({}), slow {}\n",
        units::bytes(bytes.fast),
        units::percent(bytes.fast_share),
        units::bytes(bytes.slow)
    );
    text += &format!(
        "flows    active {}, pending {}, retired {}, static {}, max per family {}\n",
        flows.active, flows.pending, flows.retired, flows.static_, flows.max
    );
    text += &format!(
        "total    learned {}, proved {}, retired {}\n",
        status.learned, status.proved, status.retired
    );
    if let lost @ 1.. = status.counts_lost {
        text += &format!(
            "counters of {lost} removed flows are lost, so `shunt conntrack` shows counts that are too low; raise max_flows\n"
        );
    }
    text.extend(status.unstable_stations.iter().map(unstable));
    text += &long_step(status.longest_step.as_ref());
    if !status.epoch_moves.is_empty() {
        let moves: Vec<String> =
            status.epoch_moves.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        text += &format!("epoch moved by  {}\n", moves.join(", "));
    }
    text += "\n";
    text += &port_table(&status.ports);
    text += &engines(&status.ports);
    for port in &status.ports {
        if port.captured {
            text +=
                &format!("{}: a program captures on this port, so its flows take the slow path\n", port.name);
        }
        for filter in &port.filters {
            let action =
                if filter.hook == FilterHook::Ingress { "arriving through" } else { "leaving through" };
            text += &format!("learning off for packets {action} {}: {filter}\n", port.name);
        }
        if verbose {
            text += &reason_line(&format!("{}: sent to the slow path", port.name), &port.reasons);
            text += &reason_line(&format!("{}: not learned", port.name), &port.refusals);
            text += &reason_line(&format!("{}: dropped", port.name), &port.drops);
        }
    }
    text += &ruleset(&status.ruleset, verbose);
    text += &reason_table("sent to the slow path", &status.reasons);
    text += &reason_table("not learned", &status.refusals);
    text += &reason_table("dropped", &status.drops);
    text += &top_reasons(&status.top_reasons);
    if verbose {
        text += &probe_table("kernel", &status.kernel);
    }
    text
}

/// A line about a station whose traffic stays slow because the station keeps changing.
fn unstable(station: &UnstableStation) -> String {
    let UnstableStation { mac, addresses, changes } = station;
    let addresses: String = addresses.iter().map(|addr| format!(" ({addr})")).collect();
    format!(
        "station  {mac}{addresses} keeps changing its port or its address ({changes} times), so its traffic stays slow: look for two hosts \
         with one MAC or IP address, or a loop\n"
    )
}

/// A line about the longest step of the daemon, if the step took longer than it should.
fn long_step(step: Option<&LongestStep>) -> String {
    match step {
        Some(step) if step.seconds > LongestStep::BOUND_SECONDS => format!(
            "daemon   busy or waiting for {:.0} ms with {} in the last minute; other changes had to wait\n",
            step.seconds * 1e3,
            step.work()
        ),
        _ => String::new(),
    }
}

/// The most bypassed statements that are shown without --verbose.
const BYPASSED_SHOWN: usize = 4;

pub(crate) fn ruleset(ruleset: &RulesetStatus, verbose: bool) -> String {
    let mut text = String::new();
    if let Some(why) = &ruleset.unread {
        text += &format!("learning off: cannot read the ruleset: {why}\n");
    } else if !ruleset.held.is_empty() && ruleset.stops.is_empty() && ruleset.limits.is_empty() {
        text += "learning paused: the ruleset has changed and is being read\n";
    }
    for note in &ruleset.stops {
        let families = match note.family.as_str() {
            "ip" => "ipv4",
            "ip6" => "ipv6",
            _ => "ipv4 and ipv6",
        };
        text += &format!("learning off for {families}: {}\n", rule(note));
    }
    let shown = if verbose { ruleset.bypassed.len() } else { BYPASSED_SHOWN };
    for note in ruleset.bypassed.iter().take(shown) {
        text += &format!("bypassed by established traffic: {}\n", rule(note));
    }
    if let more @ 1.. = ruleset.bypassed.len().saturating_sub(shown) {
        text += &format!("bypassed by established traffic: {more} more (see --verbose)\n");
    }
    text
}

fn rule(note: &RuleNote) -> String {
    let RuleNote { statement, rules, .. } = note;
    let more = if *rules == 1 { String::new() } else { format!(" ({rules} rules of the chain)") };
    format!("{}: {statement}{more}", note.place())
}

/// The reason for each engine, once for all ports that have it.
fn engines(ports: &[PortStatus]) -> String {
    let why = |port: &PortStatus| {
        let mode = port.af_xdp_mode.map_or_else(String::new, |mode| format!(" (AF_XDP mode: {mode})"));
        format!("{}{mode}, {}", port.engine, port.engine_reason)
    };
    reason_lines(ports.iter().map(|port| (port.name.as_str(), why(port))))
}

fn port_table(ports: &[PortStatus]) -> String {
    let has_external = ports.iter().any(|port| port.engine == Engine::External || port.packets.external > 0);
    let external = |text: &str| has_external.then(|| text.to_owned());
    let before = ["port", "engine", "link", "mtu", "mac", "attached", "xdp", "tc"].map(str::to_owned);
    let after = ["slow", "dropped", "fast bytes", "slow bytes"].map(str::to_owned);
    let mut rows: Vec<Vec<String>> =
        vec![before.into_iter().chain(external("external")).chain(after).collect()];
    rows.extend(ports.iter().map(|port| {
        let mut attached =
            if port.xdp_attached { format!("xdp+{}", port.attach) } else { port.attach.to_string() };
        if port.rests {
            attached += ", at rest";
        }
        let before = [
            port.name.clone(),
            port.engine.to_string(),
            link(port.up),
            port.mtu.to_string(),
            port.mac.to_string(),
            attached,
            port.packets.xdp.to_string(),
            port.packets.tc.to_string(),
        ];
        let after = [
            port.packets.slow.to_string(),
            port.packets.dropped.to_string(),
            units::bytes(port.bytes.fast),
            units::bytes(port.bytes.slow),
        ];
        before.into_iter().chain(external(&port.packets.external.to_string())).chain(after).collect()
    }));
    align("<<<><<>", &rows)
}

fn reason_line(title: &str, reasons: &BTreeMap<String, u64>) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let parts: Vec<String> =
        most_frequent_first(reasons).map(|(name, count)| format!("{name} {count}")).collect();
    format!("{title}: {}\n", parts.join(", "))
}

fn reason_table(title: &str, reasons: &BTreeMap<String, u64>) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let mut rows = vec![vec![title.to_owned(), "packets".to_owned()]];
    rows.extend(most_frequent_first(reasons).map(|(name, count)| vec![name.clone(), count.to_string()]));
    format!("\n{}", align("<>", &rows))
}

/// The most frequent reasons with their explanations.
fn top_reasons(reasons: &[TopReason]) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let mut text = "\nwhy packets took the slow path\n".to_owned();
    for TopReason { reason, packets, meaning, remedy } in reasons {
        text += &format!("{reason}, {}: {meaning}\n    {remedy}\n", units::count(*packets, "packet"));
    }
    text
}

fn most_frequent_first(reasons: &BTreeMap<String, u64>) -> impl Iterator<Item = (&String, &u64)> {
    let mut sorted: Vec<_> = reasons.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    sorted.into_iter()
}

pub(crate) fn probe_table(title: &str, probes: &[Probe]) -> String {
    if probes.is_empty() {
        return String::new();
    }
    let mut rows = vec![vec![title.to_owned(), "answer".to_owned()]];
    rows.extend(probes.iter().map(|p| vec![p.name.clone(), p.answer.to_string(), p.detail.clone()]));
    format!("\n{}", align("<", &rows))
}

#[cfg(test)]
mod tests {
    use crate::{
        commands::status::sample::status,
        golden::{BRIEF, JSON, TEXT, VERBOSE, assert_golden, show, text_lacks},
    };

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/status.txt", &status(), TEXT);
        assert_golden("golden/status-verbose.txt", &status(), VERBOSE);
        assert_golden("golden/status.json", &status(), JSON);
        assert_golden("golden/status-brief.txt", &status(), BRIEF);
    }

    #[test]
    fn the_text_of_status_shows_every_value_of_the_json() {
        // These values appear in other units or words, as all bytes do: 93784 as 1d 2h 3m 4s, 0.999 as 99.9 %, true as
        // up, 4 as ipv4. A count of one rule is not shown, a rule of legacy iptables is named by its command, and
        // `unread` is null. The longest step is shown in milliseconds, costs in parts
        // of a core.
        let scaled = [
            ".held",
            ".unread",
            ".legacy",
            ".rules",
            ".uptime_s",
            ".counted_s",
            ".fast_share",
            ".up",
            ".xdp_attached",
            ".looks_ahead",
            ".rests",
            ".api",
            ".ifindex",
            ".attach",
            ".detail",
            ".captured",
            ".off.left_s",
            ".longest_step.name",
            ".longest_step.seconds",
            ".longest_step.cpu_seconds",
            ".daemon_cores",
            ".programs_cores",
            ".daemon_bytes",
            ".maps_bytes",
            ".flow_bytes",
            ".run_ns",
            ".runs_per_s",
            ".measured_ago_s",
            ".now_cores.low",
            ".now_cores.high",
            ".week_core_hours.low",
            ".week_core_hours.high",
            ".week_known_share",
            ".week_counted_hours",
            ".config.differs",
            ".last_reload.at",
            ".costs.fast_ns",
            ".costs.slow_ns",
            ".saved_ns.value",
            ".saved_ns.low",
            ".saved_ns.high",
            ".sampling.period_s",
            ".sampling.packets_cores",
            ".sampling.daemon_cores",
            ".week.daemon_core_hours",
            ".week.programs_core_hours",
            ".week.counted_hours",
            ".week.programs_hours",
        ];
        assert_eq!(text_lacks(&status(), &scaled), []);
        let text = show(&status(), VERBOSE);
        let captures: Vec<_> = text.lines().filter(|line| line.contains("captures")).collect();
        assert_eq!(captures, ["enp1s0f1: a program captures on this port, so its flows take the slow path"]);
    }
}
