//! Connections added up by host.

mod names;
pub(crate) mod totals;

pub(super) use names::Names;
use shunt_api::{Connection, DirectionName};
use std::{collections::BTreeMap, net::IpAddr};
use totals::HostTotal;

/// The total of each host, sorted by address. The hosts of a connection are its ends without NAT: the sources of both
/// directions.
pub(super) fn totals<'c>(
    connections: impl IntoIterator<Item = &'c Connection>,
    names: &Names,
) -> Vec<HostTotal> {
    let mut hosts: BTreeMap<IpAddr, HostTotal> = BTreeMap::new();
    for connection in connections {
        let (opener, answerer) = (connection.orig.src, connection.reply.src);
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
    names: &Names,
    addr: IpAddr,
    connection: &Connection,
    sends: DirectionName,
) {
    let name = || names.name(addr).map(str::to_owned);
    let total = hosts.entry(addr).or_insert_with(|| HostTotal::new(addr, name()));
    total.connections += 1;
    total.packets += connection.packets;
    total.rate_pps += connection.rate_pps;
    total.age_s = total.age_s.max(connection.age_s);
    total.idle_s = total.idle_s.min(connection.idle_s);
    for direction in &connection.directions {
        let (bytes, rate) = if direction.dir == sends {
            (&mut total.sent_bytes, &mut total.sent_bps)
        } else {
            (&mut total.received_bytes, &mut total.received_bps)
        };
        *bytes += direction.bytes;
        *rate += direction.rate_bps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flows::sample::{tcp, udp6};

    #[test]
    fn a_connection_counts_for_both_ends_and_not_for_the_address_of_the_nat() {
        let mut second = tcp();
        second.orig.src = "192.168.1.3".parse().unwrap();
        second.age_s = 9999;
        let names = Names::read_from("192.168.1.2 laptop\n", "");
        let hosts = totals(&[tcp(), second, udp6()], &names);
        let addresses: Vec<String> = hosts.iter().map(|host| host.addr.to_string()).collect();
        assert_eq!(addresses, ["192.168.1.2", "192.168.1.3", "198.18.0.2", "2001:db8:1::2", "2001:db8:2::9"]);
        let [laptop, other, server] = &hosts[..3] else { panic!() };
        assert_eq!((laptop.name.as_deref(), other.name.as_deref()), (Some("laptop"), None));
        assert_eq!((laptop.sent_bytes, laptop.received_bytes), (1_002_003, 2_004_005));
        assert_eq!((laptop.sent_bps, laptop.received_bps), (9_500_000, 941_000_000));
        assert_eq!((server.sent_bytes, server.received_bytes), (4_008_010, 2_004_006));
        assert_eq!((server.connections, server.packets, server.rate_pps), (2, 6008, 164_092));
        assert_eq!((server.age_s, server.idle_s), (9999, 2));
    }

    #[test]
    fn a_connection_of_a_host_with_itself_counts_once() {
        let mut hairpin = tcp();
        hairpin.reply.src = hairpin.orig.src;
        assert_eq!(totals(&[hairpin], &Names::default())[0].connections, 1);
    }
}
