//! `shunt why`: explains why connections are fast or slow.

pub(crate) mod view;

use super::arguments::SelectionArgs;
use crate::{
    client::control::Client,
    command::{Command, Context},
    failure::usage,
    output::Show,
};
use clap::Args;
use shunt_api::{Explained, Explanation, Failure, FailureCode, Network, Proto, Selection};
use std::net::SocketAddr;

/// Explain whether connections are fast or slow, since when, why, and what would change that.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// A short form of --proto, --src and --dst, in this order: tcp or udp, then ADDR, ADDR:PORT, [ADDR6]:PORT or
    /// ADDR/LEN.
    #[arg(value_name = "PROTO|SRC|DST", num_args = 0..=3)]
    words: Vec<String>,
    #[command(flatten)]
    selection: SelectionArgs,
}

impl WhyArgs {
    fn selection(&self) -> Result<Selection, Failure> {
        let mut selection = self.selection.selection();
        let mut words = self.words.as_slice();
        if let [first, rest @ ..] = words {
            let proto = [Proto::Tcp, Proto::Udp].into_iter().find(|proto| proto.to_string() == *first);
            if let Some(proto) = proto {
                selection.proto = Some(proto);
                words = rest;
            }
        }
        for (n, word) in words.iter().enumerate() {
            let (network, port) = address_and_port(word).map_err(usage)?;
            match n {
                0 => (selection.src, selection.sport) = (Some(network), port.or(selection.sport)),
                1 => (selection.dst, selection.dport) = (Some(network), port.or(selection.dport)),
                _ => {
                    let why = "expected at most a source and a destination, after an optional tcp or udp";
                    return Err(usage(format!("`{word}`: {why}")));
                }
            }
        }
        Ok(selection)
    }
}

impl Command for WhyArgs {
    type Plan = Selection;
    const EXAMPLES: &str = "
        [shunt why]
        shunt why 192.168.1.2 # all connections of a host
        shunt why tcp 192.168.1.2:40000 198.51.100.7:443 # one connection
        shunt why --dport 5201 # connections to a port
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Selection> {
        Ok(self.selection()?)
    }

    async fn run(plan: Selection, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        show(&explain(&plan, &context.client).await?)
    }
}

/// The answer of the daemon, which knows at least one such connection.
pub(super) async fn explain(selection: &Selection, client: &Client) -> anyhow::Result<Explanation> {
    let mut explanation: Explanation = client.get(&format!("/v1/why?{}", selection.query())).await?;
    if explanation.connections.is_empty() {
        let why = "no such connection: neither conntrack nor Shunt has seen it";
        return Err(Failure::new(FailureCode::NoConnection, why).into());
    }
    explanation.connections.sort_by_key(has_ended);
    Ok(explanation)
}

/// Whether a TCP connection ends or has ended. Nobody asks about it, so it comes last.
fn has_ended(connection: &Explained) -> bool {
    let ending = ["FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"];
    connection.state.as_deref().is_some_and(|state| ending.contains(&state))
}

/// Reads an address, a network, or an address with a port.
fn address_and_port(word: &str) -> Result<(Network, Option<u16>), String> {
    match word.parse::<SocketAddr>() {
        Ok(both) => Ok((both.ip().into(), Some(both.port()))),
        Err(_) => Ok((word.parse()?, None)),
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn a_connection_is_named_by_words_or_by_options() {
        let why = |words: &str| parse_args::<WhyArgs>(words).unwrap().selection();
        let whole = "src=192.0.2.1&dst=198.51.100.1&sport=1000&dport=53&proto=udp";
        assert_eq!(why("udp 192.0.2.1:1000 198.51.100.1:53").unwrap().query(), whole);
        assert_eq!(
            why("-p udp -s 192.0.2.1 --sport 1000 -d 198.51.100.1 --dport 53").unwrap().query(),
            whole
        );
        assert_eq!(
            why("192.0.2.1 [2001:db8::1]:443").unwrap().query(),
            "src=192.0.2.1&dst=2001:db8::1&dport=443"
        );
        assert_eq!(
            why("tcp 192.0.2.0/24 --dport 22").unwrap().query(),
            "src=192.0.2.0/24&dport=22&proto=tcp"
        );
        assert_eq!(why("").unwrap(), Selection::default());
        for wrong in ["eth0", "192.0.2.1 tcp", "192.0.2.1:99999", "192.0.2.1 192.0.2.2 192.0.2.3"] {
            assert!(why(wrong).is_err(), "{wrong}");
        }
    }
}
