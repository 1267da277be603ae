//! Routers that real frames go through.

use super::{Counted, Device, Seen, Work, connections};
use crate::{
    Conditions, Doubt, Kept, Limit, Nic,
    dut::{self, Inside},
    net::NetNs,
    search::Trial,
    traffic::{Error, Figures, Place, Session, Wanted, session},
};
use shunt_api::{Instance, PacketTotals, Status};
use shunt_gen::Schedule;
use std::{
    fs,
    io::{self, Write},
    mem::ManuallyDrop,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What makes a router in a namespace track connections, which Shunt learns from.
pub(crate) const RULESET: &str = "table inet filter { chain forward { type filter hook forward priority filter; policy drop; \
    ct state established,related accept; iifname \"r0\" ct state new accept; iifname \"r1\" ct state new accept; }; }";

/// One between two ports of the generator.
#[derive(Debug)]
pub struct Generated {
    /// Its name among the others.
    pub name: String,
    /// The frames. Rate, time and warm-up are those of the trials.
    pub wanted: Wanted,
    /// Where it is.
    pub place: Place,
    /// What forwards in a router of our own; none: Linux.
    pub engine: Option<Engine>,
    /// Ends it at the next trial.
    pub stop: Arc<AtomicBool>,
    /// What took part so far.
    pub nics: Vec<Nic>,
    /// Of the line, in one direction, as far as it is known.
    pub limit: Option<Limit>,
    /// Whose load is read as well.
    pub dut: Inside,
}

/// A Shunt in the router.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The program `shunt`.
    pub program: PathBuf,
    /// Which engine.
    pub name: String,
}

/// A Shunt that is up, until it is dropped.
pub(crate) struct Up<'n> {
    engine: &'n Engine,
    router: &'n NetNs,
}

impl Generated {
    /// What the generator can do with nothing in between, and the line carries, in frames/s of one direction.
    ///
    /// # Errors
    /// When the machine refuses, or it was stopped.
    pub fn generator_max_pps(&self) -> Result<f64, Error> {
        session(&self.wanted, &self.place, &self.stop, |session| {
            let most = Schedule { pps: None, burst: self.wanted.burst, packets: None, duration: None };
            let line = session.limit().map_or(f64::INFINITY, |limit| limit.value);
            let floor = session.floor(&most)?;
            unless_stopped(&self.stop)?;
            Ok::<_, Error>(floor.max_pps.min(line))
        })
    }
}

impl Device for Generated {
    type Error = Error;

    fn name(&self) -> &str {
        &self.name
    }

    fn doubts(&self) -> Vec<Doubt> {
        let virtual_links = self.nics.iter().any(|nic| nic.driver.as_deref() == Some("veth"));
        if virtual_links { vec![Doubt::VirtualLinks] } else { Vec::new() }
    }

    fn nics(&self) -> &[Nic] {
        &self.nics
    }

    fn counted(&self) -> Counted {
        if self.wanted.answered { Counted::Connections } else { Counted::Frames }
    }

    fn limit(&self) -> Option<Limit> {
        self.limit.clone()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn serve(&mut self, work: &mut Work<'_, Error>) -> Result<(), Error> {
        let Self { wanted, place, engine, stop, nics, limit, dut, .. } = self;
        session(wanted, place, stop, |session| {
            *nics = session.nics().to_vec();
            *limit = session.limit().filter(|_| !wanted.answered);
            let router = session.router();
            if let Some(router) = router {
                let ruleset = if wanted.answered { connections::RULESET } else { RULESET };
                router.try_run(&format!("nft '{ruleset}'"))?;
            }
            let up = Up::new(router, engine.as_ref())?;
            let done = work(&mut measure(session, wanted, stop, dut));
            if let Some(up) = up {
                up.down()?;
            }
            done
        })
    }
}

fn measure<'m>(
    session: &'m mut Session<'_>,
    wanted: &'m Wanted,
    stop: &'m AtomicBool,
    dut: &'m Inside,
) -> impl FnMut(Trial) -> Result<Seen, Error> + 'm {
    move |trial| {
        unless_stopped(stop)?;
        let duration = Some(Duration::from_secs_f64(trial.duration_s));
        let schedule = Schedule { pps: Some(trial.load_pps), burst: wanted.burst, packets: None, duration };
        let translating = session.router().filter(|_| wanted.answered);
        translating.map_or(Ok(()), connections::forget)?;
        let (directed, dut_load) = dut::run(session, &schedule, dut)?;
        let mut sum = Figures::sum(&directed);
        if let Some(router) = translating {
            // What was answered and is not tracked did not begin a connection.
            sum.received = sum.received.min(connections::tracked(router)?);
        }
        let span_s = directed.iter().map(|one| one.span_ns).min().unwrap_or(0) as f64 / 1e9;
        let outcome = sent_for(trial, span_s).outcome(directed.len() as u32, sum.sent, sum.received);
        Ok(Seen { outcome, latency_us: sum.latency_us, dut_load })
    }
}

/// Puts down what takes part in a bench, and has the router, where it is ours, track connections.
pub(crate) fn take_part<'n>(
    session: &Session<'n>,
    conditions: &mut Conditions,
    kept: Option<&mut Kept>,
) -> Result<Option<&'n NetNs>, Error> {
    conditions.nics = session.nics().to_vec();
    if let Some(kept) = kept {
        kept.took_part(session.nics());
    }
    let router = session.router();
    router.map(|router| router.try_run(&format!("nft '{RULESET}'"))).transpose()?;
    Ok(router)
}

pub(super) fn unless_stopped(stop: &AtomicBool) -> Result<(), Error> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Asked("interrupted before a search was over".to_owned())),
        false => Ok(()),
    }
}

/// What is left of a trial whose sender was held up until after its end. Until it was, the load was there; so the trial is not lost,
/// but counts for less. One that sent less than was due while it ran has lost the rest, and so has one that was held up for half
/// of its time or more.
fn sent_for(trial: Trial, span_s: f64) -> Trial {
    let held_up = span_s < trial.duration_s && span_s > trial.duration_s / 2.0;
    if held_up { Trial { duration_s: span_s, ..trial } } else { trial }
}

impl<'n> Up<'n> {
    /// None where the router is not ours, or Linux forwards.
    pub(crate) fn new(router: Option<&'n NetNs>, engine: Option<&'n Engine>) -> Result<Option<Self>, Error> {
        let Some((router, engine)) = router.zip(engine) else { return Ok(None) };
        let up = Self { engine, router };
        up.ask(&["up", "--engine", &engine.name, "--port", "r0", "--port", "r1"])?;
        Ok(Some(up))
    }

    pub(crate) fn down(self) -> Result<(), Error> {
        let up = ManuallyDrop::new(self);
        up.ask(&["down"])?;
        // Nobody knows this instance. Its log is of use only when something failed.
        Ok(fs::remove_file(up.instance()?.log_path())?)
    }

    /// Those that the fast path took, and all that the router got.
    pub(crate) fn packets(&self) -> Result<(u64, u64), Error> {
        let status: Status = serde_json::from_slice(&self.ask(&["status", "--json"])?)
            .map_err(|why| Error::Machine(format!("shunt status --json: {why}")))?;
        let PacketTotals { fast, slow, dropped, .. } = status.packets;
        Ok((fast, fast + slow + dropped))
    }

    fn instance(&self) -> Result<Instance, Error> {
        let name = self.router.name();
        name.parse().map_err(|_| Error::Machine(format!("{name} cannot name an instance of Shunt")))
    }

    /// What it said.
    fn ask(&self, words: &[&str]) -> Result<Vec<u8>, Error> {
        let program = self.engine.program.to_string_lossy();
        let mut command = self.router.command(&program);
        let output = command.args(["--instance", self.instance()?.as_str()]).args(words).output()?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(Error::Machine(said(&output.stderr))),
        }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        if let Err(why) = self.ask(&["down"]) {
            let _ = writeln!(io::stderr(), "{why}");
        }
    }
}

/// What the program complained of, without its name.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    text.strip_prefix("shunt: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_whose_sender_was_held_up_at_the_end_counts_for_less() {
        let trial = Trial { load_pps: 1e5, duration_s: 1.0 };
        let outcome = |span_s, sent| sent_for(trial, span_s).outcome(1, sent, sent);
        let late = outcome(0.9, 90_000);
        assert_eq!((late.loss_ratio(), late.effective_s), (0.0, 0.9));
        // Too slow all the time.
        assert!((outcome(0.99999, 90_000).loss_ratio() - 0.1).abs() < 1e-3);
        // Hardly sent.
        assert!((outcome(0.4, 40_000).loss_ratio() - 0.6).abs() < 1e-3);
        assert_eq!(outcome(0.0, 0).loss_ratio(), 1.0);
    }
}
