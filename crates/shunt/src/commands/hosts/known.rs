//! The addresses of a host, from the names of this machine and from what the daemon counted for hosts.

use super::names_of_this_machine;
use crate::client::control::Client;
use shunt_api::{HostNames, HostUsage, Usage, UsageQuery};
use shunt_wire::Mac;
use std::{cmp::Reverse, collections::BTreeSet, net::IpAddr};

/// The longest time for which the daemon keeps what hosts used.
const KEPT_S: u64 = 31 * 86_400;

/// All that is known of the hosts of the local side.
#[derive(Debug, Default)]
pub(in crate::commands) struct KnownHosts {
    names: HostNames,
    counted: Vec<HostUsage>,
}

impl KnownHosts {
    /// Asks the daemon, too. One that does not count for hosts knows none.
    pub(in crate::commands) async fn read(client: &Client) -> Self {
        let query = UsageQuery { last_s: Some(KEPT_S), ..UsageQuery::default() };
        let usage: Usage = client.get(&format!("/v1/usage?{}", query.query())).await.unwrap_or_default();
        Self { names: names_of_this_machine(), counted: usage.hosts }
    }

    /// The addresses of the host with this name or MAC, sorted. Capitals do not matter.
    pub(in crate::commands) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        if let Ok(mac) = name.parse::<Mac>() {
            let hosts = self.counted.iter().filter(|host| host.mac == Some(mac));
            let name = hosts.max_by_key(|host| host.seen);
            return name.map_or_else(Vec::new, |host| self.addresses_of(host));
        }
        let has_name = |named: &str| named.eq_ignore_ascii_case(name);
        let hosts = self.counted.iter().filter(|host| host.name.as_deref().is_some_and(has_name));
        // An address that another host has got since then is not this host's.
        let is_still = |address: &IpAddr| self.names.name(*address).is_none_or(has_name);
        let counted = hosts.flat_map(|host| host.addresses.iter().copied()).filter(is_still);
        let addresses: BTreeSet<IpAddr> = self.names.addresses(name).into_iter().chain(counted).collect();
        addresses.into_iter().collect()
    }

    /// The addresses of a host, by its name if it has one.
    fn addresses_of(&self, host: &HostUsage) -> Vec<IpAddr> {
        match &host.name {
            Some(name) => self.addresses(name),
            None => host.addresses.iter().copied().collect::<BTreeSet<IpAddr>>().into_iter().collect(),
        }
    }

    /// The names of this machine, and those of addresses that were counted for a host with a name: the IPv6 addresses
    /// of a host that has a lease for IPv4 only.
    pub(in crate::commands) fn names(&self) -> HostNames {
        let mut names = self.names.clone();
        let mut counted: Vec<&HostUsage> = self.counted.iter().collect();
        counted.sort_by_key(|host| Reverse(host.seen));
        for host in counted {
            let Some(name) = &host.name else { continue };
            host.addresses.iter().for_each(|address| names.add_name(*address, name));
        }
        names
    }

    /// The name of the host with this address, and its other addresses. A host without a name has none here.
    pub(in crate::commands) fn host_of(&self, address: IpAddr) -> Option<(&str, Vec<IpAddr>)> {
        let counted = || {
            let hosts = self.counted.iter().filter(|host| host.addresses.contains(&address));
            hosts.max_by_key(|host| host.seen)?.name.as_deref()
        };
        let name = self.names.name(address).or_else(counted)?;
        Some((name, self.addresses(name).into_iter().filter(|other| *other != address).collect()))
    }

    #[cfg(test)]
    pub(in crate::commands) fn sample() -> Self {
        let addresses = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        let host = |name: &str, mac: Option<&str>, list: &[&str]| HostUsage {
            name: Some(name.to_owned()),
            mac: mac.map(|mac| mac.parse().unwrap()),
            addresses: addresses(list),
            seen: 1,
            count: shunt_api::UsageCount::default(),
            steps: Vec::new(),
        };
        let hosts = "192.168.1.3 tv\n192.168.1.4 laptop\n192.168.1.5 printer\n";
        let read = |path: &str| if path == "/etc/hosts" { hosts } else { "" }.to_owned();
        let counted = vec![
            host("tv", Some("02:00:00:00:00:03"), &["fd00:1::3", "192.168.1.3", "192.168.1.4"]),
            host("laptop", None, &["192.168.1.4"]),
        ];
        Self { names: HostNames::read(read), counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_addresses_of_its_lease_and_those_that_were_counted_under_its_name() {
        let known = KnownHosts::sample();
        let addresses =
            |name: &str| -> Vec<String> { known.addresses(name).iter().map(ToString::to_string).collect() };
        assert_eq!(addresses("TV"), ["192.168.1.3", "fd00:1::3"], "192.168.1.4 is the laptop's now");
        assert_eq!(addresses("printer"), ["192.168.1.5"]);
        assert_eq!(addresses("02:00:00:00:00:03"), ["192.168.1.3", "fd00:1::3"]);
        assert!(addresses("02:00:00:00:00:04").is_empty());
        let named = |address: &str| known.names().name(address.parse().unwrap()).map(str::to_owned);
        assert_eq!(
            ["fd00:1::3", "192.168.1.4", "198.51.100.1"].map(named),
            [Some("tv".to_owned()), Some("laptop".to_owned()), None]
        );
        assert!(addresses("nosuch").is_empty());
        let host_of = |address: &str| {
            let (name, others) = known.host_of(address.parse().unwrap())?;
            Some((name, others.iter().map(ToString::to_string).collect::<Vec<_>>()))
        };
        assert_eq!(host_of("fd00:1::3"), Some(("tv", vec!["192.168.1.3".to_owned()])));
        assert_eq!(host_of("192.168.1.3"), Some(("tv", vec!["fd00:1::3".to_owned()])));
        assert_eq!(host_of("192.168.1.5"), Some(("printer", Vec::new())));
        assert_eq!(host_of("198.51.100.1"), None);
    }
}
