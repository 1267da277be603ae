//! The text of `shunt flow list`.

use crate::{
    commands::flows::view::{port, priority},
    render::{Format, Text},
};
use shunt_api::{Hop, RouteChoice, StaticFlow, StaticTable};

impl Text for StaticTable {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(table: &StaticTable) -> String {
    let mut text = String::new();
    for route in &table.route {
        text += &format!("route {}: {}\n", route.name, hop(&route.hop()));
    }
    for entry in &table.flow {
        text += &format!("{}\n", flow(entry));
    }
    text
}

fn flow(flow: &StaticFlow) -> String {
    let tuple = flow.tuple();
    let mut text = format!(
        "{} {} {} > {}",
        flow.proto,
        port(&flow.in_port, &flow.in_vlans),
        tuple.source(),
        tuple.destination()
    );
    if let Some(dmac) = flow.dmac {
        text += &format!(" to {dmac}");
    }
    text += " -> ";
    text += &match &flow.route {
        RouteChoice::Named(name) => format!("route {name}"),
        RouteChoice::Inline(route) => hop(route),
    };
    if let Some(snat) = flow.snat {
        text += &format!(" snat {snat}");
    }
    if let Some(dnat) = flow.dnat {
        text += &format!(" dnat {dnat}");
    }
    if let Some(mtu) = flow.mtu {
        text += &format!(" mtu {mtu}");
    }
    if flow.mark != 0 {
        text += &format!(" mark {:#x}", flow.mark);
    }
    if flow.priority != 0 {
        text += &format!(" priority {}", priority(flow.priority));
    }
    text
}

fn hop(hop: &Hop) -> String {
    let from = hop.smac.map(|mac| format!(" from {mac}")).unwrap_or_default();
    format!("{}{from} to {}", port(&hop.out_port, &hop.vlans), hop.dmac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, assert_golden, show};

    fn statics() -> StaticTable {
        StaticTable::parse(
            r#"
            [[route]]
            name = "wan"
            out_port = "eth1"
            dmac = "02:00:00:00:00:21"
            vlans = [100, 7]
            [[flow]]
            in_port = "eth0"
            in_vlans = [5]
            proto = "udp"
            src = "192.0.2.1"
            sport = 5000
            dst = "198.51.100.1"
            dport = 53
            dmac = "02:00:00:00:00:10"
            snat = "203.0.113.1:6000"
            route = "wan"
            mark = 42
            priority = 65552
            mtu = 1400
            [[flow]]
            in_port = "eth1"
            proto = "tcp"
            src = "2001:db8::1"
            sport = 80
            dst = "2001:db8::2"
            dport = 40000
            dnat = "[2001:db8:1::2]:40001"
            route = { out_port = "eth0", dmac = "02:00:00:00:00:20", smac = "02:00:00:00:00:11" }
            "#,
        )
        .unwrap()
    }

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/flow-list.txt", &statics(), TEXT);
    }

    #[test]
    fn json_reads_back_as_the_same_value() {
        let back: StaticTable = serde_json::from_str(&show(&statics(), JSON)).unwrap();
        assert_eq!(back, statics());
    }
}
