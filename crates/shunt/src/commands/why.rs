//! `shunt why`: explains why connections are fast or slow.

pub(crate) mod view;

use super::connections::{ConnectionArgs, NamedConnections};
use crate::{
    client::control::Client,
    command::{Command, Context, instance_option},
    output::Show,
};
use clap::Args;
use shunt_api::{Explained, Explanation, Failure, FailureCode, Selection, Tracked};

/// At most this many connections are shown; the others are counted.
const SHOWN_MAX: usize = 20;

/// Explain whether connections are fast or slow, why, since when, and what would change that.
///
/// The name of a host stands for all its addresses. At most 20 connections are shown: those with packets lately first,
/// ended ones last. If nothing seems to come, the answer takes half a second: Shunt looks whether packets arrive.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
}

impl Command for WhyArgs {
    type Plan = NamedConnections;
    const EXAMPLES: &str = "
        [shunt why]
        shunt why 192.168.1.2 # all connections of a host
        shunt why tcp 192.168.1.2:40000 198.51.100.7:443 # one connection
        shunt why --dport 5201 # connections to a port
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<NamedConnections> {
        Ok(self.connections.named()?)
    }

    async fn run(plan: NamedConnections, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let client = &context.client;
        let Some(found) = joined(ask(&plan, client).await?) else {
            return Err(no_connection(&plan, context).await.into());
        };
        show(&found)
    }
}

/// The answers about each address of the hosts.
async fn ask(which: &NamedConnections, client: &Client) -> anyhow::Result<Vec<Explanation>> {
    let mut answers = Vec::new();
    for which in which.look_up(client).await? {
        answers.push(client.get(&path(&which)).await?);
    }
    Ok(answers)
}

/// There is no such connection; if the words can also be read as one that exists, the failure says what to type.
async fn no_connection(which: &NamedConnections, context: &Context) -> Failure {
    for reading in which.other_readings() {
        let answers = ask(&reading, &context.client).await.unwrap_or_default();
        if joined(answers).is_some() {
            let instance = instance_option(context.instance.as_str());
            let meant = format!("{UNSEEN}; did you mean `shunt why{instance} {}`?", reading.words());
            return Failure::new(FailureCode::NoConnection, meant);
        }
    }
    unseen()
}

/// What is said if there is no such connection.
const UNSEEN: &str = "no such connection in conntrack or among the flows";

fn unseen() -> Failure {
    Failure::new(
        FailureCode::NoConnection,
        format!(
            "{UNSEEN}: it has ended, or its first packet is dropped or rejected, by a rule (see the counters in `nft list \
         ruleset`), by Linux (no route, a TTL of 1) or by the other end; `shunt flows` lists connections with packets"
        ),
    )
}

/// The answer of the daemon, which knows at least one such connection.
pub(super) async fn explain(selection: &Selection, client: &Client) -> anyhow::Result<Explanation> {
    Ok(joined(vec![client.get(&path(selection)).await?]).ok_or_else(unseen)?)
}

fn path(selection: &Selection) -> String {
    format!("/v1/why?{}", selection.query())
}

/// One answer of several, each about an address of a host: connections with packets lately first, ended ones last. None
/// if there is no connection.
fn joined(answers: Vec<Explanation>) -> Option<Explanation> {
    let mut all = Explanation { connections: Vec::new(), more: 0 };
    for Explanation { connections, more } in answers {
        for connection in connections {
            // Two addresses of the host may be the ends of one connection.
            if !all.connections.contains(&connection) {
                all.connections.push(connection);
            }
        }
        all.more += more;
    }
    if all.connections.is_empty() {
        return None;
    }
    all.connections.sort_by_key(|connection| (has_ended(connection), is_idle(connection)));
    let shown = all.connections.len().min(SHOWN_MAX);
    all.more += (all.connections.len() - shown) as u64;
    all.connections.truncate(shown);
    Some(all)
}

/// Whether no direction has had a packet lately.
fn is_idle(connection: &Explained) -> bool {
    connection.directions.iter().all(|why| why.idle.is_some())
}

/// Whether a TCP connection ends or has ended. Nobody asks about it, so it comes last.
fn has_ended(connection: &Explained) -> bool {
    connection.state.as_deref().is_some_and(|state| Tracked::ENDING.contains(&state))
}

#[cfg(test)]
pub(crate) mod sample;

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::Idle;

    #[test]
    fn connections_with_packets_come_first_and_ended_ones_last_and_the_rest_is_counted() {
        let one = sample::explanation().connections.swap_remove(0);
        let with = |port: u16, state: &str, idle: Option<Idle>| {
            let mut connection = one.clone();
            connection.state = Some(state.to_owned());
            connection.directions.iter_mut().for_each(|why| (why.tuple.sport, why.idle) = (port, idle));
            connection
        };
        let quiet = Some(Idle { for_s: Some(60), at_least: false, was_fast: Some(true) });
        let ended = with(1, "TIME_WAIT", None);
        let idle = with(2, "ESTABLISHED", quiet);
        let busy = |port| with(port, "ESTABLISHED", None);
        let answer = |connections, more| Explanation { connections, more };
        let few =
            vec![answer(vec![ended.clone(), idle.clone(), busy(3)], 1), answer(vec![busy(3), busy(4)], 2)];
        let Explanation { connections, more } = joined(few).unwrap();
        assert_eq!((connections, more), (vec![busy(3), busy(4), idle.clone(), ended.clone()], 3));
        let mut many = vec![ended, idle];
        many.extend((10..40).map(busy));
        let Explanation { connections, more } = joined(vec![answer(many, 5)]).unwrap();
        assert_eq!((connections, more), ((10..30).map(busy).collect(), 17));
        assert_eq!(joined(vec![answer(Vec::new(), 0)]), None);
    }
}
