//! `shunt off` and `shunt on`: connections whose packets are all to take the slow path.

pub(crate) mod view;

use super::{
    arguments::time_within,
    connections::{ConnectionArgs, NamedConnections},
    hosts::{KnownHosts, names_of_this_machine},
};
use crate::{
    client::control::Client,
    command::{Command, Context},
    failure::usage,
    output::{Show, write_stderr},
    render::Counted,
};
use clap::Args;
use hyper::Method;
use shunt_api::{
    Count, EndNames, Failure, FailureCode, Network, OffBy, OffRemoval, OffRequest, OffRule, Selection,
};
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};
use view::OffRules;

const PATH: &str = "/v1/off";
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(OffRule::LONGEST_S);

/// The rules that hold now.
pub(super) async fn rules(client: &Client) -> anyhow::Result<Vec<OffRule>> {
    client.get(PATH).await
}

/// Turns the fast path off for connections that a command measures, until [`turn_on`] or until this time is over.
pub(super) async fn turn_off(
    client: &Client,
    which: Selection,
    time: Duration,
    by: OffBy,
) -> anyhow::Result<()> {
    let rule = OffRequest { which, for_s: Some(time.as_secs() + 1), by, names: EndNames::default() };
    client.send(Method::POST, PATH, &rule).await.map(|_: Count| ())
}

/// Turns the fast path on again after [`turn_off`], whose time may be over.
pub(super) async fn turn_on(client: &Client, which: Selection) -> anyhow::Result<()> {
    remove(client, which).await.map(drop)
}

/// Removes the rule for these connections; false if there is none.
async fn remove(client: &Client, which: Selection) -> anyhow::Result<bool> {
    let removed: anyhow::Result<Count> =
        client.send(Method::DELETE, PATH, &OffRemoval { which: Some(which) }).await;
    match removed {
        Err(error) if is_missing(&error) => Ok(false),
        removed => removed.map(|_| true),
    }
}

/// Whether there was no rule to remove.
fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|failure: &Failure| failure.code == FailureCode::NoConnection)
}

/// Turn the fast path off for a host, a TCP or UDP port, or a connection, at once; without arguments, list the rules.
///
/// All packets of these connections take the slow path, as they would without Shunt; `shunt why` gives the reason
/// `off`. A rule holds until `shunt on` removes it or its time is over, also across restarts. Flows that were added by
/// hand stay. The name of a host stands for all addresses that it has at this time.
#[derive(Debug, Args)]
pub(crate) struct OffArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Turn the fast path on again after this time, such as 10m: 1s to 365d.
    #[arg(long = "for", visible_alias = "time", value_name = "TIME", value_parser = time_within(SHORTEST, LONGEST))]
    during: Option<Duration>,
}

/// Turn the fast path on again: for what `shunt off` named with the same words, or, without arguments, for all.
#[derive(Debug, Args)]
pub(crate) struct OnArgs {
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Refused, with the way out.
    #[arg(long = "for", alias = "time", value_name = "TIME", hide = true)]
    during: Option<String>,
}

/// A resolved `shunt off`.
#[derive(Debug)]
pub(crate) enum OffPlan {
    Show,
    Add { which: NamedConnections, for_s: Option<u64> },
}

impl Command for OffArgs {
    type Plan = OffPlan;
    const EXAMPLES: &str = "
        [shunt off]
        shunt off 192.168.1.2 # all connections of an address
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
        let mut asked = None;
        if let OffPlan::Add { which, for_s } = plan {
            let selections = look_up(&which, client, OF_OFF).await?;
            let known = KnownHosts::read(client).await;
            for which in selections {
                let names = end_names(&known, &which);
                let request = OffRequest { which, for_s, by: OffBy::Owner, names };
                let _: Count = client.send(Method::POST, PATH, &request).await?;
            }
            which.words().split(' ').filter_map(perhaps_with_port).for_each(|note| write_stderr(&note));
            asked = which.address().map(|address| (address, known));
        }
        let rules = rules(client).await?;
        if let Some((address, known)) = asked {
            other_addresses(&known, address, &rules).iter().for_each(|note| write_stderr(note));
        }
        show(&OffRules(rules))
    }
}

impl OffArgs {
    fn plan(&self) -> Result<OffPlan, Failure> {
        let which = self.connections.named()?;
        if is_everything(&which) {
            return Err(usage(format!(
                "`{}` is not a host: for all of IPv4, `shunt off 0.0.0.0/0`, for all of IPv6, `shunt off ::/0`; `shunt \
                 down` ends the fast path",
                which.words()
            )));
        }
        if let Some((network, word)) = which.words().split(' ').find_map(wider_network) {
            let (address, _) = word.split_once('/').unwrap_or((&word, ""));
            return Err(usage(format!(
                "`{word}` is a host with the length of its network: name the host, `{address}`, or the network, \
                 `{network}`"
            )));
        }
        if let Some(group) = which.address().filter(IpAddr::is_multicast) {
            return Err(usage(format!("`{group}`: packets to a group of hosts are never fast")));
        }
        match self.during {
            None if which.are_all() => Ok(OffPlan::Show),
            Some(_) if which.are_all() => {
                Err(usage("--for: name a host, a port or a connection, such as 192.168.1.2"))
            }
            during => Ok(OffPlan::Add { which, for_s: during.map(seconds) }),
        }
    }
}

/// The network that a word names by the address of a host in it, such as 192.168.1.0/24 for 192.168.1.2/24; with the
/// word. Whoever copies an address from `ip addr` means the host.
fn wider_network(word: &str) -> Option<(String, String)> {
    let (address, len) = word.split_once('/')?;
    let len: u32 = len.parse().ok()?;
    let address: IpAddr = address.parse().ok()?;
    let first: IpAddr = match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(len)?).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(len)?).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    };
    (first != address).then(|| (format!("{first}/{len}"), word.to_owned()))
}

/// Where a port is turned off.
const OF_OFF: &str = "to leave out a port, name the others in `ports` in /etc/shunt/shunt.toml";

/// Looks up the hosts. A network device is none; then there is another way out.
async fn look_up(
    which: &NamedConnections,
    client: &Client,
    instead: &str,
) -> Result<Vec<Selection>, Failure> {
    which.look_up(client).await.map_err(|failure| match which.device() {
        Some(device) => usage(format!(
            "`{device}` is a network device, not a host or its address; {instead}; `shunt flows --by host --dev {device}` \
             lists the hosts of its connections"
        )),
        None => failure,
    })
}

/// The names of the hosts at both ends.
fn end_names(known: &KnownHosts, which: &Selection) -> EndNames {
    let name = |network: Option<Network>| {
        let (name, _) = known.host_of(network?.only()?)?;
        name.to_owned().try_into().ok()
    };
    EndNames { src: name(which.src), dst: name(which.dst) }
}

/// A line about an IPv6 address whose end looks like a port: four decimal digits.
fn perhaps_with_port(word: &str) -> Option<String> {
    let (address, port) = word.rsplit_once(':')?;
    let is_number = port.len() == 4 && port.bytes().all(|digit| digit.is_ascii_digit());
    let both: [Ipv6Addr; 2] = [word.parse().ok()?, address.parse().ok()?];
    (is_number && both[0] != both[1]).then(|| {
        format!(
            "`{word}` was taken for an address; an address with a port needs brackets: [{address}]:{port}\n"
        )
    })
}

/// A line that says for which other addresses of the host the fast path stays on.
fn other_addresses(known: &KnownHosts, address: IpAddr, rules: &[OffRule]) -> Option<String> {
    let (name, others) = known.host_of(address)?;
    let is_on = |other: &IpAddr| {
        let all_of_it = Selection { src: Some((*other).into()), ..Selection::default() };
        !rules.iter().any(|rule| rule.which == all_of_it)
    };
    let on: Vec<String> = others.iter().filter(|other| is_on(other)).map(ToString::to_string).collect();
    (!on.is_empty()).then(|| {
        format!(
            "{address} is {name}, which also has {}, where the fast path stays on; `shunt off {name}` covers all\n",
            on.join(", ")
        )
    })
}

/// Whole seconds, rounded up: a rule that is wanted for half a second lasts one.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Whether a word stands for all hosts, which could also be the name of one.
fn is_everything(which: &NamedConnections) -> bool {
    let is_word = |word: &str| which.words().eq_ignore_ascii_case(word);
    ["all", "any", "everything"].into_iter().any(is_word)
        && names_of_this_machine().addresses(which.words()).is_empty()
}

impl Command for OnArgs {
    type Plan = Option<NamedConnections>;
    const EXAMPLES: &str = "
        [shunt on]
        shunt on 192.168.1.2 # as `shunt off` named it
        shunt on # everything
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self::Plan> {
        Ok(self.plan()?)
    }

    async fn run(plan: Self::Plan, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let client = &context.client;
        let which = match &plan {
            Some(named) => look_up(named, client, "`shunt off` lists its rules").await?,
            None => Vec::new(),
        };
        if let [_, _, ..] = which.as_slice() {
            let mut removed = Vec::new();
            for which in which {
                let words = which.words();
                removed.extend(remove(client, which).await?.then_some(words));
            }
            if removed.is_empty() {
                let words = plan.as_ref().map(NamedConnections::words).unwrap_or_default();
                let why = format!("`shunt off` has no rule for an address of {words}");
                return Err(Failure::new(FailureCode::NoConnection, why).into());
            }
            let count = Count { count: removed.len() as u64 };
            return show(&Counted::new(count, "rule", |rules| {
                format!("{rules} removed: {}", removed.join(", "))
            }));
        }
        let removal = OffRemoval { which: which.into_iter().next() };
        let count = client.send(Method::DELETE, PATH, &removal).await?;
        show(&Counted::new(count, "rule", |rules| format!("{rules} removed")))
    }
}

impl OnArgs {
    /// A time is refused: a rule that comes back would have to be kept beside the one that was removed.
    fn plan(&self) -> Result<Option<NamedConnections>, Failure> {
        let which = self.connections.named()?;
        if is_everything(&which) {
            return Err(usage(format!("`{}`: `shunt on` without arguments ends all rules", which.words())));
        }
        if let Some(time) = &self.during {
            let words = if which.are_all() { "192.168.1.2" } else { which.words() };
            return Err(usage(format!(
                "--for: `shunt on` ends a rule for good; on for a while, then off again: shunt on {words} && sleep {time} \
                 && shunt off {words}; off for a while, then on again: shunt off {words} --for {time}"
            )));
        }
        Ok(Some(which).filter(|which| !which.are_all()))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn a_host_a_port_or_a_connection_is_turned_off_and_nothing_shows_the_rules() {
        let plan = |words: &str| parse_args::<OffArgs>(words).unwrap().plan();
        assert!(matches!(plan("").unwrap(), OffPlan::Show));
        let Ok(OffPlan::Add { which, for_s }) = plan("192.168.1.2 --for 1500ms") else { panic!("no rule") };
        assert_eq!((which.words(), for_s), ("192.168.1.2", Some(2)));
        let Ok(OffPlan::Add { which, for_s }) = plan("--dport 5060") else { panic!("no rule") };
        assert_eq!((which.words(), for_s), ("--dport 5060", None));
        assert!(plan("--for 10m").unwrap_err().message.contains("name a host"));
        assert!(parse_args::<OffArgs>("192.168.1").is_err());
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
    fn a_rule_has_the_names_of_its_hosts() {
        let known = KnownHosts::sample();
        let words = |src: &str, dst: &str| {
            let [src, dst] = [src, dst].map(|end| end.parse().ok());
            let which = Selection { src, dst, sport: Some(40000), ..Selection::default() };
            which.words_with(&end_names(&known, &which))
        };
        assert_eq!(words("192.168.1.4", ""), "laptop (192.168.1.4:40000)");
        assert_eq!(words("192.168.1.5", "192.168.1.3"), "printer (192.168.1.5:40000) tv (192.168.1.3)");
        assert_eq!(words("192.168.1.0/24", "198.51.100.1"), "192.168.1.0/24 --sport 40000 198.51.100.1");
    }

    #[test]
    fn an_address_that_may_have_a_port_gets_a_note() {
        let note = perhaps_with_port("2001:db8:2::1:5201").unwrap();
        assert!(note.ends_with("needs brackets: [2001:db8:2::1]:5201\n"), "{note}");
        for clear in [
            "2001:db8::1",
            "2001:db8::1:52ab",
            "192.0.2.1:5201",
            "[2001:db8::1]:5201",
            "tcp",
            "fd00:1:2:3:4:5:6:5201",
        ] {
            assert_eq!(perhaps_with_port(clear), None, "{clear}");
        }
    }

    #[test]
    fn one_address_of_a_host_names_the_others_that_stay_on() {
        let known = KnownHosts::sample();
        let address: IpAddr = "192.168.1.3".parse().unwrap();
        let rule = |src: &str| OffRule {
            which: Selection { src: Some(src.parse().unwrap()), ..Selection::default() },
            left_s: None,
            by: OffBy::Owner,
            names: EndNames::default(),
        };
        let said = other_addresses(&known, address, &[rule("192.168.1.3")]).unwrap();
        assert_eq!(
            said,
            "192.168.1.3 is tv, which also has fd00:1::3, where the fast path stays on; `shunt off tv` covers all\n"
        );
        assert_eq!(other_addresses(&known, address, &[rule("192.168.1.3"), rule("fd00:1::3")]), None);
        assert_eq!(other_addresses(&known, "192.168.1.5".parse().unwrap(), &[]), None);
    }
}
