//! The command line: global options, and the commands with the arguments that their modules define.

use crate::{
    client::candidates,
    commands::{
        bench::BenchCommand, check::CheckArgs, compare::CompareArgs, conntrack::ConntrackArgs,
        doctor::DoctorArgs, export::ExportArgs, flow::FlowCommand, flows::FlowsArgs, generate::GenArgs,
        lab::LabCommand, line::LineArgs, link::LinkArgs, load::LoadArgs, model::ModelCommand,
        probe::ProbeArgs, qos::QosArgs, reg::RegCommand, report::ReportArgs, status::StatusArgs,
        top::TopArgs, trace::TraceArgs, up::UpArgs, watch::WatchArgs, why::WhyArgs,
    },
};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, engine::ArgValueCandidates};
use shunt_api::Instance;
use std::{ffi::OsString, path::PathBuf};

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";
/// The commands that ask or start a daemon. For the others, `--instance` means nothing.
const OF_AN_INSTANCE: [&str; 13] = [
    "probe",
    "up",
    "down",
    "status",
    "flows",
    "top",
    "why",
    "conntrack",
    "watch",
    "flush",
    "flow",
    "qos",
    "export",
];

/// A fast path for Linux routers: packets of connections that Linux has accepted skip the network stack.
///
/// Without a command, shunt says whether the instance runs and what to type next.
#[derive(Debug, Parser)]
#[command(name = "shunt", version)]
pub(crate) struct Cli {
    /// The instance, if several run on this machine.
    #[arg(long, global = true, value_name = "NAME", default_value = "default", help_heading = GLOBAL,
        add = ArgValueCandidates::new(candidates::instances))]
    pub(crate) instance: Instance,
    /// Print JSON with the same values as the text.
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print one line for each port, connection or direction; also -br, as for `ip`.
    #[arg(long, global = true, help_heading = GLOBAL, conflicts_with = "verbose")]
    pub(crate) brief: bool,
    /// Print more details; after a failure, print its causes. Before the command also -d, as for `ip`.
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,
    /// The command; without one, shunt says what to do next.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what this kernel, its devices and its ruleset allow, and what Shunt would gain, before anything is attached.
    ///
    /// The programs are loaded, so that the kernel checks them, but attached to no device. Options and configuration are those of `shunt
    /// up`. The exit code is 0 even if `shunt up` would fail; the failures are part of the answer.
    Probe(ProbeArgs),
    /// Start the daemon and attach it to ports.
    Up(UpArgs),
    /// Stop the daemon and remove everything that it created.
    Down,
    /// Show the ports with their engines, counters and reasons.
    Status(StatusArgs),
    /// Show the connections on the fast path.
    Flows(FlowsArgs),
    /// Write the connections on the fast path for other programs: as NDJSON, or as IPFIX for a collector.
    Export(ExportArgs),
    /// Show connections, hosts, ports and reasons for slow packets by rate, on the whole terminal.
    ///
    /// Names of hosts come from DHCP leases of this machine (dnsmasq, odhcpd, ISC dhcpd, Kea) and /etc/hosts. Keys: 1 to 5 or Tab choose a
    /// pane, the arrows a row, Enter opens it, s sorts, / filters, ? lists all keys, q quits. The screen uses only the colours of the
    /// terminal, and none if NO_COLOR is set.
    Top(TopArgs),
    /// Explain whether connections are fast or slow, since when, why, and what would change that.
    Why(WhyArgs),
    /// Show conntrack's table like `conntrack -L`, with the packets of the fast path included in the counters.
    Conntrack(ConntrackArgs),
    /// Show events of flows as they happen: learn, activate, punt, refuse, retire, and moves of the epoch.
    Watch(WatchArgs),
    /// Send every connection back to the slow path, to be learned again.
    Flush,
    /// Manage flows that are added by hand, without connection tracking.
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Show and change the queues of ports that the external engine serves: shaper, classes, policer.
    Qos(QosArgs),
    /// Calculate the maximum packets/s and bit/s of a link for each layer and encapsulation.
    Line(LineArgs),
    /// Show the load of each CPU, including softirqs and interrupts.
    ///
    /// On each CPU, a thread of the class SCHED_IDLE does work of known duration; the work that the thread cannot do is the load. A
    /// calibration of about a second comes first, so start it before the traffic. While the command runs, CPUs do not sleep, and a control
    /// group shunt-load-PID exists. The columns speed and memory are relative to the calibration; meter is the share of time that the
    /// thread ran.
    Load(LoadArgs),
    /// Measure the performance of a router.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Commands that run on a router while another machine measures it.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Compare two files of results: what is better or worse in B than in A, and what cannot be told apart.
    Compare(CompareArgs),
    /// Send traffic through a router and account for every packet: loss, duplicates, order, latency.
    Gen(Box<GenArgs>),
    /// Show the settings and counters of ports on one screen, and change settings.
    Link(Box<LinkArgs>),
    /// Find what slows a port: settings, errors, interrupts, idle states, known errata.
    Doctor(DoctorArgs),
    /// Decode, read, compare and change registers by name.
    #[command(subcommand)]
    Reg(RegCommand),
    /// Show where the time of packets goes: each stage from the driver to the wire, or to the program that reads.
    ///
    /// Follows one packet in N through this network namespace, without changing it: on the slow path, on the fast path, and from the send
    /// call of a local program to the wire and back. Percentiles come first, with paths and directions side by side, then single packets.
    Trace(TraceArgs),
    /// Check a NIC and its driver: sixteen cases with evidence, on a port and the port at the other end of its cable.
    ///
    /// Each case puts back what it changed. While it runs, settings of both ports change and links may go down: run it on ports without
    /// other traffic. The exit code is 30 if a case failed.
    Check(CheckArgs),
    /// Predict what a NIC, driver and CPU would do: hardware that is not at hand, or a change that is not made yet.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Show results on one page, to read, print or send.
    Report(ReportArgs),
    /// Print a script that completes commands and options in a shell.
    ///
    /// To use it in the present bash: source <(shunt completions bash). The script asks shunt itself, which offers devices, instances and
    /// addresses of connections of this machine.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    #[command(hide = true)]
    Man {
        /// The directory for the pages.
        dir: PathBuf,
    },
}

/// The definition of the command line, with examples in its help, and without options that mean nothing to a command.
pub(crate) fn command() -> clap::Command {
    let command = examples::add(Cli::command(), "shunt");
    let instance = command.get_arguments().find(|argument| argument.get_id() == "instance").cloned();
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let without = names.into_iter().filter(|name| !OF_AN_INSTANCE.contains(&name.as_str()));
    without.fold(command, |command, name| {
        // The command's own definition takes the place of the global one, for the commands below it, too.
        command.mut_subcommand(name, |one| one.args(instance.clone().map(|instance| instance.hide(true))))
    })
}

/// The words of the command line, with the short options of `ip` as clap knows them: `-br` anywhere, `-d` before the command.
pub(crate) fn words(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut is_before = true;
    for (at, word) in typed.enumerate() {
        is_before &= at == 0 || word.as_encoded_bytes().starts_with(b"-");
        words.push(match word.to_str() {
            Some("-br") => "--brief".into(),
            Some("-d") if is_before => "--verbose".into(),
            _ => word,
        });
    }
    words
}

/// What to type instead of a command that other programs have.
pub(crate) fn instead_of(command: &str) -> Option<&'static str> {
    Some(match command {
        "start" | "run" | "attach" | "enable" => "`shunt up` starts an instance",
        "stop" | "kill" | "detach" | "disable" => "`shunt down` stops an instance",
        "restart" | "reload" => {
            "the configuration is read at the start: `shunt down`, then `shunt up`; the learned flows are learned again"
        }
        "show" | "info" | "stats" | "counters" => {
            "`shunt status` has the counters, `shunt flows` the connections"
        }
        "list" | "ls" | "connections" | "conn" | "sessions" => "`shunt flows` lists the connections",
        "monitor" | "log" | "events" | "tail" => {
            "`shunt watch` prints events as they happen, `shunt top` is a live screen"
        }
        "reset" | "clear" => "`shunt flush` sends all connections back to the slow path",
        "add" | "del" | "delete" => "`shunt flow add` and `shunt flow del` manage flows by hand",
        "explain" | "debug" => "`shunt why` explains why a connection is fast or slow",
        "check-config" | "test" => "`shunt up --dry-run` reads the configuration and attaches nothing",
        "version" => "`shunt --version`",
        _ => return None,
    })
}

pub(crate) mod examples;
#[cfg(test)]
mod tests;
