//! Connections added up by host.

mod known;
mod names;
pub(crate) mod totals;

use super::listed::Listed;
pub(super) use known::KnownHosts;
pub(super) use names::names_of_this_machine;
use shunt_api::{DirectionName, HostNames, SlowCount};
use std::{collections::BTreeMap, net::IpAddr};
use totals::HostTotal;

/// The total of each host, sorted by address. The hosts of a connection are its ends without NAT: the sources of both
/// directions.
pub(super) fn totals<'c>(
    connections: impl IntoIterator<Item = &'c Listed>,
    names: &HostNames,
) -> Vec<HostTotal> {
    let mut hosts: BTreeMap<IpAddr, HostTotal> = BTreeMap::new();
    for connection in connections {
        let (opener, answerer) = (connection.orig().src, connection.reply().src);
        add(&mut hosts, names, opener, connection, DirectionName::Orig);
        if answerer != opener {
            add(&mut hosts, names, answerer, connection, DirectionName::Reply);
        }
    }
    hosts.into_values().collect()
}

/// Adds a connection to the total of the host that sends in this direction.
fn add(
    hosts: &mut BTreeMap<IpAddr, HostTotal>,
    names: &HostNames,
    addr: IpAddr,
    connection: &Listed,
    sends: DirectionName,
) {
    let name = || names.name(addr).map(str::to_owned);
    let total = hosts.entry(addr).or_insert_with(|| HostTotal::new(addr, name()));
    let SlowCount { packets, rate_pps, .. } = connection.counts();
    total.connections += 1;
    total.packets += packets;
    total.rate_pps += rate_pps;
    total.age_s = total.age_s.max(connection.age_s());
    total.idle_s = [total.idle_s, connection.idle_s()].into_iter().flatten().min();
    total.slow_bps += connection.slow_count().rate_bps;
    for (direction, count) in connection.directions() {
        let (bytes, rate) = if direction == sends {
            (&mut total.sent_bytes, &mut total.sent_bps)
        } else {
            (&mut total.received_bytes, &mut total.received_bps)
        };
        *bytes += count.bytes;
        *rate += count.rate_bps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{
        flows::sample::{slow, tcp, udp6},
        listed::listed,
    };
    use shunt_api::SlowTable;

    #[test]
    fn a_connection_counts_for_both_ends_and_not_for_the_address_of_the_nat() {
        let mut second = tcp();
        second.orig.src = "192.168.1.3".parse().unwrap();
        second.age_s = 9999;
        let names = HostNames::read(|path| {
            (if path == "/etc/hosts" { "192.168.1.2 laptop\n" } else { "" }).to_owned()
        });
        let hosts = totals(&[tcp(), second, udp6()].map(Listed::Fast), &names);
        let addresses: Vec<String> = hosts.iter().map(|host| host.addr.to_string()).collect();
        assert_eq!(addresses, ["192.168.1.2", "192.168.1.3", "198.18.0.2", "2001:db8:1::2", "2001:db8:2::9"]);
        let [laptop, other, server] = &hosts[..3] else { panic!() };
        assert_eq!((laptop.name.as_deref(), other.name.as_deref()), (Some("laptop"), None));
        assert_eq!((laptop.sent_bytes, laptop.received_bytes), (1_002_003, 2_004_005));
        assert_eq!((laptop.sent_bps, laptop.received_bps), (9_500_000, 941_000_000));
        assert_eq!((server.sent_bytes, server.received_bytes), (4_008_010, 2_004_006));
        assert_eq!((server.connections, server.packets, server.rate_pps), (2, 6008, 164_092));
        assert_eq!((server.age_s, server.idle_s, server.slow_bps), (Some(9999), Some(2), 0));
    }

    #[test]
    fn slow_connections_count_too_and_their_rate_is_told_apart() {
        let hosts = totals(&[Listed::Fast(tcp()), Listed::Slow(slow())], &HostNames::default());
        let laptop = hosts.iter().find(|host| host.addr.to_string() == "192.168.1.2").unwrap();
        assert_eq!((laptop.connections, laptop.slow_bps), (2, 51_200_000));
        assert_eq!((laptop.sent_bps, laptop.received_bps), (9_500_000 + 1_200_000, 941_000_000 + 50_000_000));
        let server = hosts.iter().find(|host| host.addr.to_string() == "198.51.100.9").unwrap();
        assert_eq!((server.sent_bps, server.received_bps, server.idle_s), (50_000_000, 1_200_000, Some(0)));
    }

    #[test]
    fn a_connection_with_one_slow_direction_is_one_connection() {
        let mut half = slow();
        (half.orig, half.reply) = (tcp().orig, tcp().reply);
        let rate = half.count.unwrap().rate_bps;
        let slow = SlowTable { counted: true, connections: vec![half], more: 0 };
        let hosts = totals(&listed(vec![tcp()], slow), &HostNames::default());
        assert!(hosts.iter().all(|host| host.connections == 1 && host.slow_bps == rate), "{hosts:?}");
    }

    #[test]
    fn a_connection_of_a_host_with_itself_counts_once() {
        let mut hairpin = tcp();
        hairpin.reply.src = hairpin.orig.src;
        assert_eq!(totals(&[Listed::Fast(hairpin)], &HostNames::default())[0].connections, 1);
    }
}
