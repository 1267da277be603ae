//! The text of `shunt flow list`.

use super::{
    Answer, Format,
    flows::{port, priority},
    json,
};
use shunt_api::{Hop, RouteChoice, StaticFlow, StaticTable};

impl Answer for StaticTable {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
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
