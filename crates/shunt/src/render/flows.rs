//! The text of `shunt flows`.

use super::units;
use shunt_api::{Connection, Direction, DirectionName, Engine, FlowState, Tuple};

pub(super) fn describe(connection: &Connection, verbose: bool) -> String {
    let mut text = format!("{} {}\n", connection.proto, Counters::of_connection(connection).describe());
    for (name, tuple) in [(DirectionName::Orig, &connection.orig), (DirectionName::Reply, &connection.reply)]
    {
        let mut there = connection.directions.iter().filter(|flow| flow.dir == name).peekable();
        if there.peek().is_none() {
            text += &format!("  {name:<5}  {}, by Linux\n", ends(tuple));
        }
        for flow in there {
            text += &format!("  {name:<5}  {}\n", action(flow));
            text += &format!("         {}\n", Counters::of_direction(flow).describe());
            if verbose {
                let Direction { in_dmac, out_smac, max_l3_bytes, .. } = flow;
                text += &format!(
                    "         sent to {in_dmac}, leaves from {out_smac}, at most {max_l3_bytes} bytes\n"
                );
            }
        }
    }
    text
}

/// What both a connection and a direction have.
struct Counters {
    state: FlowState,
    engine: Engine,
    packets: u64,
    bytes: u64,
    rate_bps: u64,
    rate_pps: u64,
    age_s: u64,
    idle_s: u64,
}

impl Counters {
    fn of_connection(from: &Connection) -> Self {
        let Connection { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s, .. } = *from;
        Self { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s }
    }

    fn of_direction(from: &Direction) -> Self {
        let Direction { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s, .. } = *from;
        Self { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s }
    }

    fn describe(&self) -> String {
        format!(
            "{} {}  {} packets  {} bytes  {}  {}  age {}  idle {}",
            self.state,
            self.engine,
            self.packets,
            self.bytes,
            units::bits_per_second(self.rate_bps),
            units::packets_per_second(self.rate_pps),
            units::time(self.age_s),
            units::time(self.idle_s),
        )
    }
}

/// Where it comes in and as what, and where it leaves and as what; of the translation only what changes.
fn action(flow: &Direction) -> String {
    let Direction { tuple, new, .. } = flow;
    let mut text = format!(
        "{} {} -> {}",
        port(&flow.in_port, &flow.in_vlans),
        ends(tuple),
        port(&flow.out_port, &flow.out_vlans)
    );
    if new.source() != tuple.source() {
        text += &format!(" snat {}", new.source());
    }
    if new.destination() != tuple.destination() {
        text += &format!(" dnat {}", new.destination());
    }
    text += &format!(" via {}", flow.out_dmac);
    if flow.mark != 0 {
        text += &format!(" mark {:#x}", flow.mark);
    }
    if flow.priority != 0 {
        text += &format!(" priority {}", priority(flow.priority));
    }
    text
}

pub(super) fn ends(tuple: &Tuple) -> String {
    format!("{} > {}", tuple.source(), tuple.destination())
}

/// `eth0`, `eth0 vlan 5`, `eth0 vlan 100.5`.
pub(super) fn port(name: &str, vlans: &[u16]) -> String {
    if vlans.is_empty() {
        return name.to_owned();
    }
    let ids: Vec<String> = vlans.iter().map(u16::to_string).collect();
    format!("{name} vlan {}", ids.join("."))
}

/// As tc writes classes; small numbers are plain priorities.
pub(super) fn priority(value: u32) -> String {
    match (value >> 16, value & 0xffff) {
        (0, minor) => minor.to_string(),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}
