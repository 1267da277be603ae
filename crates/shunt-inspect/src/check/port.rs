//! A port in any network namespace: commands that read and change it, raw sockets, and saved settings to restore.

use super::{Fault, partner::PortCommand};
use nix::sched::{CloneFlags, setns};
use serde::Deserialize;
use shunt_lab::net::{Tap, wait_for};
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Maximum time for a link to come up. Autonegotiation of copper takes up to four seconds.
pub(super) const LINK_TIME: Duration = Duration::from_secs(10);

/// A port and its network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The namespace in `ip netns`; None for the caller's.
    pub netns: Option<String>,
    /// The name of the device.
    pub name: String,
}

/// The part of `ip -s -s link` that the cases use.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    pub(super) address: String,
    pub(super) mtu: u32,
    #[serde(default)]
    pub(super) max_mtu: u32,
    pub(super) flags: Vec<String>,
    #[serde(default)]
    pub(super) link: Option<String>,
    pub(super) stats64: Counters,
}

/// Counters of a device, by direction.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Counters {
    pub(super) rx: Direction,
    pub(super) tx: Direction,
}

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Direction {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) errors: u64,
    #[serde(default)]
    pub(super) dropped: u64,
}

/// The settings that a case may change, as text to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// MAC address, as `ip link` prints it.
    address: String,
    mtu: u32,
    up: bool,
    promisc: bool,
    features: BTreeMap<String, bool>,
    /// Output of `ethtool -a`, `-c` and `-g`, by option; None if the driver does not support it.
    settings: BTreeMap<char, Vec<String>>,
    addresses: String,
    routes: String,
}

impl Shown {
    /// Reads what `ip` printed about a device.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let all: Vec<Self> =
            serde_json::from_str(text).map_err(|error| format!("unexpected output of `ip link`: {error}"))?;
        all.into_iter().next().ok_or_else(|| format!("{name} is not there"))
    }

    /// Whether the device is up and has a carrier.
    pub(super) fn has_link(&self) -> bool {
        ["LOWER_UP", "UP"].iter().all(|flag| self.flags.iter().any(|shown| shown == flag))
    }
}

impl Port {
    /// Runs a program in the port's namespace.
    pub(super) fn run(&self, line: &str) -> Result<String, String> {
        let mut words = line.split_whitespace();
        let mut command = match &self.netns {
            Some(netns) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", netns]);
                command
            }
            None => Command::new(words.next().unwrap_or_default()),
        };
        // Ctrl-C ends the whole process group of the terminal: a child in it would fail, and the port would be blamed.
        let output = command.args(words).stdin(Stdio::null()).process_group(0).output();
        let output = output.map_err(|error| format!("cannot run `{line}`: {error}"))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("`{line}`: {}", complaint.lines().collect::<Vec<_>>().join("; "))),
        }
    }

    /// The device as `ip` shows it.
    pub(super) fn shown(&self) -> Result<Shown, String> {
        Shown::parse(&self.name, &self.run(&PortCommand::Show.line(&self.name)?)?)
    }

    /// A raw socket on the port.
    pub(super) fn tap(&self) -> Result<Tap, Fault> {
        let open = || -> io::Result<Tap> {
            if let Some(netns) = &self.netns {
                setns(File::open(format!("/run/netns/{netns}"))?, CloneFlags::CLONE_NEWNET)?;
            }
            Tap::here(&self.name)
        };
        // A network namespace belongs to a thread, so a thread of its own enters it.
        let opened = thread::scope(|scope| scope.spawn(open).join());
        let opened = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        opened.map_err(|error| Fault::Broken(format!("cannot open a raw socket on {self}: {error}")))
    }

    /// Waits until the port has a carrier.
    pub(super) fn wait_for_link(&self) -> Result<(), String> {
        wait_for(LINK_TIME, || self.shown().ok()?.has_link().then_some(()))
            .ok_or_else(|| format!("{self} has no link after {} s", LINK_TIME.as_secs()))
    }

    /// The numbers that an ethtool option such as `-g` prints, by section and name; the error is ethtool's.
    pub(super) fn settings(&self, option: char) -> Result<Vec<(String, String)>, String> {
        let text = self.run(&format!("ethtool -{option} {}", self.name))?;
        Ok(text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect())
    }

    pub(super) fn state(&self) -> Result<State, String> {
        let shown = self.shown()?;
        let features = features(&self.run(&format!("ethtool -k {}", self.name)).unwrap_or_default());
        let settings = ['a', 'c', 'g'].into_iter().filter_map(|option| {
            let settings = only_settings(self.settings(option).ok()?);
            Some((option, settings.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()))
        });
        let routes = ["-4", "-6"].map(|family| {
            self.run(&format!("ip {family} route show table all dev {}", self.name)).unwrap_or_default()
        });
        let addresses = self.run(&format!("ip -oneline address show dev {} scope global", self.name))?;
        Ok(State {
            address: shown.address,
            mtu: shown.mtu,
            up: shown.flags.iter().any(|flag| flag == "UP"),
            promisc: shown.flags.iter().any(|flag| flag == "PROMISC"),
            features: features
                .into_iter()
                .filter(|(_, (_, fixed))| !fixed)
                .map(|(name, (on, _))| (name, on))
                .collect(),
            settings: settings.collect(),
            addresses: addresses.lines().map(|line| line.split("\\ ").next().unwrap_or(line)).collect(),
            routes: lasting_routes(&routes.concat()),
        })
    }

    /// Restores the settings in `before`. Settings that still differ are the error.
    pub(super) fn restore(&self, before: &State) -> Result<(), String> {
        let now = self.state()?;
        if now == *before {
            return Ok(());
        }
        let name = &self.name;
        let mut complaints = Vec::new();
        let mut set = |line: String| complaints.extend(self.run(&line).err());
        if now.address != before.address {
            set(format!("ip link set {name} address {}", before.address));
        }
        if now.mtu != before.mtu {
            set(format!("ip link set {name} mtu {}", before.mtu));
        }
        if now.promisc != before.promisc {
            set(format!("ip link set {name} promisc {}", switch(before.promisc)));
        }
        // Some names stand for several features: setting one changes others, which the second turn puts back.
        for _ in 0..2 {
            let now = self.state()?.features;
            for (feature, on) in before.features.iter().filter(|(name, on)| now.get(*name) != Some(*on)) {
                set(format!("ethtool -K {name} {feature} {}", switch(*on)));
            }
        }
        if now.up != before.up {
            set(format!("ip link set {name} {}", if before.up { "up" } else { "down" }));
        }
        if before.up && now.up != before.up {
            complaints.extend(self.wait_for_link().err());
        }
        let after = self.state()?;
        if after == *before {
            return Ok(());
        }
        Err(format!("{self} was not restored: {} {}", difference(before, &after), complaints.join("; ")))
    }
}

impl State {
    /// Whether it has an address that Linux removes when the port goes down, or that has routes.
    pub(super) fn has_addresses(&self) -> bool {
        !self.addresses.trim().is_empty()
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.netns {
            Some(netns) => write!(f, "{netns}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// `on` or `off`.
pub(super) fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The lines of ethtool that are something to restore. What both ends negotiated comes and goes with the link; some
/// drivers show it as if RX and TX had been set.
fn only_settings(mut lines: Vec<(String, String)>) -> Vec<(String, String)> {
    let negotiates = lines.iter().any(|(name, value)| name == "Autonegotiate" && value == "on");
    let is_result = |name: &str| name.ends_with(" negotiated") || negotiates && matches!(name, "RX" | "TX");
    lines.retain(|(name, _)| !is_result(name));
    lines
}

/// Features by name: whether each is on, and whether it is fixed.
pub(super) fn features(text: &str) -> BTreeMap<String, (bool, bool)> {
    let lines = text.lines().skip(1).filter_map(|line| line.trim().split_once(": "));
    lines
        .map(|(name, value)| (name.to_owned(), (value.starts_with("on"), value.contains("[fixed]"))))
        .collect()
}

fn difference(before: &State, after: &State) -> String {
    let (before, after) = (format!("{before:#?}"), format!("{after:#?}"));
    let lines = before.lines().zip(after.lines()).filter(|(a, b)| a != b);
    lines.take(3).map(|(a, b)| format!("{} became {};", a.trim(), b.trim())).collect::<Vec<_>>().join(" ")
}

/// Routes that a check must leave as they were. The kernel itself adds and removes those of its own, with the link, and
/// those of router advertisements, whose time runs out.
fn lasting_routes(routes: &str) -> String {
    let of_kernel = |line: &&str| line.contains("proto kernel") || line.contains("proto ra ");
    routes.lines().filter(|line| !of_kernel(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_the_kernel_keeps_by_itself_are_not_compared() {
        let routes = "default via 10.0.2.2 \n10.0.2.0/24 proto kernel scope link src 10.0.2.15 \n\
            default via fe80::2 proto ra metric 1024 expires 1626sec hoplimit 64 pref medium\n";
        assert_eq!(lasting_routes(routes), "default via 10.0.2.2 ");
    }

    #[test]
    fn a_program_is_in_a_process_group_of_its_own() {
        let port = Port { netns: None, name: "lo".to_owned() };
        let stat = port.run("cat /proc/self/stat").unwrap();
        let words: Vec<&str> = stat.split_whitespace().collect();
        assert_eq!(words[4], words[0], "pgrp is not pid in {stat}");
    }

    #[test]
    fn what_was_negotiated_is_not_restored() {
        let names = |autonegotiate: &str| {
            let lines = [("Autonegotiate", autonegotiate), ("RX", "off"), ("RX negotiated", "on")];
            let lines = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            only_settings(lines).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names("on"), ["Autonegotiate"]);
        assert_eq!(names("off"), ["Autonegotiate", "RX"]);
    }

    #[test]
    fn features_are_read_with_what_is_fixed() {
        let text = "Features for p0:\nrx-checksumming: on\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\ttx-checksum-ip-generic: on\n";
        let features = features(text);
        assert_eq!(features["tx-checksum-ipv4"], (false, true));
        assert_eq!(features["tx-checksum-ip-generic"], (true, false));
    }
}
