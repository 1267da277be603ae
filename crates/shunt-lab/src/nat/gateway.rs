//! The router under test: emptied, filled with connections, and loaded.

use super::{
    connection::{Passed, StateTable, arrived_as},
    ports::tuples,
};
use crate::{
    dut::{self, LoadMeter},
    labels::FlowDirection,
    net::NetNs,
    search::{Outcome, Trial},
    throughput::{Engine, RunningShunt, connections},
    traffic::{Directed, Error, Figures, Session, masquerade, track},
};
use shunt_gen::Schedule;
use shunt_traffic::TrafficEnds;
use std::{
    net::Ipv4Addr,
    process::Command,
    time::{Duration, Instant},
};

/// Rate of validation, as a share of the rate at which connections were opened: known connections cost a router less.
const VALIDATION_SHARE: f64 = 0.8;
/// Where no rate is measured, and in validation, frames that did not arrive are sent this often: on a machine that does
/// other work, frames are lost.
const TRIES: u32 = 3;
/// Longest time until conntrack has freed all deleted entries.
const FREED: Duration = Duration::from_secs(60);

/// A router whose connections can be counted and deleted.
pub(super) trait Gateway {
    /// Deletes all connections; returns how long that took.
    fn empty(&mut self) -> Result<Duration, Error>;
    /// Test phase 1: opens this many connections at a rate, and validates each by an answer from the responder.
    fn open(&mut self, connections: u32, pace: Pace) -> Result<Opened, Error>;
    /// Lets senders run before ordinary threads, or no longer so: the last one was held up.
    fn change_priority(&mut self);
    /// Validates the connections of the last phase 1 again; returns the number of those that answered.
    fn validate(&mut self) -> Result<u64, Error>;
    /// Test phase 2: frames of all connections of the last phase 1, both ways at once.
    fn load(&mut self, trial: Trial) -> Result<Outcome, Error>;
    /// Packets on the fast path, and all packets; None without an engine.
    fn fast_packets(&self) -> Result<Option<(u64, u64)>, Error>;
}

/// How connections are opened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// At this rate; frames that the sender is late for are not sent, so that the rate holds.
    Exactly(f64),
    /// At this rate or slower; all frames are sent.
    AtMost(f64),
}

/// The outcome of test phase 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Opened {
    /// Number of frames sent, each for another connection.
    pub(super) sent: u64,
    /// Whether the sender was held up, so that the rate was not offered. A sender that is too slow for the rate is not.
    pub(super) held_up: bool,
    /// Number of connections whose first frame passed, translated, and whose answer passed back.
    pub(super) established: u64,
    /// Number of connections that the router tracked after the first frames; None if it cannot be asked.
    pub(super) tracked: Option<u64>,
}

/// A real router.
pub(super) struct Router<'s, 'n> {
    session: &'s mut Session<'n>,
    own: Option<&'s NetNs>,
    up: Option<RunningShunt<'s>>,
    /// The command that empties the table of a router that is not our own.
    empty: Option<&'s str>,
    /// The NAT's address, if it is known.
    nat: Option<Ipv4Addr>,
    seed: u64,
    flows: u32,
    tuples: Vec<TrafficEnds>,
    table: StateTable,
    /// Rate of the last validation, in frames/s.
    validation_pps: f64,
}

impl<'s, 'n> Router<'s, 'n> {
    /// Sets up masquerade and long timeouts in a router of our own, and starts its engine.
    pub(super) fn set_up(
        session: &'s mut Session<'n>,
        engine: Option<&'s Engine>,
        empty: Option<&'s str>,
        nat: Option<Ipv4Addr>,
        seed: u64,
    ) -> Result<Self, Error> {
        let up = RunningShunt::beside(session, engine)?;
        let own: Option<&'s NetNs> = session.router();
        if let Some(ns) = own {
            track(ns)?;
            masquerade(ns)?;
        }
        let (tuples, table) = (Vec::new(), StateTable::default());
        Ok(Self { session, own, up, empty, nat, seed, flows: 0, tuples, table, validation_pps: 0.0 })
    }

    /// Stops the engine.
    pub(super) fn down(self) -> Result<(), Error> {
        self.up.map_or(Ok(()), RunningShunt::down)
    }

    fn resize(&mut self, flows: u32) -> Result<(), Error> {
        if self.flows != flows {
            self.session.set_flows(flows)?;
            let [from, to] = self.session.addresses()?;
            self.tuples = tuples(flows, self.seed, from, to);
            self.flows = flows;
        }
        Ok(())
    }

    /// Sends one frame with each of these ends; returns the number sent, and whether the sender was held up. If the
    /// rate must hold, late frames are not sent.
    fn send(
        &mut self,
        way: FlowDirection,
        ends: &[TrafficEnds],
        pps: f64,
        exactly: bool,
    ) -> Result<(u64, bool), Error> {
        self.session.list(way, ends)?;
        let duration = exactly.then(|| Duration::from_secs_f64(ends.len() as f64 / pps));
        let once = Schedule { pps: Some(pps), burst: 1, packets: Some(ends.len() as u64), duration };
        let ran = self.session.run_one_way(way, &once)?;
        self.unless_stopped()?;
        Ok((ran.figures.sent, ran.is_held_up()))
    }

    /// Whether the user has stopped the measurement.
    pub(super) fn is_stopped(&self) -> bool {
        self.session.stopped()
    }

    /// Fails if the user has stopped the measurement: what was cut short says nothing about the router.
    fn unless_stopped(&self) -> Result<(), Error> {
        match self.is_stopped() {
            true => Err(Error::Asked("interrupted before the first result was complete".to_owned())),
            false => Ok(()),
        }
    }
}

impl Gateway for Router<'_, '_> {
    fn empty(&mut self) -> Result<Duration, Error> {
        match (self.own, self.empty) {
            (Some(ns), _) => ns.within(|| {
                let began = Instant::now();
                run(Command::new("conntrack").arg("-F"))?;
                while connections::tracked_here()? > 0 {
                    if began.elapsed() > FREED {
                        let why = "connections remain in the router after conntrack -F";
                        return Err(Error::Machine(why.to_owned()));
                    }
                    std::thread::yield_now();
                }
                Ok(began.elapsed())
            }),
            (None, Some(command)) => {
                let began = Instant::now();
                run(Command::new("sh").args(["-c", command]))?;
                Ok(began.elapsed())
            }
            (None, None) => Err(Error::Asked("no command empties the router's table".to_owned())),
        }
    }

    fn open(&mut self, connections: u32, pace: Pace) -> Result<Opened, Error> {
        self.resize(connections)?;
        let (pps, exactly) = match pace {
            Pace::Exactly(pps) => (pps, true),
            Pace::AtMost(pps) => (pps, false),
        };
        let mut missing = self.tuples.clone();
        let (mut sent, mut held_up, mut passed, mut arrivals) = (0, false, Vec::new(), Vec::new());
        for _ in 0..if exactly { 1 } else { TRIES } {
            let packets = missing.len() as u64;
            let (sent_now, held_up_now) = self.send(FlowDirection::Forward, &missing, pps, exactly)?;
            (sent, held_up) = (sent.max(sent_now), held_up || held_up_now);
            let arrived = self.session.arrivals(FlowDirection::Forward)?;
            let (there, lost): (Vec<_>, Vec<_>) =
                missing.into_iter().zip(arrived).partition(|(_, arrival)| arrival.packets > 0);
            let (ends, those): (Vec<_>, Vec<_>) = there.into_iter().unzip();
            passed.extend(ends);
            arrivals.extend(those);
            missing = lost.into_iter().map(|(ends, _)| ends).collect();
            // A router that loses most of them does not lose them by chance.
            if missing.is_empty() || missing.len() as u64 * 2 > packets {
                break;
            }
        }
        let tracked = self.own.map(connections::tracked).transpose()?;
        self.table = StateTable::observe(&passed, &arrivals, self.nat);
        self.table.shuffle(self.seed.wrapping_add(1));
        let StateTable { connections, untranslated, misdelivered, shared } = &self.table;
        if connections.is_empty() && untranslated + misdelivered + shared > 0 {
            return Err(Error::Asked(format!(
                "frames pass the router, but no connection does: {untranslated} were not translated to the NAT's address, \
                 {misdelivered} had another destination, {shared} had the ports of another connection; is --tx the inner \
                 side of the NAT?"
            )));
        }
        self.validation_pps = pps * VALIDATION_SHARE;
        Ok(Opened { sent, held_up, established: self.validate()?, tracked })
    }

    fn change_priority(&mut self) {
        self.session.change_priority();
    }

    fn validate(&mut self) -> Result<u64, Error> {
        let mut waiting = self.table.connections.clone();
        for _ in 0..TRIES {
            if waiting.is_empty() {
                break;
            }
            let answers: Vec<_> = waiting.iter().map(|known| known.outside.reversed()).collect();
            self.send(FlowDirection::Reverse, &answers, self.validation_pps, false)?;
            let mut arrivals = self.session.arrivals(FlowDirection::Reverse)?.into_iter();
            waiting
                .retain(|known| !arrivals.next().is_some_and(|at| arrived_as(known.inside.reversed(), &at)));
        }
        Ok((self.table.connections.len() - waiting.len()) as u64)
    }

    fn load(&mut self, trial: Trial) -> Result<Outcome, Error> {
        let known = &self.table.connections;
        let inside: Vec<_> = known.iter().map(|known| known.inside).collect();
        self.session.list(FlowDirection::Forward, &inside)?;
        let answers: Vec<_> = known.iter().map(|known| known.outside.reversed()).collect();
        self.session.list(FlowDirection::Reverse, &answers)?;
        let duration = Some(Duration::from_secs_f64(trial.duration_s));
        let schedule = Schedule { pps: Some(trial.load_pps), burst: 1, packets: None, duration };
        let (directed, _) = dut::run(self.session, &schedule, &LoadMeter::None, || Ok(()))?;
        self.unless_stopped()?;
        let forward = self.session.arrivals(FlowDirection::Forward)?;
        let reverse = self.session.arrivals(FlowDirection::Reverse)?;
        let frames = Passed::count(known.iter().map(|known| known.outside), &forward).frames
            + Passed::count(known.iter().map(|known| known.inside.reversed()), &reverse).frames;
        let sender_late = directed.iter().any(Directed::is_held_up);
        let sent = Figures::sum(&directed).sent;
        Ok(Outcome { sender_late, ..trial.outcome(directed.len() as u32, sent, frames) })
    }

    fn fast_packets(&self) -> Result<Option<(u64, u64)>, Error> {
        self.up.as_ref().map(RunningShunt::packets).transpose()
    }
}

fn run(command: &mut Command) -> Result<(), Error> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Machine(format!("{command:?}: {}: {}", output.status, stderr.trim_end())))
}
