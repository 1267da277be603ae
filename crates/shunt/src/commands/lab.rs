//! `shunt lab`: commands that run on a router while another machine measures it.

mod agent;

use crate::{
    command::{Command, Context},
    output::Show,
};
use agent::{Agent, AgentArgs};
use clap::{Args, Subcommand};

/// Commands that run on a router while another machine measures it.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// On the DUT: report load and counters to the measuring machine, or lend it a port, until Ctrl-C.
    ///
    /// The agent measures the load as `shunt load` does, and reads the counters of the devices and CPUs of this machine
    /// in its network namespace. It changes nothing, except that CPUs do not sleep while it runs. `shunt bench
    /// --dut-agent ssh://HOST` starts it by ssh with --stdio, and ends it. Without --stdio it listens on TCP, on a
    /// loopback address unless --clear-text is given, and answers clients that know the token. With --lend, it measures
    /// nothing: clients send and receive frames of a check on that port and change its settings, which the agent
    /// restores after each case, or when the client has gone.
    Agent(AgentArgs),
}

impl Command for LabArgs {
    type Plan = Agent;
    const EXAMPLES: &str = "
        [shunt lab]
        shunt lab agent --token-file /etc/shunt/agent.token # on the router; `--dut-agent` of `shunt bench` asks it
        [shunt lab agent]
        shunt lab agent --token-file /etc/shunt/agent.token # answer clients that know the token, on loopback
        shunt lab agent --lend eth2 --listen 10.0.0.2:7411 --clear-text # the other end of `shunt check --peer-agent`
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Agent> {
        let LabCommand::Agent(typed) = self.command;
        Ok(Agent::resolve(typed)?)
    }

    async fn run(plan: Agent, _: &Context, _: Show<'_>) -> anyhow::Result<()> {
        plan.run().await
    }
}
