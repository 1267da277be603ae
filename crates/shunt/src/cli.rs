//! The command line: global options, and the commands with the arguments that their modules define.

use crate::commands::{
    bench::BenchCommand, check::CheckArgs, compare::CompareArgs, conntrack::ConntrackArgs,
    doctor::DoctorArgs, flow::FlowCommand, flows::FlowsArgs, generate::GenArgs, lab::LabCommand,
    line::LineArgs, link::LinkArgs, load::LoadArgs, model::ModelCommand, probe::ProbeArgs, reg::RegCommand,
    report::ReportArgs, status::StatusArgs, top::TopArgs, trace::TraceArgs, up::UpArgs, watch::WatchArgs,
    why::WhyArgs,
};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use shunt_api::Instance;
use std::path::PathBuf;

/// A fast path for Linux routers: packets of connections that Linux has accepted skip the network stack.
///
/// Without a command, shunt says whether the instance runs and what to type next.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// The instance, if several run on this machine.
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub(crate) instance: Instance,
    /// Print JSON with the same values as the text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print more details; after a failure, print its causes.
    #[arg(short, long, global = true)]
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
    /// To use it in the present bash: source <(shunt completions bash)
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

#[cfg(test)]
mod tests;
