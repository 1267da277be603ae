//! `shunt conntrack`: conntrack's table, with the packets of the fast path included in its counters.
//!
//! The filters of `conntrack -L`, which match the original direction only.

pub(crate) mod view;

use super::{
    arguments::l4_port,
    connections::{End, NamedConnections, SelectionArgs},
};
use crate::{
    client::candidates,
    command::{Command, Context},
    output::{Show, write_stderr},
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use shunt_api::{Failure, TrackedTable};
use view::protocol_number;

/// Show conntrack's table like `conntrack -L`, with the packets of the fast path included in the counters.
#[derive(Debug, Args)]
pub(crate) struct ConntrackArgs {
    /// Only this host at either end, by name, MAC or address.
    #[arg(long, value_name = "HOST|ADDR[/LEN]", conflicts_with_all = ["src", "dst"], add = ArgValueCandidates::new(candidates::sources))]
    host: Option<End>,
    /// Only this source in the original direction: a host, or the addresses of a network.
    #[arg(short, long, value_name = "HOST|ADDR[/LEN]", add = ArgValueCandidates::new(candidates::sources))]
    src: Option<End>,
    /// Only this destination in the original direction: a host, or the addresses of a network.
    #[arg(short, long, value_name = "HOST|ADDR[/LEN]", add = ArgValueCandidates::new(candidates::destinations))]
    dst: Option<End>,
    /// Only this source port in the original direction.
    #[arg(long, value_name = "PORT", value_parser = l4_port)]
    sport: Option<u16>,
    /// Only this destination port in the original direction.
    #[arg(long, value_name = "PORT", value_parser = l4_port)]
    dport: Option<u16>,
    /// Only this protocol, by name or number.
    #[arg(short, long, value_parser = protocol)]
    proto: Option<u8>,
}

impl Command for ConntrackArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt conntrack]
        shunt conntrack --proto tcp # TCP connections, with the packets of the fast path counted
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let proto = plan.proto;
        let is_either = plan.host.is_some();
        let selections = plan.named()?.look_up(&context.client).await?;
        let TrackedTable { counted, mut entries } = context.client.get("/v1/conntrack").await?;
        if !counted {
            write_stderr(
                "conntrack counts no packets: counters are missing; turn them on: sysctl -w net.netfilter.nf_conntrack_acct=1\n",
            );
        }
        entries.retain(|entry| {
            let tuples = [entry.orig.tuple(), entry.reply.tuple()];
            let matched = if is_either { &tuples[..] } else { &tuples[..1] };
            proto.is_none_or(|number| entry.protocol == number)
                && selections.iter().any(|which| matched.iter().any(|tuple| which.has_ends(tuple)))
        });
        show(&entries)
    }
}

impl ConntrackArgs {
    fn named(self) -> Result<NamedConnections, Failure> {
        let Self { host, src, dst, sport, dport, .. } = self;
        let selection = SelectionArgs { src: host.or(src), dst, sport, dport, proto: None };
        selection.named()
    }
}

fn protocol(name: &str) -> Result<u8, String> {
    match protocol_number(name) {
        Some(number) => Ok(number),
        None => {
            name.parse().map_err(|_| "expected a protocol name that conntrack knows, or a number".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn a_protocol_is_a_name_or_a_number() {
        let proto = |words: &str| parse_args::<ConntrackArgs>(words).map(|typed| typed.proto).ok();
        assert_eq!(
            (proto("-p icmpv6"), proto("-p 47"), proto("")),
            (Some(Some(58)), Some(Some(47)), Some(None))
        );
        assert_eq!(proto("-p ether"), None);
    }
}
