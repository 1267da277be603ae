//! Cases about the link and the driver's settings: pause, rings, coalescing.

use super::{
    Checked, Fault,
    partner::PortCommand,
    port::Port,
    wire::{Sent, Wire},
};

/// Frames sent to check that traffic passes after a change.
const FRAMES: usize = 256;
/// Number of small frames in the overload burst.
const OVERLOAD: usize = 8192;

fn sixty(count: usize) -> Vec<Sent> {
    vec![Sent::long(60); count]
}

fn needs_wire<'w>(port: &Port, wire: Option<&'w Wire>) -> Result<&'w Wire, Fault> {
    wire.ok_or_else(|| Fault::no_peer(port))
}

/// The numbers of an option of ethtool, if the driver has it.
fn offered(port: &Port, option: char) -> Result<Vec<(String, String)>, Fault> {
    port.settings(option).map_err(|why| Fault::Impossible(format!("the driver does not offer it: {why}")))
}

pub(super) fn link(wire: &Wire) -> Checked {
    let arrived = wire.both_ways(&sixty(FRAMES))?;
    let count = arrived.arrived;
    if count == 0 {
        let [port, peer] = &wire.ends;
        return Err(Fault::Unconnected(format!(
            "none of {} frames arrived, in either direction: no cable connects {port} and {peer}, or it carries nothing; \
             name the port at the other end of the cable with --peer",
            arrived.sent
        )));
    }
    let mode = wire.ends[0].run(PortCommand::Modes).unwrap_or_default();
    let words = ["Speed:", "Duplex:", "Auto-negotiation:", "Link partner advertised link modes:"];
    let lines = mode.lines().map(str::trim).filter(|line| words.iter().any(|word| line.starts_with(word)));
    arrived.all(format!("{}; {count} frames, both ways", lines.collect::<Vec<_>>().join(", ")))
}

pub(super) fn pause(port: &Port, wire: Option<&Wire>) -> Checked {
    let before = offered(port, 'a')?;
    let wire = needs_wire(port, wire)?;
    let sent_pauses = || -> u64 {
        let text = port.run(&format!("ethtool -I -a {}", port.name)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("tx_pause_frames:"));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let (mut evidence, mut accepted) = (Vec::new(), 0);
    let mut failure = None;
    for state in ["on", "off"] {
        if let Err(why) = port.run(&format!("ethtool -A {} rx {state} tx {state}", port.name)) {
            evidence.push(format!("cannot be turned {state}: {why}"));
            continue;
        }
        accepted += 1;
        if let Err(why) = port.wait_for_link() {
            failure = Some(why);
            break;
        }
        let (pauses, counters) = (sent_pauses(), port.shown().map_err(Fault::Broken)?.stats64.rx);
        let arrived = wire.send_in_windows(1, &sixty(OVERLOAD), OVERLOAD, &mut |_| Ok(()))?;
        let (now, after) = (sent_pauses() - pauses, port.shown().map_err(Fault::Broken)?.stats64.rx);
        let overruns = (after.errors + after.dropped) - (counters.errors + counters.dropped);
        evidence.push(format!(
            "pause {state}: {} of {} frames arrived, {now} pause frames sent, {overruns} errors and drops",
            arrived.arrived, arrived.sent
        ));
        if state == "off" && now > 0 {
            failure = Some("pause frames are sent although pause is off".to_owned());
        }
        if arrived.sent - arrived.arrived.min(arrived.sent) > 0 && overruns == 0 {
            failure = Some("frames were lost that no counter shows".to_owned());
        }
    }
    let on = |name: &str| {
        before.iter().find(|(is, _)| is == name).is_some_and(|(_, value)| value.starts_with("on"))
    };
    for (name, key) in [("RX", "rx"), ("TX", "tx"), ("Autonegotiate", "autoneg")] {
        let _ = port.run(&format!("ethtool -A {} {key} {}", port.name, super::port::switch(on(name))));
    }
    match failure {
        Some(why) => Err(Fault::Failed(format!("{why}; {}", evidence.join("; ")))),
        None if accepted == 0 => Err(Fault::Impossible(evidence.join("; "))),
        None => Ok(evidence.join("; ")),
    }
}

pub(super) fn rings(port: &Port, wire: Option<&Wire>) -> Checked {
    let all = offered(port, 'g')?;
    let number = |name: &str, nth: usize| -> Option<u32> {
        all.iter().filter(|(is, _)| is == name).nth(nth).and_then(|(_, value)| value.parse().ok())
    };
    let wire = needs_wire(port, wire)?;
    let (Some(most), Some(now)) = (number("RX", 0), number("RX", 1)) else {
        return Err(Fault::Impossible("the driver does not say how large its receive ring is".to_owned()));
    };
    let mut evidence = Vec::new();
    let set = |size: u32| port.run(&format!("ethtool -G {} rx {size}", port.name));
    // Drivers refuse sizes that are too small: double until the driver accepts one.
    let mut sizes = (3..16).map(|power| 1_u32 << power).take_while(|size| *size <= most);
    let Some(smallest) = sizes.find(|size| set(*size).is_ok()) else {
        let why = set(most).err().unwrap_or_default();
        return Err(Fault::Impossible(format!("the driver changes no ring: {why}")));
    };
    let mut outcome = Ok(());
    for size in [smallest, most] {
        let accepted = if size == smallest { Ok(String::new()) } else { set(size) };
        outcome = accepted.and_then(|_| port.wait_for_link()).map_err(Fault::Failed).and_then(|()| {
            // Few enough frames at once for the smallest ring.
            let arrived = wire.send_in_windows(1, &sixty(2048), 8, &mut |_| Ok(()))?;
            evidence.push(format!("RX ring of {size}: {} frames", arrived.arrived));
            arrived.all("").map(drop)
        });
        if outcome.is_err() {
            break;
        }
    }
    set(now).map_err(Fault::Broken)?;
    port.wait_for_link().map_err(Fault::Broken)?;
    outcome.map(|()| evidence.join("; "))
}

pub(super) fn coalesce(port: &Port, wire: Option<&Wire>) -> Checked {
    let all = offered(port, 'c')?;
    let before =
        all.iter().find(|(name, _)| name == "rx-usecs").and_then(|(_, value)| value.parse::<u32>().ok());
    let Some(before) = before else {
        return Err(Fault::Impossible("the driver has no rx-usecs".to_owned()));
    };
    let wire = needs_wire(port, wire)?;
    let (mut evidence, mut accepted) = (Vec::new(), 0);
    let mut outcome = Ok(());
    for usecs in [0, 50, 250] {
        if let Err(why) = port.run(&format!("ethtool -C {} rx-usecs {usecs}", port.name)) {
            evidence.push(format!("rx-usecs {usecs} is refused: {why}"));
            continue;
        }
        accepted += 1;
        outcome = wire.send(1, &sixty(2048)).and_then(|arrived| {
            evidence.push(format!("rx-usecs {usecs}: {} frames", arrived.arrived));
            arrived.all("").map(drop)
        });
        if outcome.is_err() {
            break;
        }
    }
    if accepted == 0 {
        return Err(Fault::Impossible(evidence.join("; ")));
    }
    let _ = port.run(&format!("ethtool -C {} rx-usecs {before}", port.name));
    outcome.map(|()| evidence.join("; "))
}
