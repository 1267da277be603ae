//! Seventeen checks of a NIC and its driver, each with evidence, on one port or on two connected ports.
//!
//! Frames are raw, numbered and have known contents, so every loss, copy, change and padding byte is detected. A case
//! waits for frames instead of sleeping, and restores the settings that it changed.

mod address;
mod end;
mod frames;
mod junit;
mod lent;
mod offloads;
mod partner;
mod port;
mod rates;
mod settings;
mod stress;
mod wire;

pub use end::End;
pub use junit::junit;
pub use lent::{LEASE, LentPort};
pub use partner::{Answer, ArrivedFrame, Bytes, Call, Partner, PortCommand, Request};
pub use port::Port;

use end::Before;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use wire::Wire;

/// A check: name, title and function.
struct Case {
    name: &'static str,
    title: &'static str,
    run: Run,
}

/// What a case needs.
enum Run {
    /// Both ends of the cable.
    Wire(fn(&Wire) -> Checked),
    /// The port; the wire is present if there is a peer.
    Port(fn(&Port, Option<&Wire>) -> Checked),
}

/// The evidence of a case that passed, or why it did not.
type Checked = Result<String, Fault>;

/// Why a case did not pass.
#[derive(Debug)]
enum Fault {
    /// The port or its driver is at fault, with the evidence.
    Failed(String),
    /// The port does not support what the case checks, with the reason.
    Impossible(String),
    /// The case needs the port at the other end of the cable, and it is not known; with what to type.
    NoPeer(String),
    /// The case itself failed, with the reason.
    Broken(String),
    /// The partner on the other machine no longer answers, with the reason.
    Lost(String),
    /// No frame gets from one end to the other, so no other case can tell anything.
    Unconnected(String),
}

impl Fault {
    fn no_peer(port: &Port) -> Self {
        Self::NoPeer(format!("needs the other end of {port}: give it with --peer PORT2"))
    }

    /// The evidence or the reason.
    fn into_text(self) -> String {
        match self {
            Self::Failed(why)
            | Self::Impossible(why)
            | Self::NoPeer(why)
            | Self::Broken(why)
            | Self::Lost(why)
            | Self::Unconnected(why) => why,
        }
    }
}

const CASES: [Case; 17] = [
    Case {
        name: "link",
        title: "the link is up and carries frames both ways",
        run: Run::Wire(settings::link),
    },
    Case {
        name: "modes",
        title: "each speed and duplex that both ends offer, at its line rate",
        run: Run::Port(rates::modes),
    },
    Case { name: "pause", title: "pause frames are sent under overload", run: Run::Port(settings::pause) },
    Case {
        name: "rings",
        title: "the smallest and the largest rings carry traffic",
        run: Run::Port(settings::rings),
    },
    Case {
        name: "coalesce",
        title: "interrupt coalescing off and long delays lose nothing",
        run: Run::Port(settings::coalesce),
    },
    Case {
        name: "lengths",
        title: "every frame length up to the MTU arrives unchanged",
        run: Run::Wire(frames::lengths),
    },
    Case {
        name: "padding",
        title: "short frames are padded with zeros or not at all",
        run: Run::Wire(frames::padding),
    },
    Case {
        name: "integrity",
        title: "pseudo-random payloads arrive bit by bit",
        run: Run::Wire(frames::integrity),
    },
    Case {
        name: "checksum",
        title: "checksums are the same with and without offload",
        run: Run::Wire(offloads::checksum),
    },
    Case {
        name: "segmentation",
        title: "TCP streams are the same with and without segmentation offload",
        run: Run::Wire(offloads::segmentation),
    },
    Case { name: "vlan", title: "VLAN IDs 0, 1, 2, 4093, 4094, 4095 and QinQ", run: Run::Wire(frames::vlan) },
    Case {
        name: "mtu",
        title: "frames of the MTU pass, longer ones are refused, a larger MTU works",
        run: Run::Wire(frames::mtu_edges),
    },
    Case {
        name: "filters",
        title: "joining multicast groups and promiscuous mode lose nothing",
        run: Run::Wire(stress::filters),
    },
    Case {
        name: "mac",
        title: "after a change of its MAC address, the port takes frames to the new one only",
        run: Run::Wire(address::change),
    },
    Case { name: "storm", title: "bursts of the smallest frames arrive", run: Run::Wire(stress::storm) },
    Case {
        name: "updown",
        title: "the port comes back after each down and up under load",
        run: Run::Wire(stress::updown),
    },
    Case {
        name: "counters",
        title: "the counters agree with what was sent",
        run: Run::Wire(stress::counters),
    },
];

/// The result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The port behaved as required.
    Pass,
    /// The port did not behave as required.
    Fail,
    /// The port, its driver or the test bed does not support what the case checks.
    Impossible,
    /// The case could not be carried out, or the changed settings could not be restored.
    Error,
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the case, such as `padding`.
    pub case: String,
    /// The claim that the case checks.
    pub title: String,
    /// Whether the port passed.
    pub outcome: Outcome,
    /// The evidence, or the reason why the case is impossible or failed.
    pub evidence: String,
    /// Duration of the case in seconds.
    pub seconds: f64,
}

/// The results of all cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The port that was checked.
    pub port: String,
    /// The port's driver; empty if unknown.
    pub driver: String,
    /// The port at the other end; None if there is none.
    pub peer: Option<String>,
    /// A verdict for each case that was run, in the order of the list.
    pub cases: Vec<Verdict>,
    /// The number of impossible cases that only lack the port at the other end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_peer: usize,
    /// Why the partner on the other machine was lost, which ended the check; None if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Why the two ports are not the ends of one cable, which ended the check; None if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconnected: Option<String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Report {
    /// The number of cases with an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == outcome).count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Impossible => "impossible",
            Self::Error => "ERROR",
        })
    }
}

/// The names of all cases.
pub fn names() -> Vec<&'static str> {
    CASES.iter().map(|case| case.name).collect()
}

/// Runs the cases with these names, or all cases if no name is given, until `stop` is set.
///
/// # Errors
/// If the port or its peer does not exist.
pub fn run(port: &Port, peer: Option<&End>, only: &[String], stop: &AtomicBool) -> Result<Report, String> {
    port.shown()?;
    let peer = match peer {
        Some(peer) => {
            // An agent has looked for the port that it lends.
            if let End::Here(port) = peer {
                port.shown()?;
            }
            Some(peer.clone())
        }
        None => other_end(port).map(End::Here),
    };
    let driver = port.run(&format!("ethtool -i {}", port.name)).unwrap_or_default();
    let driver = driver.lines().find_map(|line| line.strip_prefix("driver: ")).unwrap_or_default();
    let mut report = Report {
        port: port.to_string(),
        driver: driver.to_owned(),
        peer: peer.as_ref().map(End::to_string),
        cases: Vec::new(),
        without_peer: 0,
        lost: None,
        unconnected: None,
    };
    for case in CASES.iter().filter(|case| only.is_empty() || only.iter().any(|name| name == case.name)) {
        if stop.load(Ordering::Relaxed) || report.lost.is_some() || report.unconnected.is_some() {
            break;
        }
        let began = Instant::now();
        let (outcome, evidence) = match one(case, port, peer.as_ref()) {
            Ok(evidence) => (Outcome::Pass, evidence),
            Err(Fault::Failed(evidence)) => (Outcome::Fail, evidence),
            Err(Fault::Impossible(reason)) => (Outcome::Impossible, reason),
            Err(Fault::NoPeer(reason)) => {
                report.without_peer += 1;
                (Outcome::Impossible, reason)
            }
            Err(Fault::Broken(reason)) => (Outcome::Error, reason),
            Err(Fault::Lost(reason)) => {
                report.lost = Some(reason.clone());
                (Outcome::Error, reason)
            }
            Err(Fault::Unconnected(reason)) => {
                report.unconnected = Some(reason.clone());
                (Outcome::Fail, reason)
            }
        };
        report.cases.push(Verdict {
            case: case.name.to_owned(),
            title: case.title.to_owned(),
            outcome,
            evidence,
            seconds: began.elapsed().as_secs_f64(),
        });
    }
    Ok(report)
}

/// Runs one case, then restores the settings that it changed, whatever the outcome.
fn one(case: &Case, port: &Port, peer: Option<&End>) -> Checked {
    let ends: Vec<End> = [End::Here(port.clone())].into_iter().chain(peer.cloned()).collect();
    let lost = || ends.iter().find_map(End::lost).map(Fault::Lost);
    let mut begun = Vec::new();
    for end in &ends {
        begun.push((end, end.begin().map_err(|why| lost().unwrap_or(Fault::Broken(why)))?));
    }
    let mut checked = carry_out(case, port, peer, &begun);
    for (end, before) in &begun {
        if let Err(why) = end.restore(before) {
            let seen = checked.unwrap_or_else(Fault::into_text);
            checked = Err(Fault::Broken(format!("{seen}; {why}")));
        }
    }
    // Whatever the case concluded from a partner that does not answer is no conclusion.
    lost().map_or(checked, Err)
}

fn carry_out(case: &Case, port: &Port, peer: Option<&End>, begun: &[(&End, Before)]) -> Checked {
    let wire = match peer {
        Some(peer) => {
            if let Some((down, _)) = begun.iter().find(|(_, before)| !before.is_up()) {
                return Err(Fault::Impossible(format!("{down} is down: ip link set {} up", down.name())));
            }
            port.wait_for_link().and_then(|()| peer.wait_for_link()).map_err(Fault::Failed)?;
            Some(Wire::open(port, peer)?)
        }
        None => None,
    };
    match (&case.run, &wire) {
        (Run::Wire(run), Some(wire)) => run(wire),
        (Run::Wire(_), None) => Err(Fault::no_peer(port)),
        (Run::Port(run), wire) => run(port, wire.as_ref()),
    }
}

/// The other end of a veth pair, if it is in the same namespace.
fn other_end(port: &Port) -> Option<Port> {
    let name = port.shown().ok()?.link?;
    let other = Port { netns: port.netns.clone(), name };
    // `link` of a VLAN device is its lower device, so check both directions.
    (other.shown().ok()?.link.as_ref() == Some(&port.name)).then_some(other)
}
