//! Devices of this machine that are moved into a namespace of our own for a while.
//!
//! Linux sends nothing over the wire between two devices of one namespace, since both addresses are its own. So each
//! device is moved into a namespace with its addresses, and is moved back with all settings that the move has removed.

use super::{NetNs, netns::ip_batch, wait_for};
use serde::Deserialize;
use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    time::Duration,
};

/// Time limit for a link to come up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Directories of per-device sysctls. A moved device starts with the defaults.
const SETTINGS: [&str; 4] = ["ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"];
/// Routes of these types are made by the kernel for each address.
const MADE_BY_THE_KERNEL: [&str; 5] = ["local", "broadcast", "multicast", "anycast", "ff00::/8"];

/// A device of the caller's namespace that is in a namespace of its own until it is dropped.
#[derive(Debug)]
pub struct Borrowed {
    ns: NetNs,
    device: String,
    was: Was,
}

/// The settings that a move removes from a device.
#[derive(Debug)]
struct Was {
    up: bool,
    /// The readable files below /proc/sys/net.
    settings: Vec<(PathBuf, String)>,
    addresses: Vec<Address>,
    /// Routes in the syntax of `ip route`, those of IPv4 first.
    routes: [Vec<String>; 2],
}

/// The JSON of `ip -json address show`.
#[derive(Debug, Deserialize)]
struct Shown {
    ifname: String,
    flags: Vec<String>,
    master: Option<String>,
    /// The device that this one is on top of, or connected to.
    link: Option<String>,
    addr_info: Vec<Address>,
}

#[derive(Debug, Clone, Deserialize)]
struct Address {
    local: Option<IpAddr>,
    /// The peer's address of a point-to-point link.
    address: Option<IpAddr>,
    prefixlen: u8,
    scope: String,
    broadcast: Option<IpAddr>,
    label: Option<String>,
    #[serde(default)]
    noprefixroute: bool,
    valid_life_time: u32,
    preferred_life_time: u32,
}

impl Borrowed {
    /// Moves a device with its addresses into a namespace `shunt-<label>-...` and waits for its link. In the namespace
    /// it has the routes of its subnets, and default routes by these gateways.
    ///
    /// # Errors
    /// Fails if no device has this name, if the device is part of another one or has others on top, or if it has no
    /// link. The device is then back in its place, unchanged.
    pub fn try_new(label: &str, device: &str, gateways: &[IpAddr]) -> io::Result<Self> {
        let was = Was::read(device)?;
        let ns = NetNs::try_new(label)?;
        ip_output(&["link", "set", device, "netns", ns.name()])?;
        let borrowed = Self { ns, device: device.to_owned(), was };
        let mut lines: Vec<String> =
            borrowed.was.addresses.iter().map(|address| address.line(device)).collect();
        lines.push(format!("link set {device} up"));
        lines.extend(gateways.iter().map(|gateway| format!("route add default via {gateway} dev {device}")));
        ip_batch(&borrowed.ns, &lines)?;
        let carrier = format!("cat /sys/class/net/{device}/carrier");
        let runs = || borrowed.ns.try_run(&carrier).is_ok_and(|state| state.trim() == "1").then_some(());
        wait_for(PATIENCE, runs).ok_or_else(|| {
            io::Error::other(format!("{device} has no link after {} s", PATIENCE.as_secs()))
        })?;
        Ok(borrowed)
    }

    /// The namespace that the device is in.
    pub fn ns(&self) -> &NetNs {
        &self.ns
    }

    /// The device's name, which the move does not change.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The device's first global address of this IP version.
    pub fn address(&self, v6: bool) -> Option<IpAddr> {
        let global = self.was.addresses.iter().filter(|address| address.scope == "global");
        global.filter_map(|address| address.local).find(|address| address.is_ipv6() == v6)
    }

    fn give_back(&self) -> io::Result<()> {
        let Self { ns, device, was } = self;
        // Back to the namespace of this process, from which the device was taken.
        ip_output(&["-n", ns.name(), "link", "set", device, "netns", &process::id().to_string()])?;
        let mut failure = Ok(());
        // Set these before the link is up: they say what the device accepts from others.
        let is_other =
            |(path, value): &&(PathBuf, String)| fs::read_to_string(path).is_ok_and(|now| now != *value);
        for (path, value) in was.settings.iter().filter(is_other) {
            if let Err(why) = fs::write(path, value) {
                failure = Err(io::Error::other(format!("{}: {why}", path.display())));
            }
        }
        let mut put_back = |words: &str| {
            if let Err(why) = ip_output(&words.split_whitespace().collect::<Vec<_>>()) {
                failure = Err(why);
            }
        };
        if was.up {
            put_back(&format!("link set {device} up"));
        }
        was.addresses.iter().for_each(|address| put_back(&address.line(device)));
        for (family, routes) in ["-4", "-6"].iter().zip(&was.routes) {
            routes.iter().for_each(|route| put_back(&format!("{family} route replace {route} dev {device}")));
        }
        failure
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Err(why) = self.give_back() {
            let _ = writeln!(io::stderr(), "{} could not be restored completely: {why}", self.device);
        }
    }
}

impl Was {
    fn read(device: &str) -> io::Result<Self> {
        let all: Vec<Shown> = serde_json::from_str(&ip_output(&["-json", "address", "show"])?)?;
        let refused = |why: String| Err(io::Error::other(format!("{device} {why}")));
        let Some(shown) = all.iter().find(|shown| shown.ifname == device) else {
            return refused("is not there".to_owned());
        };
        if let Some(master) = &shown.master {
            return refused(format!("is part of {master}: take it out with `ip link set {device} nomaster`"));
        }
        // The two ends of a veth have each other as `link`.
        let is_upper = |other: &&Shown| {
            other.link.as_deref() == Some(device) && shown.link.as_ref() != Some(&other.ifname)
        };
        if let Some(upper) = all.iter().find(is_upper) {
            return refused(format!("has {} on top, which cannot be moved with it", upper.ifname));
        }
        // Link-local IPv6 addresses come back with the link.
        let addresses = shown.addr_info.iter().filter(|address| address.scope != "link");
        Ok(Self {
            up: shown.flags.iter().any(|flag| flag == "UP"),
            settings: settings(device),
            addresses: addresses.cloned().collect(),
            routes: [routes("-4", device)?, routes("-6", device)?],
        })
    }
}

impl Address {
    fn line(&self, device: &str) -> String {
        let word = |name: &str, value: Option<String>| {
            value.map_or(String::new(), |value| format!(" {name} {value}"))
        };
        let Self { prefixlen, scope, valid_life_time: valid, preferred_life_time: preferred, .. } = self;
        let own = self.local.map_or(String::new(), |local| local.to_string());
        let (own, peer) = match self.address {
            Some(peer) => (own, format!(" peer {peer}/{prefixlen}")),
            None => (format!("{own}/{prefixlen}"), String::new()),
        };
        let life =
            |seconds: &u32| if *seconds == u32::MAX { "forever".to_owned() } else { seconds.to_string() };
        let broadcast = word("broadcast", self.broadcast.map(|address| address.to_string()));
        let label = word("label", self.label.clone());
        let route = if self.noprefixroute { " noprefixroute" } else { "" };
        let nodad = if self.local.is_some_and(|local| local.is_ipv6()) { " nodad" } else { "" };
        format!(
            "address replace {own}{peer} dev {device} scope {scope}{broadcast}{label} valid_lft {} preferred_lft {}{route}{nodad}",
            life(valid),
            life(preferred)
        )
    }
}

fn settings(device: &str) -> Vec<(PathBuf, String)> {
    let trees = SETTINGS.iter().map(|of| Path::new("/proc/sys/net").join(of).join(device));
    let files = trees.filter_map(|tree| fs::read_dir(tree).ok()).flatten();
    files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)))
        .collect()
}

/// Routes by the device that the kernel did not make itself.
fn routes(family: &str, device: &str) -> io::Result<Vec<String>> {
    let text = ip_output(&[family, "route", "show", "table", "all", "dev", device])?;
    Ok(text.lines().filter(|line| !is_the_kernels(line)).map(settable).collect())
}

fn is_the_kernels(route: &str) -> bool {
    route.contains("proto kernel") || MADE_BY_THE_KERNEL.iter().any(|kind| route.starts_with(kind))
}

/// The route without words that show its state.
fn settable(route: &str) -> String {
    let mut words = route.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "linkdown" | "dead" => {}
            "expires" => drop(words.next()),
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

/// The output of an `ip` command in the namespace of this process.
fn ip_output(words: &[&str]) -> io::Result<String> {
    let output = Command::new("ip").args(words).stdin(Stdio::null()).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(format!("`ip {}`: {}", words.join(" "), complaint.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_restored_as_it_was_set() {
        let route = "10.9.0.0/16 via 192.0.2.9 table 100 proto static metric 50 linkdown ";
        assert!(!is_the_kernels(route));
        assert_eq!(settable(route), "10.9.0.0/16 via 192.0.2.9 table 100 proto static metric 50");
        assert_eq!(
            settable("default via fe80::1 proto ra expires 1799sec pref medium"),
            "default via fe80::1 proto ra pref medium"
        );
        for route in
            ["192.0.2.0/24 proto kernel scope link src 192.0.2.2", "local 192.0.2.2 table local scope host"]
        {
            assert!(is_the_kernels(route), "{route}");
        }
    }

    #[test]
    fn an_address_is_restored_with_all_its_attributes() {
        let line = |json: &str| serde_json::from_str::<Address>(json).unwrap().line("eth1");
        let plain = r#"{"family":"inet","local":"192.0.2.2","prefixlen":24,"broadcast":"192.0.2.255","scope":"global",
            "dynamic":true,"label":"eth1","valid_life_time":3000,"preferred_life_time":2000}"#;
        assert_eq!(
            line(plain),
            "address replace 192.0.2.2/24 dev eth1 scope global broadcast 192.0.2.255 label eth1 valid_lft 3000 preferred_lft 2000"
        );
        let six = r#"{"family":"inet6","local":"2001:db8::2","prefixlen":64,"scope":"global","noprefixroute":true,
            "valid_life_time":4294967295,"preferred_life_time":4294967295}"#;
        assert_eq!(
            line(six),
            "address replace 2001:db8::2/64 dev eth1 scope global valid_lft forever preferred_lft forever noprefixroute nodad"
        );
        let peer = r#"{"family":"inet","local":"192.0.2.2","address":"192.0.2.3","prefixlen":32,"scope":"global",
            "valid_life_time":4294967295,"preferred_life_time":4294967295}"#;
        assert!(
            line(peer).starts_with("address replace 192.0.2.2 peer 192.0.2.3/32 dev eth1"),
            "{}",
            line(peer)
        );
    }
}
