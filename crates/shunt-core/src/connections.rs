//! Joins flows into connections: both directions together, as conntrack prints them.

use shunt_api::{Connection, Direction, DirectionName, Family, Proto, Tuple};
use std::time::Duration;

/// The tuple of the opposite direction, without translation.
pub fn reversed(tuple: Tuple) -> Tuple {
    Tuple { src: tuple.dst, dst: tuple.src, sport: tuple.dport, dport: tuple.sport }
}

/// Joins flows into connections, in the order of protocol and original tuple, each made when the iterator is asked for
/// it.
///
/// `connection_of` gives the protocol and the original tuple of a flow's connection, `direction_of` describes the flow.
pub fn join_flows<F>(
    mut flows: Vec<F>,
    connection_of: impl Fn(&F) -> (Proto, Tuple),
    direction_of: impl Fn(&F) -> Direction,
) -> impl Iterator<Item = Connection> {
    flows.sort_unstable_by_key(&connection_of);
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &flows[at..];
        let id = connection_of(rest.first()?);
        let count = rest.iter().take_while(|flow| connection_of(flow) == id).count();
        at += count;
        join_directions(id.0, rest[..count].iter().map(&direction_of).collect())
    })
}

/// The connection of these directions; `None` if there are none.
fn join_directions(proto: Proto, mut directions: Vec<Direction>) -> Option<Connection> {
    directions.sort_by_key(|direction| direction.dir);
    let (first, others) = directions.split_first()?;
    let opposite = reversed(first.new);
    let (orig, reply) =
        if first.dir == DirectionName::Orig { (first.tuple, opposite) } else { (opposite, first.tuple) };
    let mut connection = Connection {
        family: if orig.src.is_ipv4() { Family::V4 } else { Family::V6 },
        proto,
        orig,
        reply,
        state: first.state,
        engine: first.engine,
        packets: first.packets,
        bytes: first.bytes,
        rate_bps: first.rate_bps,
        rate_pps: first.rate_pps,
        age_s: first.age_s,
        idle_s: first.idle_s,
        directions: Vec::new(),
    };
    others.iter().for_each(|direction| add_direction(&mut connection, direction));
    connection.directions = directions;
    Some(connection)
}

fn add_direction(connection: &mut Connection, direction: &Direction) {
    connection.state = connection.state.max(direction.state);
    connection.engine = connection.engine.max(direction.engine);
    connection.packets += direction.packets;
    connection.bytes += direction.bytes;
    connection.rate_bps += direction.rate_bps;
    connection.rate_pps += direction.rate_pps;
    connection.age_s = connection.age_s.max(direction.age_s);
    connection.idle_s = connection.idle_s.min(direction.idle_s);
}

/// The values that the rates of a flow are computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateBasis {
    /// Everything the flow has counted, over its age.
    Lifetime,
    /// The flow's counts since a sample.
    Sample {
        /// Packets since the sample.
        packets: u64,
        /// Bytes since the sample.
        bytes: u64,
        /// Time since the sample.
        over: Duration,
    },
    /// The flow came after the sample: its rates are 0.
    AfterSample,
}

/// Sets the rates of a direction.
pub fn set_rates(direction: &mut Direction, basis: RateBasis) {
    let (packets, bytes, over) = match basis {
        RateBasis::Lifetime => (direction.packets, direction.bytes, Duration::from_secs(direction.age_s)),
        RateBasis::Sample { packets, bytes, over } => (packets, bytes, over),
        RateBasis::AfterSample => (0, 0, Duration::ZERO),
    };
    direction.rate_pps = per_second(packets, over);
    direction.rate_bps = per_second(bytes.saturating_mul(8), over);
}

fn per_second(count: u64, over: Duration) -> u64 {
    let seconds = over.as_secs_f64();
    if seconds > 0.0 { (count as f64 / seconds).round() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::{Engine, FlowState};

    fn tuple(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> Tuple {
        Tuple { src: src.into(), dst: dst.into(), sport, dport }
    }

    /// A client that is masqueraded: the two directions of its connection.
    fn directions() -> [Direction; 2] {
        let client = tuple([192, 168, 1, 2], 1000, [198, 18, 0, 9], 53);
        let masqueraded = tuple([198, 18, 0, 1], 2000, [198, 18, 0, 9], 53);
        let orig = Direction {
            dir: DirectionName::Orig,
            in_port: "lan".to_owned(),
            in_vlans: Vec::new(),
            tuple: client,
            out_port: "wan".to_owned(),
            out_vlans: Vec::new(),
            new: masqueraded,
            in_dmac: None,
            out_smac: None,
            out_dmac: None,
            mark: 0,
            priority: 0,
            max_l3_bytes: 1500,
            state: FlowState::Active,
            engine: Engine::Tc,
            engine_reason: None,
            packets: 10,
            bytes: 1_000,
            rate_bps: 0,
            rate_pps: 0,
            age_s: 5,
            idle_s: 1,
        };
        let reply = Direction {
            dir: DirectionName::Reply,
            tuple: reversed(masqueraded),
            new: reversed(client),
            state: FlowState::Stale,
            packets: 7,
            age_s: 4,
            idle_s: 3,
            ..orig.clone()
        };
        [orig, reply]
    }

    fn joined(flows: Vec<Direction>) -> Vec<Connection> {
        let orig_of = |flow: &Direction| {
            let orig = if flow.dir == DirectionName::Orig { flow.tuple } else { reversed(flow.new) };
            (Proto::Udp, orig)
        };
        join_flows(flows, orig_of, Direction::clone).collect()
    }

    #[test]
    fn both_directions_of_a_translated_connection_are_joined() {
        let [orig, reply] = directions();
        let connections = joined(vec![reply.clone(), orig.clone()]);
        let [connection] = &connections[..] else { panic!("{connections:?}") };
        assert_eq!((connection.orig, connection.reply), (orig.tuple, reply.tuple));
        assert_eq!((connection.packets, connection.age_s, connection.idle_s), (17, 5, 1));
        assert_eq!(connection.state, orig.state.max(reply.state));
        assert_eq!(connection.directions, [orig, reply]);
    }

    #[test]
    fn a_single_direction_gives_the_tuples_of_both() {
        let [orig, reply] = directions();
        for single in [&orig, &reply] {
            let connections = joined(vec![single.clone()]);
            assert_eq!((connections[0].orig, connections[0].reply), (orig.tuple, reply.tuple));
        }
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn connections_come_in_the_order_of_their_tuples() {
        let with_port = |sport| {
            let [orig, _] = directions();
            Direction { tuple: Tuple { sport, ..orig.tuple }, ..orig }
        };
        let connections = joined([3, 1, 2].map(with_port).into());
        assert_eq!(connections.iter().map(|c| c.orig.sport).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn rates_are_over_the_sample_or_over_the_life_of_the_flow() {
        let rates = |basis| {
            let [mut orig, _] = directions();
            set_rates(&mut orig, basis);
            (orig.rate_pps, orig.rate_bps)
        };
        assert_eq!(rates(RateBasis::Lifetime), (2, 1_600));
        let over = Duration::from_millis(500);
        assert_eq!(rates(RateBasis::Sample { packets: 3, bytes: 200, over }), (6, 3_200));
        assert_eq!(rates(RateBasis::AfterSample), (0, 0));
    }
}
