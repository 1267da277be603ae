//! `shunt off` and `shunt on`: connections whose packets are all to take the slow path.

pub(crate) mod view;

use super::arguments::{ConnectionArgs, duration, time_within};
use crate::{
    client::control::Client,
    command::{Command, Context},
    failure::usage,
    output::Show,
    render::Counted,
};
use clap::Args;
use hyper::Method;
use shunt_api::{Count, Failure, FailureCode, OffBy, OffRemoval, OffRequest, OffRule, Selection};
use std::time::Duration;
use view::OffRules;

const PATH: &str = "/v1/off";
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(OffRule::LONGEST_S);

/// Turns the fast path off for connections that `shunt verify` compares, until [`turn_on`] or until this time is over.
pub(super) async fn turn_off(client: &Client, which: Selection, time: Duration) -> anyhow::Result<()> {
    let rule = OffRequest { which, for_s: Some(time.as_secs() + 1), by: OffBy::Verify };
    client.send(Method::POST, PATH, &rule).await.map(|_: Count| ())
}

/// Turns the fast path on again after [`turn_off`], whose time may be over.
pub(super) async fn turn_on(client: &Client, which: Selection) -> anyhow::Result<()> {
    let removed: anyhow::Result<Count> =
        client.send(Method::DELETE, PATH, &OffRemoval { which: Some(which) }).await;
    let has_ended = |error: &anyhow::Error| {
        error.downcast_ref().is_some_and(|failure: &Failure| failure.code == FailureCode::NoConnection)
    };
    match removed {
        Err(error) if has_ended(&error) => Ok(()),
        removed => removed.map(drop),
    }
}

/// Turn the fast path off for a host, a port or a connection, at once; without arguments, show for which it is off.
///
/// All packets of these connections take the slow path, as they would without Shunt; `shunt why` gives the reason
/// `off`. A rule holds until `shunt on` removes it or its time is over, also across restarts. Flows that were added by
/// hand stay.
#[derive(Debug, Args)]
pub(crate) struct OffArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Turn the fast path on again after this time, such as 10m: 1s to 365d.
    #[arg(long = "for", value_name = "TIME", value_parser = time_within(duration, SHORTEST, LONGEST))]
    during: Option<Duration>,
}

/// Turn the fast path on again: for what `shunt off` named with the same words, or, without arguments, for all.
#[derive(Debug, Args)]
pub(crate) struct OnArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Refused, with the way out.
    #[arg(long = "for", value_name = "TIME", hide = true)]
    during: Option<String>,
}

/// A resolved `shunt off`.
#[derive(Debug)]
pub(crate) enum OffPlan {
    Show,
    Add(OffRequest),
}

impl Command for OffArgs {
    type Plan = OffPlan;
    const EXAMPLES: &str = "
        [shunt off]
        shunt off 192.168.1.2 # all connections of a host, by address or name
        shunt off --dport 5060 --for 10m # connections to a port, for ten minutes
        shunt off tcp 192.168.1.2:40000 198.51.100.7:443 # one connection
        shunt off # for which connections it is off
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<OffPlan> {
        Ok(self.plan()?)
    }

    async fn run(plan: OffPlan, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let client = &context.client;
        match plan {
            OffPlan::Show => {}
            OffPlan::Add(request) => {
                let _: Count = client.send(Method::POST, PATH, &request).await?;
            }
        }
        let rules: Vec<OffRule> = client.get(PATH).await?;
        show(&OffRules(rules))
    }
}

impl OffArgs {
    fn plan(&self) -> Result<OffPlan, Failure> {
        let which = self.connections.selection()?;
        match self.during {
            None if which == Selection::default() => Ok(OffPlan::Show),
            Some(_) if which == Selection::default() => {
                Err(usage("--for: name a host, a port or a connection, such as 192.168.1.2"))
            }
            during => Ok(OffPlan::Add(OffRequest { which, for_s: during.map(seconds), by: OffBy::Owner })),
        }
    }
}

/// Whole seconds, rounded up: a rule that is wanted for half a second lasts one.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl Command for OnArgs {
    type Plan = OffRemoval;
    const EXAMPLES: &str = "
        [shunt on]
        shunt on 192.168.1.2 # as `shunt off` named it
        shunt on # everything
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<OffRemoval> {
        Ok(self.plan()?)
    }

    async fn run(plan: OffRemoval, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let count = context.client.send(Method::DELETE, PATH, &plan).await?;
        show(&Counted::new(count, "rule", |rules| format!("{rules} removed")))
    }
}

impl OnArgs {
    /// A time is refused: a rule that comes back would have to be kept beside the one that was removed.
    fn plan(&self) -> Result<OffRemoval, Failure> {
        let which = self.connections.selection()?;
        if let Some(time) = &self.during {
            let words = if which == Selection::default() { "192.168.1.2".to_owned() } else { which.words() };
            return Err(usage(format!(
                "--for: `shunt on` ends a rule for good; on for a while, then off again: shunt on {words} && sleep {time} \
                 && shunt off {words}; off for a while, then on again: shunt off {words} --for {time}"
            )));
        }
        Ok(OffRemoval { which: Some(which).filter(|which| *which != Selection::default()) })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn a_host_a_port_or_a_connection_is_turned_off_and_nothing_shows_the_rules() {
        let plan = |words: &str| parse_args::<OffArgs>(words).unwrap().plan();
        assert!(matches!(plan("").unwrap(), OffPlan::Show));
        let Ok(OffPlan::Add(request)) = plan("192.168.1.2 --for 1500ms") else { panic!("no rule") };
        assert_eq!((request.which.words().as_str(), request.for_s), ("192.168.1.2", Some(2)));
        let Ok(OffPlan::Add(request)) = plan("--dport 5060") else { panic!("no rule") };
        assert_eq!((request.which.words().as_str(), request.for_s), ("--dport 5060", None));
        assert!(plan("--for 10m").unwrap_err().message.contains("name a host"));
        assert!(plan("lan0").is_err());
    }

    #[test]
    fn on_for_a_while_is_refused_with_the_commands_that_do_it() {
        let plan = |words: &str| parse_args::<OnArgs>(words).unwrap().plan();
        let said = plan("tcp 192.168.1.2 --for 10m").unwrap_err().message;
        let commands = "shunt on tcp 192.168.1.2 && sleep 10m && shunt off tcp 192.168.1.2";
        assert!(said.contains(commands) && said.contains("shunt off tcp 192.168.1.2 --for 10m"), "{said}");
        assert!(plan("--for 10m").is_err() && plan("192.168.1.2").is_ok());
    }

    #[test]
    fn the_words_of_a_rule_remove_it() {
        for words in ["tcp 192.0.2.1:1000 198.51.100.1:443", "192.0.2.0/24 --dport 443", "--dst 203.0.113.1"]
        {
            let which = parse_args::<OnArgs>(words).unwrap().connections.selection().unwrap();
            assert_eq!(which.words(), words);
        }
    }
}
