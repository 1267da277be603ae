//! What to type instead of words of other programs: commands such as `start`, and what `ip`, `tc`, `ethtool` and
//! `conntrack` would do.

use super::meant::{command_of, is_device, wrong_word};
use std::ffi::OsString;

/// Words of `ip link set` and `ip address`.
const IP: [&str; 18] = [
    "mtu",
    "up",
    "down",
    "master",
    "nomaster",
    "address",
    "addr",
    "txqueuelen",
    "promisc",
    "multicast",
    "arp",
    "name",
    "alias",
    "netns",
    "type",
    "add",
    "set",
    "dev",
];
/// Words of `tc qdisc`.
const TC: [&str; 12] =
    ["cake", "fq_codel", "fq", "htb", "tbf", "hfsc", "sfq", "pfifo", "netem", "root", "qdisc", "clsact"];
/// Words of `ethtool -s`.
const ETHTOOL: [&str; 3] = ["speed", "duplex", "autoneg"];
/// Commands of `conntrack` that change or count.
const CONNTRACK: [&str; 15] = [
    "-D",
    "--delete",
    "-F",
    "--flush",
    "-I",
    "--create",
    "-U",
    "--update",
    "-G",
    "--get",
    "-C",
    "--count",
    "-S",
    "--stats",
    "--any-nat",
];

/// The command of another program whose words these are.
pub(super) fn of_another_program(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let wrong = wrong_word(error)?;
    let command = command_of(words);
    let rest = line.get(command.split(' ').count()..)?;
    let device = rest.iter().find(|word| is_device(word)).copied().unwrap_or("DEV");
    let behind = |from: &str| {
        let at = rest.iter().position(|word| *word == from)?;
        Some(rest[at..].iter().copied().filter(|word| *word != device).collect::<Vec<_>>().join(" "))
    };
    let has = |known: &[&str]| rest.iter().copied().find(|word| known.contains(word));
    let is_about_devices = rest.iter().any(|word| is_device(word));
    match command.as_str() {
        "shunt bench ndr" if wrong == "--rate" || wrong.starts_with("--rate=") => Some(
            "it searches for the rate; `--min-load PPS` and `--max-load PPS` bound the search, `shunt gen --rate` sends \
             at one"
                .to_owned(),
        ),
        "shunt conntrack" if CONNTRACK.contains(&wrong.as_str()) => {
            let options = rest.join(" ");
            Some(format!("`shunt conntrack` only lists the table; `conntrack {options}` of Linux does that"))
        }
        "shunt flush" if matches!(wrong.as_str(), "all" | "any" | "everything" | "now") => {
            Some("it is about all connections anyway: `shunt flush`".to_owned())
        }
        "shunt flush" if is_device(&wrong) => {
            Some("it is about the connections of all ports: `shunt flush`".to_owned())
        }
        "shunt flush" if !wrong.starts_with('-') && !matches!(wrong.as_str(), "tcp" | "udp") => Some(format!(
            "it is about all connections; `shunt off {wrong}`, then `shunt on {wrong}`, sends those of a host back"
        )),
        "shunt conntrack" if wrong == "--state" => {
            Some("`conntrack -L -p tcp --state STATE` of Linux selects by it".to_owned())
        }
        "shunt gen" if ["--ip", "--family", "--ip-version"].contains(&wrong.split('=').next().unwrap_or(&wrong)) => {
            Some("it sends IPv4, or IPv6 with `--ipv6` (`-6`)".to_owned())
        }
        "shunt watch" if matches!(wrong.as_str(), "--dev" | "--port" | "--interface") => {
            Some("it shows events of all ports; `shunt flows --dev PORT` lists the connections of one".to_owned())
        }
        "shunt conntrack" if matches!(wrong.as_str(), "-E" | "--event") => {
            Some("`shunt watch` shows events of connections as they happen".to_owned())
        }
        "shunt link" if has(&ETHTOOL).is_some() && is_about_devices => {
            let pairs: Vec<String> = ETHTOOL
                .iter()
                .filter_map(|name| {
                    let at = rest.iter().position(|word| word == name)?;
                    Some(format!("{name}={}", rest.get(at + 1)?))
                })
                .collect();
            Some(format!("did you mean `shunt link {device} --mode {}`?", pairs.join(",")))
                .filter(|_| !pairs.is_empty())
        }
        _ if is_about_devices && has(&TC).is_some() => {
            let words = behind(has(&TC)?)?;
            let root = if words.starts_with("root") || words.starts_with("qdisc") { "" } else { "root " };
            let words = words.trim_start_matches("qdisc ");
            Some(format!("that is for tc: `tc qdisc replace dev {device} {root}{words}`"))
        }
        "shunt check" if let [one, peer] = rest && is_device(one) && is_device(peer) => {
            Some(format!("did you mean `shunt check {one} --peer {peer}`?"))
        }
        "shunt quality" if wrong == "--lan" => {
            Some("name the ports of the other side, `--wan PORT`: all others are of the LAN side".to_owned())
        }
        "shunt link" | "shunt doctor" | "shunt check" | "shunt status" | "shunt qos set"
            if is_about_devices && has(&IP).is_some() && !rest.iter().any(|word| word.starts_with("--")) =>
        {
            let set = rest.iter().copied().filter(|word| *word != device && !matches!(*word, "set" | "dev"));
            let set: Vec<&str> = set.collect();
            Some(format!("that is for ip: `ip link set {device} {}`", set.join(" ")))
                .filter(|_| !set.is_empty())
        }
        _ => None,
    }
}

/// What to type instead of a command that other programs have.
pub(super) fn instead_of(command: &str) -> Option<&'static str> {
    #[cfg(not(feature = "full"))]
    if ONLY_FULL.contains(&command) {
        return Some(
            "this is the program for small routers; only the full programs of Shunt have this command",
        );
    }
    Some(match command {
        "start" | "run" | "attach" => "`shunt up` starts an instance",
        "stop" | "kill" | "detach" => "`shunt down` stops an instance",
        "show" | "info" | "stats" | "counters" => {
            "`shunt status` has the counters, `shunt flows` the connections"
        }
        "list" | "ls" | "connections" | "conn" | "sessions" => "`shunt flows` lists the connections",
        "monitor" | "log" | "events" | "tail" => {
            "`shunt watch` prints events as they happen, `shunt top` is a live screen"
        }
        "reset" | "clear" => "`shunt flush` sends all connections back to the slow path",
        "add" | "del" | "delete" => "`shunt flow add` and `shunt flow del` manage flows by hand",
        "disable" | "pause" => {
            "`shunt off HOST` turns the fast path off for a host, `shunt down` stops an instance"
        }
        "enable" => "`shunt up` starts an instance, `shunt on HOST` ends a rule of `shunt off`",
        "explain" | "debug" => "`shunt why` explains why a connection is fast or slow",
        "check-config" | "test" => "`shunt up --dry-run` reads the configuration and attaches nothing",
        "version" => "`shunt --version`",
        "hosts" | "clients" | "who" | "traffic" => "`shunt usage` shows what each host sends and receives",
        "config" | "configure" | "set" => {
            "the configuration is /etc/shunt/shunt.toml; `shunt reload` applies it, `shunt up --dry-run` tries it"
        }
        "logs" | "journal" => {
            "`shunt history --events` has what happened; the log is that of the service, or a file that `shunt up -v` names"
        }
        "page" | "web" | "ui" | "dashboard" => {
            "set `page` in /etc/shunt/shunt.toml, then `shunt reload`; `shunt top` is a live screen"
        }
        "savings" | "saved" | "health" | "ports" | "interfaces" | "metrics" => {
            "`shunt status` shows ports, counters, and what the fast path saves and costs"
        }
        "install" | "setup" | "init" => {
            "`shunt probe` says what this machine allows, then `shunt up` starts an instance"
        }
        "update" | "upgrade" => "`shunt restart` starts the installed version and keeps flows fast",
        "ping" | "latency" | "speedtest" | "speed" => {
            "`shunt quality` says whether the router or the line is slow, `shunt bench` measures a router"
        }
        "ip" | "ethtool" | "ifconfig" | "mii-tool" => {
            "`shunt link DEV` shows and changes settings of a device; addresses and routes are set by `ip`"
        }
        "route" | "routes" | "neigh" | "arp" => {
            "Shunt follows the routes and neighbours of Linux: see `ip route` and `ip neigh`"
        }
        "nft" | "iptables" | "firewall" | "ruleset" | "rules" => {
            "Shunt follows the ruleset of Linux: `nft list ruleset` shows it, `shunt probe` what it allows"
        }
        "tc" | "qdisc" | "shaper" => {
            "`shunt qos` has the queues of the external engine; other queues are set by `tc qdisc`"
        }
        "iperf" | "iperf3" | "pktgen" | "trex" => {
            "`shunt gen` sends traffic through a router, `shunt bench` measures one"
        }
        "tcpdump" | "capture" | "sniff" => {
            "`shunt trace` follows packets through this machine, `shunt watch` shows events of flows"
        }
        _ => return None,
    })
}

/// Commands that the program for small routers lacks.
#[cfg(not(feature = "full"))]
const ONLY_FULL: [&str; 17] = [
    "bench",
    "check",
    "compare",
    "completions",
    "doctor",
    "gen",
    "lab",
    "line",
    "link",
    "load",
    "man",
    "model",
    "reg",
    "report",
    "top",
    "trace",
    "verify",
];
