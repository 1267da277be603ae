//! What a word of a command line may mean.

use std::path::Path;

/// What a word may be.
pub(super) struct Meaning {
    /// The options that take such a word, the likeliest first; a command has some of them. Also the names of arguments
    /// without an option.
    pub(super) options: &'static [&'static str],
    /// What other programs call these options.
    pub(super) others: &'static [&'static str],
    pub(super) is: fn(&str) -> bool,
}

/// In the order in which a word is tried.
pub(super) const MEANINGS: [Meaning; 16] = [
    Meaning {
        options: &["for", "time", "seconds", "interval"],
        others: &[
            "since", "until", "last", "during", "duration", "period", "range", "timeout", "t", "d", "delay",
        ],
        is: |word| word.starts_with(|c: char| c.is_ascii_digit()) && humantime::parse_duration(word).is_ok(),
    },
    Meaning {
        options: &["engine"],
        others: &["mode", "driver"],
        is: |word| matches!(word, "auto" | "tc" | "xdp" | "external"),
    },
    Meaning {
        options: &["proto"],
        others: &["protocol", "l4proto"],
        is: |word| word.eq_ignore_ascii_case("tcp") || word.eq_ignore_ascii_case("udp"),
    },
    Meaning { options: &["by"], others: &["group", "group-by", "per"], is: |word| !word.starts_with('-') },
    Meaning {
        options: &["port", "dev", "ports"],
        others: &["device", "interface", "iface", "intf", "if", "nic", "i", "p"],
        is: is_device,
    },
    Meaning { options: &["tx"], others: &["sender", "source-port"], is: is_device },
    Meaning { options: &["rx"], others: &["receiver"], is: is_device },
    Meaning { options: &["in-port"], others: &["in", "iif", "iifname"], is: is_device },
    Meaning { options: &["out-port"], others: &["out", "oif", "oifname"], is: is_device },
    Meaning {
        options: &["host", "src"],
        others: &["source", "ip", "addr", "address", "client", "mac", "name", "from", "orig-src"],
        is: |word| {
            !is_device(word) && !is_file(word) && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        },
    },
    Meaning {
        options: &["output", "config", "keep", "file"],
        others: &["out", "o", "f", "save", "write", "conf", "configuration", "c"],
        is: is_file,
    },
    Meaning {
        options: &["limit", "count", "rows"],
        others: &["n", "num", "top", "max", "lines", "head"],
        is: |word| word.parse::<u32>().is_ok_and(|number| number <= 100),
    },
    Meaning {
        options: &["dport"],
        others: &["p", "service", "port"],
        is: |word| word.parse::<u16>().is_ok(),
    },
    Meaning {
        options: &["mtu"],
        others: &["packet"],
        is: |word| word.parse::<u32>().is_ok_and(|bytes| (576..=1500).contains(&bytes) || bytes == 9000),
    },
    Meaning {
        options: &["frame", "size"],
        others: &["frame-size", "framesize", "length", "len", "bytes"],
        is: |word| word.parse::<u32>().is_ok_and(|bytes| (64..=9018).contains(&bytes)),
    },
    Meaning {
        options: &["speed"],
        others: &["bandwidth", "bps"],
        is: |word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains(['k', 'M', 'G']),
    },
];

/// Words that change nothing: what they ask for is what the command does anyway, or cannot do.
pub(super) const NEEDLESS: [&str; 23] = [
    "set",
    "f",
    "force",
    "y",
    "yes",
    "now",
    "please",
    "a",
    "all",
    "daemon",
    "background",
    "bg",
    "l",
    "L",
    "list",
    "dump",
    "s",
    "S",
    "stats",
    "show",
    "o",
    "c",
    "color",
];

/// Names of subcommands that mean the same.
pub(super) const SAME: [&[&str]; 4] = [
    &["del", "delete", "remove", "rm", "clear", "reset", "unset"],
    &["list", "ls", "show", "cases", "get", "dump", "print"],
    &["write", "set", "change", "put"],
    &["load", "import", "apply"],
];

/// Names of periods, as a time.
pub(super) fn period(name: &str) -> Option<&'static str> {
    Some(match name {
        "hour" | "hourly" => "1h",
        "day" | "today" | "daily" => "1d",
        "yesterday" => "2d",
        "week" | "weekly" => "7d",
        "month" | "monthly" => "30d",
        _ => return None,
    })
}

/// Names of devices as they are usual, besides those of this machine.
const DEVICES: [&str; 18] = [
    "lan", "wan", "eth", "en", "wl", "br", "ppp", "wg", "tun", "tap", "bond", "veth", "vlan", "lte", "wwan",
    "sit", "gre", "r",
];

pub(in crate::cli) fn is_device(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_usual = DEVICES
        .iter()
        .any(|kind| word.strip_prefix(kind).is_some_and(|rest| rest.contains(|c: char| c.is_ascii_digit())));
    word.len() < 16
        && word.chars().all(is_plain)
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && (is_usual && !is_file(word) || Path::new("/sys/class/net").join(word).exists())
}

fn is_file(word: &str) -> bool {
    let ends = [".txt", ".toml", ".json", ".jsonl", ".conf", ".pcap", ".log", ".html", ".csv", ".xml"];
    ends.iter().any(|end| word.ends_with(end)) || word.starts_with(['/', '.', '~'])
}

/// Whether this names a time in the past or a period: of an option, with its hyphens.
pub(in crate::cli) fn is_time_option(option: &str) -> bool {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
    let [time, ..] = &MEANINGS;
    name.len() > 1 && (time.options.contains(&name) || time.others.contains(&name) || period(name).is_some())
}

/// Whether this may be the name of an option.
pub(super) fn word_like(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
}
