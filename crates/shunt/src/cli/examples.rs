//! Examples of each command, for its help and its manual page.

use clap::Command;
use std::fmt::Write;

/// What to type, and what it does.
type Example = (&'static str, &'static str);

/// The examples of a command, by its name with those above it.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "shunt",
        &[
            ("shunt probe", "what this machine allows; attaches nothing"),
            ("shunt up", "start on all ports that forward"),
            ("shunt why --dst 198.51.100.7", "why the connections to a host are fast or slow"),
        ],
    ),
    (
        "shunt probe",
        &[
            ("shunt probe", "the ports that `shunt up` would choose"),
            ("shunt probe --port lan0 --port wan0", "these ports"),
        ],
    ),
    (
        "shunt up",
        &[
            ("shunt up --dry-run", "which ports, which engine, what stays slow; attaches nothing"),
            ("shunt up", "start on all ports that forward"),
            ("shunt up --port lan0 --port wan0 --engine tc", "on two ports, through their qdiscs"),
            ("shunt up --config lab.toml --instance lab", "a second instance, with its own configuration"),
        ],
    ),
    ("shunt down", &[("shunt down", "stop, and leave nothing behind")]),
    (
        "shunt status",
        &[
            ("shunt status", "shares, causes, and the counters of each port"),
            ("shunt status -br", "one line for each port"),
            ("shunt status --watch", "again each second"),
            ("shunt status --json", "the same for a program"),
        ],
    ),
    (
        "shunt flows",
        &[
            ("shunt flows --limit 10", "the ten fastest connections"),
            ("shunt flows --by host", "who uses the line"),
            (
                "shunt flows -br --dst 198.51.100.0/24 --proto udp",
                "one line for each connection to a network",
            ),
            ("shunt flows --dev lan0 --sort packets", "connections that arrive or leave by a device"),
        ],
    ),
    (
        "shunt top",
        &[("shunt top", "the live screen; q ends it"), ("shunt top --once", "one sample, as text")],
    ),
    (
        "shunt why",
        &[
            ("shunt why 192.168.1.2", "all connections of a host"),
            ("shunt why tcp 192.168.1.2:40000 198.51.100.7:443", "one connection"),
            ("shunt why --dport 5201", "connections to a port"),
        ],
    ),
    (
        "shunt conntrack",
        &[("shunt conntrack --proto tcp", "TCP connections, with the packets of the fast path counted")],
    ),
    (
        "shunt watch",
        &[
            ("shunt watch", "all events, until Ctrl-C"),
            ("shunt watch --dst 198.51.100.7 --for 10s", "those of a host, for ten seconds"),
        ],
    ),
    ("shunt flush", &[("shunt flush", "all connections are learned again")]),
    (
        "shunt flow",
        &[
            ("shunt flow load flows.toml", "add the flows and routes of a file"),
            ("shunt flow show", "what was added"),
        ],
    ),
    (
        "shunt flow add",
        &[(
            "shunt flow add --in-port lan0 --proto udp --src 192.0.2.1:5000 --dst 198.51.100.7:5000 \
             --out-port wan0 --next-hop 02:00:00:00:00:01",
            "one direction of a UDP stream",
        )],
    ),
    (
        "shunt flow del",
        &[
            ("shunt flow del --all", "everything that was added by hand"),
            ("shunt flow del --file flows.toml", "what a file added"),
        ],
    ),
    ("shunt flow load", &[("shunt flow load flows.toml", "the routes and flows of a file")]),
    ("shunt flow list", &[("shunt flow show", "flows and routes that were added by hand")]),
    (
        "shunt qos",
        &[
            ("shunt qos", "the queues of all ports, with delays and drops"),
            ("shunt qos set wan0 --rate 95M", "shape what leaves by wan0"),
        ],
    ),
    ("shunt qos show", &[("shunt qos show wan0", "the queues of one port")]),
    (
        "shunt qos set",
        &[
            (
                "shunt qos set wan0 --rate 50M --overhead 18",
                "50 Mbit/s with 18 bytes of framing for each frame",
            ),
            ("shunt qos set wan0 --police 200M", "drop what arrives faster than 200 Mbit/s"),
        ],
    ),
    (
        "shunt qos load",
        &[("shunt qos load /etc/shunt/shunt.toml", "the queues of the configuration file, again")],
    ),
    ("shunt qos del", &[("shunt qos del wan0", "no queues, no shaper, no policer")]),
    (
        "shunt export",
        &[
            ("shunt export", "the connections, one line of JSON each"),
            ("shunt export --format ipfix --to 192.0.2.9:4739 --every 10s", "to a collector, until Ctrl-C"),
        ],
    ),
    (
        "shunt line",
        &[
            ("shunt line --speed 1G --frame 64", "what a gigabit link carries of the smallest frames"),
            ("shunt line --speed 100M --pppoe --ip 4", "over PPPoE"),
        ],
    ),
    ("shunt load", &[("shunt load --count 3", "three lines of a second each")]),
    (
        "shunt bench",
        &[
            ("shunt bench size --size 64 --quick", "packets/s of small packets, Linux and each engine"),
            ("shunt bench run lab.toml", "a whole campaign"),
        ],
    ),
    (
        "shunt bench ndr",
        &[
            ("shunt bench ndr --quick", "the highest rate without loss of a router in a namespace"),
            (
                "shunt bench ndr --tx eth1 --rx eth2 --gateway 192.0.2.1 --keep ndr.json",
                "of a router between two devices",
            ),
        ],
    ),
    ("shunt bench size", &[("shunt bench size --size 64,1518 --quick", "two frame sizes")]),
    (
        "shunt bench sweep",
        &[(
            "shunt bench sweep --from 100M --to 1G --step 100M --engine tc",
            "loss by offered rate, from 100 Mbit/s to 1 Gbit/s",
        )],
    ),
    (
        "shunt bench matrix",
        &[("shunt bench matrix --quick --proto tcp --ip 4", "goodput of TCP over IPv4, each engine")],
    ),
    (
        "shunt bench rxtx",
        &[(
            "shunt bench rxtx --variant plain= --variant 'gro-off=ethtool -K r0 gro off'",
            "what a setting of the router changes",
        )],
    ),
    (
        "shunt bench latency",
        &[
            ("shunt bench latency --keep latency.json", "latency under load, each engine"),
            ("shunt report latency.json -o latency.html", "its curves over time"),
        ],
    ),
    ("shunt bench run", &[("shunt bench run lab.toml --output results", "a campaign, into a directory")]),
    (
        "shunt lab",
        &[(
            "shunt lab agent --token-file /etc/shunt/agent.token",
            "on the router; `--dut-agent` of `shunt bench` asks it",
        )],
    ),
    (
        "shunt lab agent",
        &[(
            "shunt lab agent --token-file /etc/shunt/agent.token",
            "answer clients that know the token, on loopback",
        )],
    ),
    ("shunt compare", &[("shunt compare before.json after.json", "better, worse or no difference")]),
    (
        "shunt gen",
        &[
            ("shunt gen --rate 100kpps --size 64 --time 5s", "through a router in a namespace"),
            (
                "shunt gen --tx eth1 --rx eth2 --gateway 192.0.2.1 --rate 80% --both --rx-gateway 198.51.100.1",
                "through another router, both ways",
            ),
            ("shunt gen --tx eth1 --rx eth2 --pcap-in in.pcap --pcap-out out.pcap", "replay a capture"),
        ],
    ),
    (
        "shunt link",
        &[
            ("shunt link eth0", "settings and counters on a screen"),
            ("shunt link eth0 --ring rx=512", "a larger receive ring; prints how to undo it"),
        ],
    ),
    (
        "shunt doctor",
        &[
            ("shunt doctor eth0", "what slows a port"),
            ("shunt doctor eth0 --load --peer eth1", "with traffic from the other end of its cable"),
        ],
    ),
    ("shunt check", &[("shunt check eth0 --peer eth1", "two ports that a cable connects")]),
    (
        "shunt trace",
        &[
            ("shunt trace lan0", "where the packets that arrive at a port spend their time"),
            ("shunt trace --dst 198.51.100.7 --seconds 10", "those of a connection, for ten seconds"),
        ],
    ),
    (
        "shunt reg",
        &[
            ("shunt reg decode --soc imx6q ENET_RCR 0x05ee0264", "the fields of a value, without hardware"),
            ("shunt reg read 'ENET_R*'", "on the board: registers whose names match"),
        ],
    ),
    (
        "shunt reg decode",
        &[
            ("shunt reg decode --soc imx6q ENET_RCR 0x05ee0264", "with the definitions that come with Shunt"),
            ("shunt reg decode --defs soc.svd ENET_RCR 0x05ee0264", "with definitions of your own"),
        ],
    ),
    ("shunt reg list", &[("shunt reg list --soc imx6q 'ENET_RMON_*'", "the counters of a MAC")]),
    (
        "shunt reg read",
        &[
            ("shunt reg read ENET_RCR 'ENET_R*FL'", "from /dev/mem, at the addresses of the device tree"),
            ("shunt reg read --from ethtool:eth0 ENET_RCR", "from the driver's dump"),
            ("shunt reg read --from mdio:eth0 PHY_BMSR PHY_ANLPAR", "from a PHY"),
        ],
    ),
    (
        "shunt reg write",
        &[
            ("shunt reg write ENET_RCR.FCE 1", "what would be written to the register"),
            ("shunt reg write ENET_RCR.FCE 1 --write", "write it, and read it back"),
        ],
    ),
    (
        "shunt reg snapshot",
        &[("shunt reg snapshot --output before.json", "all that reading does not change")],
    ),
    (
        "shunt reg diff",
        &[
            ("shunt reg diff before.json", "what has changed since"),
            ("shunt reg diff before.json after.json", "between two snapshots"),
        ],
    ),
    (
        "shunt reg watch",
        &[("shunt reg watch 'ENET_IEEE_R_*' --interval 5s", "how counters rise, every five seconds")],
    ),
    (
        "shunt model",
        &[
            ("shunt model cases", "the boards of the library"),
            ("shunt model run imx6 --set traffic.rate=600M", "an i.MX6 that is offered 600 Mbit/s of UDP"),
        ],
    ),
    (
        "shunt model run",
        &[
            ("shunt model run imx6 --set traffic.rate=600M", "a board of the library"),
            ("shunt model run board.toml", "a case of your own"),
        ],
    ),
    (
        "shunt model sweep",
        &[
            ("shunt model sweep imx6 --over traffic.rate=50M..1G/20", "twenty offered rates"),
            (
                "shunt model sweep imx6 --over fifo.pause=on,off --over traffic.rate=400M,800M",
                "with pause frames and without, at two rates",
            ),
        ],
    ),
    (
        "shunt model explain",
        &[("shunt model explain imx6 --over traffic.rate=300M,600M,900M", "what limits it at three rates")],
    ),
    (
        "shunt model fit",
        &[
            ("shunt model fit sweep.json", "an ideal router, fitted to a sweep"),
            (
                "shunt model fit sweep.json --case board.toml --parameter bus.rx_rate",
                "one parameter of a board that is known otherwise",
            ),
        ],
    ),
    ("shunt model stories", &[("shunt model stories i.MX6", "measurements of one board beside the model's")]),
    (
        "shunt model cases",
        &[
            ("shunt model cases", "the library"),
            ("shunt model cases template", "a case to begin with, with comments"),
        ],
    ),
    ("shunt report", &[("shunt report before after -o page.html", "two campaigns on one page")]),
    ("shunt completions", &[("source <(shunt completions bash)", "in the present bash")]),
];

/// The examples of this command; none if it has none.
pub(crate) fn for_command(name: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(of, _)| *of == name).map_or(&[], |(_, examples)| examples)
}

/// Adds the examples to the help of a command and of those below it. `name` is its own, with those above it.
pub(super) fn add(command: Command, name: &str) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = below.into_iter().fold(command, |command, one| {
        let whole = format!("{name} {one}");
        command.mut_subcommand(one, |below| add(below, &whole))
    });
    let examples = for_command(name);
    if examples.is_empty() {
        return command;
    }
    let mut text = "Examples:".to_owned();
    for (typed, what) in examples {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {typed}\n      {what}");
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, command};
    use clap::{FromArgMatches, Subcommand};

    /// Splits a line as a shell would, as far as examples need it.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        parts.fold(vec![String::new()], |mut words, (at, part)| {
            let mut pieces = part.split(if at % 2 == 0 { ' ' } else { '\'' });
            if let (Some(last), Some(first)) = (words.last_mut(), pieces.next()) {
                last.push_str(first);
            }
            words.extend(pieces.map(str::to_owned));
            words
        })
    }

    #[test]
    fn every_example_is_a_command_line() {
        for (_, examples) in EXAMPLES {
            for (typed, _) in examples.iter().filter(|(typed, _)| !typed.starts_with("source")) {
                let words = crate::cli::words(words(typed).into_iter().map(Into::into));
                let matches = command().try_get_matches_from(words);
                let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
                assert!(parsed.is_ok(), "{typed}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &Command, name: &str) {
            assert!(name.ends_with(" help") || !for_command(name).is_empty(), "{name} has no example");
            for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
                check(one, &format!("{name} {}", one.get_name()));
            }
        }
        check(&crate::cli::Command::augment_subcommands(Command::new("shunt")), "shunt");
    }
}
