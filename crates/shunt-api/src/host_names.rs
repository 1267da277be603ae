//! Names of hosts, from DHCP leases and /etc/hosts. Nothing is asked over the network.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// Leases of dnsmasq: on Debian, OpenWrt and Fedora.
const DNSMASQ: [&str; 3] =
    ["/var/lib/misc/dnsmasq.leases", "/tmp/dhcp.leases", "/var/lib/dnsmasq/dnsmasq.leases"];
/// Files in the format of /etc/hosts. odhcpd of OpenWrt writes its leases so. The last file wins.
const HOSTS: [&str; 2] = ["/tmp/hosts/odhcpd", "/etc/hosts"];
/// Leases of ISC dhcpd: on Debian and Fedora.
const DHCPD: [&str; 2] = ["/var/lib/dhcp/dhcpd.leases", "/var/lib/dhcpd/dhcpd.leases"];
/// Leases of Kea.
const KEA: [&str; 2] = ["/var/lib/kea/kea-leases4.csv", "/var/lib/kea/kea-leases6.csv"];

/// The longest name of a host, as in DNS.
const NAME_MAX: usize = 253;
/// The most names that a message lists.
const NAMED_MAX: usize = 4;

/// Names by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    by_address: BTreeMap<IpAddr, String>,
}

impl HostNames {
    /// The largest part of a file that `read` should return.
    pub const FILE_BYTES_MAX: u64 = 4 << 20;

    /// The names in the files of a machine. `read` returns the text of a file, or an empty one if it cannot be read.
    pub fn read(read: impl Fn(&str) -> String) -> Self {
        let mut names = Self::default();
        DHCPD.iter().for_each(|path| names.add_dhcpd(&read(path)));
        KEA.iter().for_each(|path| names.add_kea(&read(path)));
        DNSMASQ.iter().for_each(|path| names.add_dnsmasq(&read(path)));
        HOSTS.iter().for_each(|path| names.add_hosts(&read(path)));
        names
    }

    /// The name of this address, if any.
    pub fn name(&self, addr: IpAddr) -> Option<&str> {
        self.by_address.get(&addr).map(String::as_str)
    }

    /// Adds the name of an address that has none.
    pub fn add_name(&mut self, address: IpAddr, name: &str) {
        self.by_address.entry(address).or_insert_with(|| name.to_owned());
    }

    /// All names of hosts, by address. A name that several addresses have comes as often. /etc/hosts also names this
    /// machine and groups.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_address.iter().filter(|(address, _)| is_of_host(**address)).map(|(_, name)| name.as_str())
    }

    /// The addresses with this name, sorted. Capitals do not matter.
    pub fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let has_name = |named: &str| named.eq_ignore_ascii_case(name);
        let mut addresses: Vec<IpAddr> =
            self.by_address.iter().filter(|(_, named)| has_name(named)).map(|(addr, _)| *addr).collect();
        addresses.sort_unstable();
        addresses
    }

    /// Lines such as `192.0.2.1 name alias`. The first name counts.
    fn add_hosts(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            self.add(words.next(), words.next());
        }
    }

    /// Lines such as `EXPIRY MAC ADDRESS NAME CLIENT-ID`, with `*` for a host without a name.
    fn add_dnsmasq(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace().skip(2);
            self.add(words.next(), words.next());
        }
    }

    /// Blocks such as `lease ADDRESS { client-hostname "NAME"; }`.
    fn add_dhcpd(&mut self, text: &str) {
        let mut address = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["lease", leased, ..] => address = Some(*leased),
                ["client-hostname", name, ..] => self.add(address, Some(name.trim_matches(['"', ';']))),
                _ => {}
            }
        }
    }

    /// Comma-separated values with a line of titles. A name may end with the point of the root.
    fn add_kea(&mut self, text: &str) {
        let mut lines = text.lines();
        let titles: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let column = |title: &str| titles.iter().position(|found| *found == title);
        let Some((address, name)) = column("address").zip(column("hostname")) else { return };
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            self.add(fields.get(address).copied(), fields.get(name).map(|name| name.trim_end_matches('.')));
        }
    }

    /// Adds a name unless it is empty, `*`, or has characters that no name of a host has: clients of DHCP choose their
    /// names, and an escape sequence would reach the terminal.
    fn add(&mut self, address: Option<&str>, name: Option<&str>) {
        let Some((address, name)) = address.and_then(|text| text.parse().ok()).zip(name) else { return };
        if is_name(name) {
            self.by_address.insert(address, name.to_owned());
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // A name that is an address would stand for the host that has this address.
    let is_address = name.parse::<IpAddr>().is_ok();
    !name.is_empty() && !is_address && name.len() <= NAME_MAX && name.chars().all(is_plain)
}

/// A name that a host can have: no other text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl TryFrom<String> for HostName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if is_name(&name) { Ok(Self(name)) } else { Err("not the name of a host".to_owned()) }
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The names of the two ends of connections that are named by addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EndNames {
    /// The name of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<HostName>,
    /// The name of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<HostName>,
}

impl EndNames {
    /// Whether neither end has a name.
    pub const fn are_none(&self) -> bool {
        self.src.is_none() && self.dst.is_none()
    }
}

/// Says what a word is not that was meant as a host: behind "is not", and with some of the `known` names.
#[must_use]
pub fn not_a_host<'n>(known: impl IntoIterator<Item = &'n str>) -> String {
    let known: BTreeSet<&str> = known.into_iter().collect();
    let named: Vec<&str> = known.iter().copied().take(NAMED_MAX).collect();
    let known = match known.len() - named.len() {
        _ if named.is_empty() => String::new(),
        0 => format!("known: {}; ", named.join(", ")),
        more => format!("known: {} and {more} more; ", named.join(", ")),
    };
    format!(
        "a host that this machine knows ({known}`shunt usage` lists them), nor an address such as 192.0.2.1 or 2001:db8::1"
    )
}

fn is_of_host(address: IpAddr) -> bool {
    // Debian's `ip6-localnet`.
    let is_local_net =
        matches!(address, IpAddr::V6(address) if address.segments() == [0xfe00, 0, 0, 0, 0, 0, 0, 0]);
    !(address.is_loopback() || address.is_multicast() || address.is_unspecified() || is_local_net)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(hosts: &str, dnsmasq: &str) -> HostNames {
        HostNames::read(|path| match path {
            "/etc/hosts" => hosts.to_owned(),
            "/tmp/dhcp.leases" => dnsmasq.to_owned(),
            _ => String::new(),
        })
    }

    fn names_of(names: &HostNames) -> Vec<String> {
        names.by_address.iter().map(|(address, name)| format!("{address} {name}")).collect()
    }

    #[test]
    fn each_format_of_leases_is_read() {
        let mut names = HostNames::default();
        names.add_dnsmasq(
            "1700000000 02:00:00:00:00:01 192.168.1.2 laptop 01:02:00:00:00:00:01\n\
             1700000000 02:00:00:00:00:02 192.168.1.3 * *\n\
             duid 00:01:00:01\n\
             1700000000 123 2001:db8::2 laptop6 00:01\n",
        );
        names.add_dhcpd(
            "lease 192.168.1.4 {\n  starts 4 2023/11/14;\n  client-hostname \"printer\";\n}\nlease 192.168.1.5 {\n}\n",
        );
        names.add_kea(
            "address,hwaddr,hostname,state\n192.168.1.6,02:00:00:00:00:06,phone.lan.,0\n192.168.1.7,,,0\n",
        );
        names.add_hosts("127.0.0.1 localhost\n# 192.168.1.8 no\n192.168.1.9\tnas nas.lan # the large one\n");
        assert_eq!(
            names_of(&names),
            [
                "127.0.0.1 localhost",
                "192.168.1.2 laptop",
                "192.168.1.4 printer",
                "192.168.1.6 phone.lan",
                "192.168.1.9 nas",
                "2001:db8::2 laptop6"
            ]
        );
    }

    #[test]
    fn the_name_of_etc_hosts_wins() {
        let names = read_from("192.0.2.1 chosen\n", "1 2 192.0.2.1 announced *\n");
        assert_eq!(names.name("192.0.2.1".parse().unwrap()), Some("chosen"));
    }

    #[test]
    fn only_a_name_that_a_host_can_have_is_one() {
        let parsed = |text: &str| serde_json::from_str::<HostName>(&format!("{text:?}"));
        assert_eq!(parsed("laptop.lan").unwrap().to_string(), "laptop.lan");
        let long = "x".repeat(NAME_MAX + 1);
        for wrong in ["", "two words", "192.0.2.1", "a\u{1b}[2J", long.as_str()] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        let names = EndNames { src: parsed("laptop").ok(), dst: None };
        let kept = serde_json::to_string(&names).unwrap();
        assert_eq!((kept.as_str(), names.are_none()), (r#"{"src":"laptop"}"#, false));
    }

    #[test]
    fn a_name_with_an_escape_sequence_is_not_taken() {
        let names =
            read_from("192.0.2.1 \x1b[2J\n192.0.2.2 b\u{e9}b\u{e9}\n", "1 2 192.0.2.3 a;b *\nx\n\n1 2\n");
        assert_eq!(names_of(&names), Vec::<String>::new());
        let long = format!("192.0.2.1 {}\n", "a".repeat(254));
        assert_eq!(names_of(&read_from(&long, "")), Vec::<String>::new());
    }

    #[test]
    fn a_few_names_of_hosts_are_listed_and_those_of_this_machine_are_not() {
        let hosts =
            "127.0.0.1 localhost\nff02::1 ip6-allnodes\nfe00:: ip6-localnet\n192.0.2.1 tv\n192.0.2.2 tv\n";
        let names = HostNames::read(|path| if path == "/etc/hosts" { hosts } else { "" }.to_owned());
        let wanted = "a host that this machine knows (known: tv; `shunt usage` lists them), nor an address such as \
                      192.0.2.1 or 2001:db8::1";
        assert_eq!(not_a_host(names.names()), wanted);
        assert!(not_a_host(["e", "d", "c", "b", "a", "f"]).contains("(known: a, b, c, d and 2 more; `shunt"));
        assert!(not_a_host([]).contains("knows (`shunt usage` lists them), nor"));
    }
}
