//! The text of `shunt flows`.

use crate::{
    commands::{
        conntrack::view::name,
        listed::{Listed, MixedConnection},
    },
    render::{Format, Text, columns::align, style, units},
};
use shunt_api::{
    Because, Connection, Direction, DirectionName, Engine, FlowState, SlowConnection, SlowCount,
    SlowDirection, Tuple,
};
use shunt_wire::Mac;

impl Text for Vec<Listed> {
    fn text(&self, format: Format) -> String {
        if format.brief {
            return brief(self);
        }
        let describe = |connection: &Listed| match connection {
            Listed::Mixed(mixed) => describe_mixed(connection, mixed, format.verbose),
            Listed::Fast(fast) => describe(fast, format.verbose),
            Listed::Slow(slow) => describe_slow(connection, slow),
        };
        self.iter().map(describe).collect()
    }
}

/// A slow connection: what conntrack has counted, and the tuples of the directions that Linux forwards.
fn describe_slow(all: &Listed, slow: &SlowConnection) -> String {
    let mut text = format!("{} {}", name(slow.protocol), style::warning(all.states_and_reason()));
    if let Some(state) = &slow.conntrack_state {
        text += &format!(" {state}");
    }
    if let Some(count) = slow.count {
        text += &format!("  {}", describe_count(count));
    }
    if let Some(age) = slow.age_s {
        text += &format!("  age {}", units::time(age));
    }
    text.push('\n');
    for direction in &slow.directions {
        let tuple = if direction.dir == DirectionName::Orig { &slow.orig } else { &slow.reply };
        text += &by_linux(direction, tuple, &slow.directions);
    }
    text
}

/// A direction that Linux forwards: why, what conntrack has counted, and what to do. `all` has each slow
/// direction of the connection: a reason is explained once.
fn by_linux(direction: &SlowDirection, tuple: &Tuple, all: &[SlowDirection]) -> String {
    let SlowDirection { dir, count, because } = direction;
    let is_same = all.iter().any(|other| other.dir < *dir && other.because == *because);
    let mut text = format!("  {dir:<5}  {}, by Linux", source_and_destination(tuple));
    match because {
        Some(Because { reason, .. }) if is_same => text += &format!(": {reason}, too"),
        Some(Because { reason, meaning, detail, .. }) => {
            let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
            text += &format!(": {reason}: {meaning}{detail}");
        }
        None => {}
    }
    text.push('\n');
    if let Some(count) = count {
        text += &format!("         {}\n", describe_count(*count));
    }
    if let Some(Because { remedy, .. }) = because.as_ref().filter(|_| !is_same) {
        text += &format!("         {remedy}\n");
    }
    text
}

fn describe_count(count: SlowCount) -> String {
    let SlowCount { packets, bytes, rate_bps, rate_pps } = count;
    format!(
        "{}  {}  {}, {}",
        units::bits_per_second(rate_bps),
        units::packets_per_second(rate_pps),
        units::count(packets, "packet"),
        units::bytes(bytes),
    )
}

pub(crate) fn describe(connection: &Connection, verbose: bool) -> String {
    let mut text = format!("{} {}\n", connection.proto, Counters::from_connection(connection).describe());
    for (name, tuple) in ends(connection) {
        let flows = flows(connection, name, verbose);
        if flows.is_empty() {
            text += &format!("  {name:<5}  {}, by Linux\n", source_and_destination(tuple));
        }
        text += &flows;
    }
    text
}

fn ends(connection: &Connection) -> [(DirectionName, &Tuple); 2] {
    [(DirectionName::Orig, &connection.orig), (DirectionName::Reply, &connection.reply)]
}

/// The flows of a direction.
fn flows(connection: &Connection, name: DirectionName, verbose: bool) -> String {
    let mut text = String::new();
    for flow in connection.directions.iter().filter(|flow| flow.dir == name) {
        text += &format!("  {name:<5}  {}\n", action(flow));
        text += &format!("         {}\n", Counters::from_direction(flow).describe());
        if let Some(why) = &flow.engine_reason {
            text += &format!("         by {}: {why}\n", flow.engine);
        }
        if verbose {
            let mac = |mac: Option<Mac>| mac.map_or_else(|| "no MAC".to_owned(), |mac| mac.to_string());
            let (to, from) = (mac(flow.in_dmac), mac(flow.out_smac));
            let most = flow.max_l3_bytes;
            text += &format!("         arrives at {to}, leaves from {from}, at most {most} bytes\n");
        }
    }
    text
}

/// A connection that is fast in one direction: the counts of both paths, then each direction. A slow one has what
/// conntrack has counted, and the reason; its former flow is shown only with --verbose.
fn describe_mixed(all: &Listed, mixed: &MixedConnection, verbose: bool) -> String {
    let MixedConnection { fast, slow } = mixed;
    let mut text = format!("{} {}", fast.proto, style::warning(all.states_and_reason()));
    if let Some(state) = &slow.conntrack_state {
        text += &format!(" {state}");
    }
    let (age, idle) = (units::time(fast.age_s), units::time(all.idle_s().unwrap_or(fast.idle_s)));
    text += &format!("  {}  age {age}  idle {idle}\n", describe_count(all.counts()));
    for (name, tuple) in ends(fast) {
        let half = slow.directions.iter().find(|half| half.dir == name);
        if half.is_none() || verbose {
            text += &flows(fast, name, verbose);
        }
        text += &half.map_or_else(String::new, |half| by_linux(half, tuple, &slow.directions));
    }
    text
}

/// The fields that a connection and a direction have in common.
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
    fn from_connection(connection: &Connection) -> Self {
        let Connection { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s, .. } = *connection;
        Self { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s }
    }

    fn from_direction(direction: &Direction) -> Self {
        let Direction { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s, .. } = *direction;
        Self { state, engine, packets, bytes, rate_bps, rate_pps, age_s, idle_s }
    }

    fn describe(&self) -> String {
        format!(
            "{} {}  {}  {}  {}, {}  age {}  idle {}",
            state(self.state),
            self.engine,
            units::bits_per_second(self.rate_bps),
            units::packets_per_second(self.rate_pps),
            units::count(self.packets, "packet"),
            units::bytes(self.bytes),
            units::time(self.age_s),
            units::time(self.idle_s),
        )
    }
}

/// The state of a flow: green if its packets are fast.
fn state(state: FlowState) -> String {
    match state {
        FlowState::Active | FlowState::Static => style::good(state.to_string()),
        _ => style::warning(state.to_string()),
    }
}

/// One line for each connection.
pub(crate) fn brief(connections: &[Listed]) -> String {
    let row = |connection: &Listed| {
        let count = connection.count();
        let shown = |text: &dyn Fn(SlowCount) -> String| count.map_or_else(|| "-".to_owned(), text);
        vec![
            name(connection.protocol()).to_owned(),
            source_and_destination(&connection.orig()),
            if connection.is_fast() {
                style::good(connection.states())
            } else {
                style::warning(connection.states())
            },
            connection.engine().map_or_else(|| "-".to_owned(), |engine| engine.to_string()),
            shown(&|count| units::bits_per_second(count.rate_bps)),
            shown(&|count| units::packets_per_second(count.rate_pps)),
            connection.reason().unwrap_or("-").to_owned(),
        ]
    };
    align("<<<<>><", &connections.iter().map(row).collect::<Vec<_>>())
}

/// The match and the action: port and tuple of arriving packets, port of leaving packets, and the parts of the tuple
/// that are rewritten.
fn action(flow: &Direction) -> String {
    let Direction { tuple, new, .. } = flow;
    let mut text = format!(
        "{} {} -> {}",
        port(&flow.in_port, &flow.in_vlans),
        source_and_destination(tuple),
        port(&flow.out_port, &flow.out_vlans)
    );
    if new.source() != tuple.source() {
        text += &format!(" snat {}", new.source());
    }
    if new.destination() != tuple.destination() {
        text += &format!(" dnat {}", new.destination());
    }
    if let Some(mac) = flow.out_dmac {
        text += &format!(" via {mac}");
    }
    if flow.mark != 0 {
        text += &format!(" mark {:#x}", flow.mark);
    }
    if flow.priority != 0 {
        text += &format!(" priority {}", priority(flow.priority));
    }
    text
}

/// `192.0.2.1:1000 > 198.51.100.1:53`.
pub(crate) fn source_and_destination(tuple: &Tuple) -> String {
    format!("{} > {}", tuple.source(), tuple.destination())
}

/// `eth0`, `eth0 vlan 5`, `eth0 vlan 100.5`.
pub(crate) fn port(name: &str, vlans: &[u16]) -> String {
    if vlans.is_empty() {
        return name.to_owned();
    }
    let ids: Vec<String> = vlans.iter().map(u16::to_string).collect();
    format!("{name} vlan {}", ids.join("."))
}

/// A class as tc writes it, in hexadecimal; a number below 65536 is a plain priority.
pub(crate) fn priority(value: u32) -> String {
    match (value >> 16, value & 0xffff) {
        (0, minor) => minor.to_string(),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands::flows::sample::{connections, hosts},
        golden::{BRIEF, JSON, TEXT, VERBOSE, assert_golden, show, text_lacks},
    };

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/flows.txt", &connections(), TEXT);
        assert_golden("golden/flows.json", &connections(), JSON);
        assert_golden("golden/flows-brief.txt", &connections(), BRIEF);
        assert_golden("golden/flows-verbose.txt", &connections(), VERBOSE);
        assert_golden("golden/flows-by-host.txt", &hosts(), TEXT);
        assert_golden("golden/flows-by-host.json", &hosts(), JSON);
    }

    #[test]
    fn the_text_of_flows_shows_every_value_of_the_json() {
        let scaled = [
            ".rate_bps",
            ".rate_pps",
            ".age_s",
            ".idle_s",
            ".mark",
            ".priority",
            ".in_vlans",
            ".out_vlans",
            ".family",
            // Shown together with their addresses, and the translated tuple only where it differs.
            ".sport",
            ".dport",
            ".src",
            ".dst",
        ];
        assert_eq!(text_lacks(&connections(), &scaled), []);
        let text = show(&connections(), TEXT);
        for connection in connections() {
            for tuple in [connection.orig(), connection.reply()] {
                assert!(text.contains(&format!("{} > {}", tuple.source(), tuple.destination())), "{text}");
            }
        }
        for shown in
            ["snat 203.0.113.1:40001", "dnat 192.168.1.2:40000", "9.50 Mbit/s", "81.2 kpps", "age 1h 2m 5s"]
        {
            assert!(text.contains(shown), "{shown}");
        }
    }

    #[test]
    fn without_connections_the_text_is_empty_and_json_is_an_empty_list() {
        assert_eq!(show(&Vec::<Listed>::new(), TEXT), "");
        assert_eq!(show(&Vec::<Listed>::new(), JSON), "[]\n");
    }
}
