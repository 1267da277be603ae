//! `shunt lab`: commands that run on a router while another machine measures it.

mod agent;

pub(crate) use agent::{Agent, AgentArgs};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// On the DUT: report load and counters to the measuring machine, until Ctrl-C.
    ///
    /// The agent measures the load as `shunt load` does, and reads the counters of the devices and CPUs of this machine in its network
    /// namespace. It changes nothing, except that CPUs do not sleep while it runs. `shunt bench --dut-agent ssh://HOST` starts it by
    /// ssh with --stdio, and ends it. Without --stdio it listens on TCP, on a loopback address unless --clear-text is given, and answers
    /// clients that know the token.
    Agent(AgentArgs),
}
