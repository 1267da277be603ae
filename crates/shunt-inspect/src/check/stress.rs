//! Cases under load: changes of filters, bursts, links that go down and up, and counters.

use super::{
    Checked, Fault,
    port::{Counters, Direction},
    wire::{Arrived, SHORTEST, Sent, Wire},
};
use shunt_lab::net::wait_for;
use shunt_wire::Mac;
use std::time::Duration;

/// Frames of a burst: few enough for a socket's queue.
const BURST: usize = 2048;
/// Bursts of the storm, in each direction.
const BURSTS: usize = 8;
/// How often the port goes down and up.
const ROUNDS: usize = 5;
/// Multicast groups that are joined.
const GROUPS: usize = 32;
/// Frames of the counter case: different numbers each way show counters that are mixed up.
const COUNTED: [usize; 2] = [1000, 2000];
/// Tolerated frames of other senders that are in flight while counters are read.
const SLACK: u64 = 4;

pub(super) fn filters(wire: &Wire) -> Checked {
    let port = &wire.port;
    let group = |n: usize| Mac([0x33, 0x33, 0xa5, 0x5a, 0, n as u8]);
    // Unicast and multicast alternate while groups and promiscuous mode change.
    let to_group = |n: usize| Sent { to: Some(group(n % GROUPS)), ..Sent::long(100) };
    let frames: Vec<Sent> =
        (0..4096).map(|n| if n % 2 == 0 { Sent::long(100) } else { to_group(n / 2) }).collect();
    for n in 0..GROUPS {
        port.run(&format!("ip maddress add {} dev {}", group(n), port.name)).map_err(Fault::Failed)?;
    }
    let mut toggles = 0;
    let arrived = wire.send_in_windows(1, &frames, 128, &mut |turn| {
        toggles += 1;
        let state = if turn % 2 == 0 { "on" } else { "off" };
        port.run(&format!("ip link set {} promisc {state}", port.name)).map(drop).map_err(Fault::Failed)
    });
    for n in 0..GROUPS {
        port.run(&format!("ip maddress del {} dev {}", group(n), port.name)).map_err(Fault::Broken)?;
    }
    let arrived = arrived?;
    let count = arrived.arrived;
    arrived.all(format!(
        "{count} frames, half of them to {GROUPS} groups, while promiscuous mode changed {toggles} times"
    ))
}

pub(super) fn storm(wire: &Wire) -> Checked {
    let frames = vec![Sent::long(60); BURST * BURSTS];
    let mut sum = Arrived::default();
    for from in [0, 1] {
        let one = wire.send_in_windows(from, &frames, BURST, &mut |_| Ok(()))?;
        sum.sent += one.sent;
        sum.arrived += one.arrived;
        sum.faults.extend(one.faults);
    }
    let count = sum.arrived;
    sum.all(format!("{count} frames of 60 bytes in bursts of {BURST}, both ways"))
}

pub(super) fn updown(wire: &Wire) -> Checked {
    let port = &wire.port;
    let addresses = port
        .run(&format!("ip -oneline address show dev {} scope global", port.name))
        .map_err(Fault::Broken)?;
    if let Some(line) = addresses.lines().next() {
        let address = line.split_whitespace().nth(3).unwrap_or_default();
        return Err(Fault::Impossible(format!(
            "{port} has the address {address}, and taking it down would lose its routes: ip address flush dev {}",
            port.name
        )));
    }
    for round in 1..=ROUNDS {
        // Take the port down while frames are in flight; their loss is not a fault.
        for _ in 0..64 {
            let _ = wire.tap(1).try_send(&under_way(wire));
        }
        port.run(&format!("ip link set {} down", port.name)).map_err(Fault::Failed)?;
        port.run(&format!("ip link set {} up", port.name)).map_err(Fault::Failed)?;
        wire.ends.iter().try_for_each(|end| end.wait_for_link()).map_err(Fault::Failed)?;
        // Both sockets report the link that went down once.
        for end in [0, 1] {
            while wire.receive(end, Duration::ZERO)?.is_some() {}
        }
        let arrived = wire.both_ways(&vec![Sent::long(60); 256])?;
        arrived.all("").map_err(|fault| match fault {
            Fault::Failed(why) => Fault::Failed(format!("after round {round}: {why}")),
            other => other,
        })?;
    }
    Ok(format!("{ROUNDS} times down and up under load; 512 frames passed after each"))
}

fn under_way(wire: &Wire) -> Vec<u8> {
    super::wire::empty(wire.macs[1], wire.macs[0], 60)
}

pub(super) fn counters(wire: &Wire) -> Checked {
    let read = || -> Result<[Counters; 2], Fault> {
        let one = |end: usize| Ok(wire.ends[end].shown().map_err(Fault::Broken)?.stats64);
        Ok([one(0)?, one(1)?])
    };
    let mut evidence = Vec::new();
    for (from, count) in COUNTED.into_iter().enumerate() {
        let before = read()?;
        // Two lengths, since bytes and packets are checked separately.
        let frames: Vec<Sent> = (0..count).map(|n| Sent::long(if n % 2 == 0 { 60 } else { 1000 })).collect();
        let arrived = wire.send(from, &frames)?;
        let others = arrived.others;
        arrived.all("")?;
        let bytes: u64 = frames.iter().map(|frame| frame.bytes as u64).sum();
        let sent = Direction { packets: count as u64, bytes, ..Direction::default() };
        // Some drivers report their counters once a second.
        let settled = || {
            let after = read().ok()?;
            let short = after[from].tx.packets - before[from].tx.packets < sent.packets
                || after[1 - from].rx.packets - before[1 - from].rx.packets < sent.packets;
            (!short).then_some(())
        };
        let _ = wait_for(Duration::from_secs(3), settled);
        let after = read()?;
        for (what, before, after) in [
            (format!("tx of {}", wire.ends[from]), before[from].tx, after[from].tx),
            (format!("rx of {}", wire.ends[1 - from]), before[1 - from].rx, after[1 - from].rx),
        ] {
            judge(&what, sent, others, before, after).map_err(Fault::Failed)?;
        }
        evidence.push(format!("{}: {count} frames and {bytes} bytes sent and counted", wire.direction(from)));
    }
    Ok(evidence.join("; "))
}

/// Whether a counter rose by the amount sent. Frames of other senders may add the number seen, and a few more.
fn judge(
    what: &str,
    sent: Direction,
    others: u64,
    before: Direction,
    after: Direction,
) -> Result<(), String> {
    if after.packets < before.packets || after.bytes < before.bytes {
        return Err(format!("{what}: a counter fell, from {before:?} to {after:?}"));
    }
    let (packets, bytes) = (after.packets - before.packets, after.bytes - before.bytes);
    if packets < sent.packets || packets > sent.packets + others + SLACK {
        return Err(format!(
            "{what}: {packets} packets counted, {} sent and {others} of others seen",
            sent.packets
        ));
    }
    // Some drivers count the FCS, and short frames as they are on the wire.
    let (extra, longest) = (packets - sent.packets, 1518);
    let most = sent.bytes + 4 * sent.packets + extra * longest;
    if bytes < sent.bytes || bytes > most {
        return Err(format!(
            "{what}: {bytes} bytes counted, {} sent (at most {most} with FCS and others)",
            sent.bytes
        ));
    }
    for (name, before, after) in
        [("errors", before.errors, after.errors), ("dropped", before.dropped, after.dropped)]
    {
        if after > before + others {
            return Err(format!("{what}: {} {name} although every frame arrived", after - before));
        }
    }
    Ok(())
}

const _: () = assert!(SHORTEST < 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_misses_invents_or_falls_is_told() {
        let at = |packets, bytes| Direction { packets, bytes, ..Direction::default() };
        let (sent, before) = (at(1000, 60_000), at(5, 500));
        let judged = |after| judge("rx", sent, 2, before, after);
        assert!(judged(at(1005, 60_500)).is_ok());
        // With FCS, and two frames of other senders.
        assert!(judged(at(1007, 64_700)).is_ok());
        for wrong in [
            at(1004, 60_440),
            at(1020, 60_500),
            at(2005, 120_500),
            at(1005, 60_400),
            at(1005, 70_500),
            at(4, 500),
            Direction { dropped: 9, ..at(1005, 60_500) },
            Direction { errors: 9, ..at(1005, 60_500) },
        ] {
            assert!(judged(wrong).is_err(), "{wrong:?}");
        }
    }
}
