//! The case about speed and duplex: each mode that both ends offer is negotiated, and its rate measured.

use super::{
    Checked, Fault,
    end::End,
    partner::PortCommand,
    port::{LINK_TIME, Port, switch},
    wire::{Sent, Wire},
};
use shunt_lab::net::wait_for;
use std::{fmt, time::Duration};

/// Frames that must pass in each mode, in both directions.
const FRAMES: usize = 256;
/// Bytes of the frames whose rate is measured, without FCS, unless the MTU is smaller.
const LONG: usize = 1514;
/// Preamble, FCS and the gap between frames.
const OVERHEAD_BYTES: usize = 24;
/// How long the rate of a mode is measured.
const MEASURED: Duration = Duration::from_millis(300);
/// Share of the line rate that a NIC must reach, and the most that a clock within its tolerance gives.
const LEAST: f64 = 0.9;
const MOST: f64 = 1.05;

/// A mode of copper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mode {
    mbps: u32,
    full: bool,
}

const MODES: [Mode; 6] = [
    Mode { mbps: 10, full: false },
    Mode { mbps: 10, full: true },
    Mode { mbps: 100, full: false },
    Mode { mbps: 100, full: true },
    Mode { mbps: 1000, full: true },
    Mode { mbps: 2500, full: true },
];

impl Mode {
    /// How ethtool shows a link that has it.
    fn shown(self) -> String {
        format!("{}Mb/s {}", self.mbps, if self.full { "Full" } else { "Half" })
    }

    /// Its name in ethtool's lists.
    fn listed(self) -> String {
        format!("{}baseT/{}", self.mbps, if self.full { "Full" } else { "Half" })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.mbps, if self.full { "full" } else { "half" })
    }
}

pub(super) fn modes(port: &Port, wire: Option<&Wire>) -> Checked {
    let text = port.run(&format!("ethtool {}", port.name)).map_err(Fault::Impossible)?;
    let own = listed(&text, "Supported link modes:").unwrap_or_default();
    if own.is_empty() {
        return Err(Fault::Impossible("the driver offers no modes of copper (10 to 2500baseT)".to_owned()));
    }
    let wire = wire.ok_or_else(|| Fault::no_peer(port))?;
    let partner = partner_modes(&text, &wire.ends[1]);
    let shared: Vec<Mode> =
        own.iter().copied().filter(|mode| partner.as_ref().is_none_or(|all| all.contains(mode))).collect();
    if shared.is_empty() {
        return Err(Fault::Impossible(format!("{port} and {} share no mode", wire.ends[1])));
    }
    let autoneg = text.contains("Auto-negotiation: on");
    let (mut measured, mut refusals, mut failure) = (Vec::new(), Vec::new(), None);
    for mode in &shared {
        if let Err(why) = negotiate(port, *mode) {
            refusals.push(why);
            continue;
        }
        match carry(port, wire, *mode) {
            Ok(mbps) => measured.push((*mode, mbps)),
            Err(fault) => failure = failure.or(Some(fault)),
        }
    }
    let back = port.run(&format!("ethtool -s {} autoneg {}", port.name, switch(autoneg)));
    let back = back.and_then(|_| port.wait_for_link());
    if refusals.len() == shared.len() {
        return Err(Fault::Impossible(refusals.swap_remove(0)));
    }
    back.map_err(Fault::Broken)?;
    if let Some(fault) = failure.or(refusals.into_iter().next().map(Fault::Failed)) {
        return Err(fault);
    }
    judge(&measured).map_err(Fault::Failed)
}

/// The modes behind a heading of ethtool's list; None if there is no such heading, or nothing is reported.
fn listed(text: &str, heading: &str) -> Option<Vec<Mode>> {
    let from = text.find(heading)? + heading.len();
    let section = &text[from..];
    // The next line with a colon is another heading.
    let section: Vec<&str> = section
        .lines()
        .enumerate()
        .map_while(|(n, line)| (n == 0 || !line.contains(':')).then_some(line))
        .collect();
    let words: Vec<&str> = section.iter().flat_map(|line| line.split_whitespace()).collect();
    let modes: Vec<Mode> = MODES.into_iter().filter(|mode| words.contains(&mode.listed().as_str())).collect();
    (!words.is_empty() && words != ["Not", "reported"]).then_some(modes)
}

/// The modes that the partner offers: those that it advertised, or those of the driver at the other end. None if
/// neither is known.
fn partner_modes(text: &str, peer: &End) -> Option<Vec<Mode>> {
    listed(text, "Link partner advertised link modes:").filter(|modes| !modes.is_empty()).or_else(|| {
        let text = peer.run(PortCommand::Modes).ok()?;
        listed(&text, "Supported link modes:").filter(|modes| !modes.is_empty())
    })
}

fn negotiate(port: &Port, mode: Mode) -> Result<(), String> {
    let duplex = if mode.full { "full" } else { "half" };
    let advertise = format!("ethtool -s {} autoneg on advertise {}", port.name, mode.listed());
    let speed = format!("ethtool -s {} speed {} duplex {duplex} autoneg on", port.name, mode.mbps);
    port.run(&advertise).or_else(|_| port.run(&speed)).map(drop)
}

/// Speed and duplex of the link, as ethtool shows them.
fn shown_mode(text: &str) -> String {
    let value = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    format!("{} {}", value("Speed:").unwrap_or("no speed"), value("Duplex:").unwrap_or("no duplex"))
}

/// Sends in a mode that was negotiated; the rate from the port to its peer in Mbit/s of the line.
fn carry(port: &Port, wire: &Wire, mode: Mode) -> Result<f64, Fault> {
    // The link may still be up in the old mode.
    let mut shown = String::new();
    let has_mode = || {
        shown = shown_mode(&port.run(&format!("ethtool {}", port.name)).ok()?);
        (shown == mode.shown()).then_some(())
    };
    if wait_for(LINK_TIME, has_mode).is_none() {
        return Err(Fault::Failed(format!("{mode} was asked for, and the link has {shown}")));
    }
    port.wait_for_link().and_then(|()| wire.ends[1].wait_for_link()).map_err(Fault::Failed)?;
    wire.both_ways(&vec![Sent::long(60); FRAMES])?.all("")?;
    let bytes = LONG.min(port.shown().map_err(Fault::Broken)?.mtu as usize + 14);
    let flood = wire.flood(0, bytes, MEASURED)?;
    let bits = (flood.frames * (bytes + OVERHEAD_BYTES) * 8) as f64;
    Ok(bits / flood.time.as_secs_f64().max(1e-9) / 1e6)
}

/// The evidence, if no mode carried more than its line rate, or less although this machine can send as fast.
fn judge(measured: &[(Mode, f64)]) -> Result<String, String> {
    let most = measured.iter().map(|(_, mbps)| *mbps).fold(0.0, f64::max);
    let rate = |(mode, mbps): &(Mode, f64)| format!("{mode}: {mbps:.1} Mbit/s");
    let all = measured.iter().map(rate).collect::<Vec<_>>().join(", ");
    let exceeds = |(mode, mbps): &&(Mode, f64)| *mbps > MOST * f64::from(mode.mbps);
    let over: Vec<_> = measured.iter().filter(exceeds).collect();
    let slower: Vec<_> = measured.iter().filter(|(mode, _)| f64::from(mode.mbps) * MOST < most).collect();
    if over.len() > 1 && over.len() == slower.len() {
        return Ok(format!(
            "{all}, all as negotiated; the line keeps to no speed, as emulated ones do, so rates are not compared"
        ));
    }
    if let Some((mode, mbps)) = over.first() {
        return Err(format!("at {mode} the port sent {mbps:.1} Mbit/s, more than the line carries; {all}"));
    }
    // A line that is not filled says something about the NIC only if the machine can fill it.
    let short = |(mode, mbps): &&(Mode, f64)| *mbps < LEAST * f64::from(mode.mbps);
    let is_capable = |mode: &Mode| most >= LEAST * f64::from(mode.mbps);
    if let Some((mode, mbps)) = measured.iter().filter(short).find(|(mode, _)| is_capable(mode)) {
        return Err(format!(
            "at {mode} the port sent {mbps:.1} Mbit/s, although this machine sends {most:.1}; {all}"
        ));
    }
    let limited: Vec<String> = measured.iter().filter(short).map(|(mode, _)| mode.to_string()).collect();
    Ok(match limited.is_empty() {
        true => format!("{all} of the line"),
        false => format!(
            "{all} of the line; {} cannot be judged: this machine sends no more than {most:.1} Mbit/s",
            limited.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mode(mbps: u32, full: bool) -> Mode {
        Mode { mbps, full }
    }

    const E1000E: &str = "Settings for eth0:\n\tSupported ports: [ TP ]\n\tSupported link modes:   10baseT/Half 10baseT/Full\n\t                        100baseT/Half 100baseT/Full\n\t                        1000baseT/Full\n\tSupported pause frame use: No\n\tAdvertised link modes:  1000baseT/Full\n\tLink partner advertised link modes:  10baseT/Half 10baseT/Full\n\t                                     100baseT/Full\n\tLink partner advertised pause frame use: No\n\tSpeed: 100Mb/s\n";

    #[test]
    fn modes_are_those_that_both_ends_list() {
        assert_eq!(listed(E1000E, "Supported link modes:").unwrap(), MODES[..5]);
        assert_eq!(listed(E1000E, "Advertised link modes:").unwrap(), [mode(1000, true)]);
        let partner = listed(E1000E, "Link partner advertised link modes:").unwrap();
        assert_eq!(partner, [mode(10, false), mode(10, true), mode(100, true)]);
        assert_eq!(listed("\tSupported link modes:   Not reported\n", "Supported link modes:"), None);
        assert_eq!(listed(E1000E, "no such heading:"), None);
        assert_eq!(shown_mode(E1000E), "100Mb/s no duplex");
        assert_eq!(shown_mode("\tSpeed: 10Mb/s\n\tDuplex: Half\n"), mode(10, false).shown());
    }

    #[test]
    fn a_mode_that_is_faster_than_its_line_or_needlessly_slow_is_a_fault() {
        let sound = [(mode(10, true), 9.9), (mode(100, true), 99.7), (mode(1000, true), 995.0)];
        assert_eq!(
            judge(&sound).unwrap(),
            "10/full: 9.9 Mbit/s, 100/full: 99.7 Mbit/s, 1000/full: 995.0 Mbit/s of the line"
        );
        let mut stuck = sound;
        stuck[1].1 = 990.0;
        assert!(judge(&stuck).unwrap_err().starts_with("at 100/full the port sent 990.0 Mbit/s, more than"));
        let mut slow = sound;
        slow[1].1 = 40.0;
        assert!(judge(&slow).unwrap_err().contains("although this machine sends 995.0"));
    }

    #[test]
    fn a_machine_that_is_too_slow_for_the_line_says_nothing_about_the_nic() {
        let slow = [(mode(10, true), 9.9), (mode(100, true), 62.0), (mode(1000, true), 61.0)];
        let evidence = judge(&slow).unwrap();
        assert!(
            evidence.ends_with(
                "100/full, 1000/full cannot be judged: this machine sends no more than 62.0 Mbit/s"
            ),
            "{evidence}"
        );
    }

    #[test]
    fn an_emulated_line_that_keeps_to_no_speed_is_not_blamed_on_the_nic() {
        let emulated = [(mode(10, true), 310.0), (mode(100, true), 305.0), (mode(1000, true), 320.0)];
        assert!(judge(&emulated).unwrap().contains("keeps to no speed"), "{:?}", judge(&emulated));
    }
}
