//! Simulated routers with a known throughput. Their behaviour follows from the seed.

use super::{Outcome, Trial};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::str::FromStr;

/// The behaviour of a simulated router.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// The most that the router forwards, in frames/s.
    pub capacity_pps: f64,
    /// Standard deviation of the capacity from trial to trial, as a share of it.
    pub jitter: f64,
    /// Share of the frames that are lost at any load, each independently.
    pub loss_floor: f64,
    /// Rate of interruptions per second.
    pub bursts_per_s: f64,
    /// Number of frames lost in each interruption.
    pub burst_frames: u64,
    /// Time in seconds until the router has its full capacity; until then it has half of it.
    pub warm_up_s: f64,
    /// Share of the capacity that is lost for each multiple of the capacity by which the router is overloaded (receive
    /// livelock).
    pub collapse: f64,
    /// Share of the capacity that an overloaded trial costs the next trial.
    pub hysteresis: f64,
}

/// A simulated router and its state.
#[derive(Debug)]
pub struct Router {
    behaviour: Behaviour,
    random: fastrand::Rng,
    ran_s: f64,
    was_overloaded: bool,
}

impl Default for Behaviour {
    /// Forwards exactly a million frames/s.
    fn default() -> Self {
        Self {
            capacity_pps: 1e6,
            jitter: 0.0,
            loss_floor: 0.0,
            bursts_per_s: 0.0,
            burst_frames: 0,
            warm_up_s: 0.0,
            collapse: 0.0,
            hysteresis: 0.0,
        }
    }
}

impl FromStr for Behaviour {
    type Err = String;

    /// Parses a list such as `capacity_pps=1e6,jitter=0.01`; values that are not named are the defaults.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut fields = Map::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not NAME=NUMBER"))?;
            let whole = value.parse::<u64>().map(Value::from).ok();
            let number =
                whole.or_else(|| Some(Value::from(value.parse::<f64>().ok().filter(|n| n.is_finite())?)));
            fields.insert(name.to_owned(), number.ok_or_else(|| format!("`{value}` is not a number"))?);
        }
        let behaviour: Self = serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())?;
        behaviour.check()?;
        Ok(behaviour)
    }
}

impl Behaviour {
    fn check(&self) -> Result<(), String> {
        for (name, value, most) in [
            ("capacity_pps", self.capacity_pps, 1e9),
            ("jitter", self.jitter, 1.0),
            ("loss_floor", self.loss_floor, 1.0),
            ("bursts_per_s", self.bursts_per_s, 1e6),
            ("warm_up_s", self.warm_up_s, 1e6),
            ("collapse", self.collapse, 1e6),
            ("hysteresis", self.hysteresis, 1.0),
        ] {
            if !(0.0..=most).contains(&value) {
                return Err(format!("{name} {value}: it must be from 0 to {most}"));
            }
        }
        Ok(())
    }
}

impl Router {
    /// A simulated router with this behaviour.
    pub fn new(behaviour: Behaviour, seed: u64) -> Self {
        Self { behaviour, random: fastrand::Rng::with_seed(seed), ran_s: 0.0, was_overloaded: false }
    }

    /// The outcome of a trial in one direction.
    pub fn measure(&mut self, trial: Trial) -> Outcome {
        let Trial { load_pps, duration_s } = trial;
        let offered = (load_pps * duration_s) as u64;
        let capacity = self.capacity(load_pps, duration_s);
        self.was_overloaded = load_pps > capacity;
        let lost_by_bursts =
            self.poisson(self.behaviour.bursts_per_s * duration_s) * self.behaviour.burst_frames;
        let lost_at_random = self.poisson(self.behaviour.loss_floor * offered as f64);
        let within = offered.min((capacity * duration_s) as u64);
        trial.outcome(1, offered, within.saturating_sub(lost_by_bursts + lost_at_random))
    }

    fn capacity(&mut self, load_pps: f64, duration_s: f64) -> f64 {
        let Behaviour { capacity_pps, jitter, warm_up_s, collapse, hysteresis, .. } = self.behaviour;
        let mut capacity = capacity_pps * (1.0 + jitter * self.normal());
        if self.was_overloaded {
            capacity *= 1.0 - hysteresis;
        }
        let cold_s = (warm_up_s - self.ran_s).clamp(0.0, duration_s);
        self.ran_s += duration_s;
        capacity *= 1.0 - 0.5 * cold_s / duration_s;
        let excess = (load_pps / capacity - 1.0).max(0.0);
        capacity / (1.0 + collapse * excess)
    }

    /// A Poisson-distributed number of events with this mean: draws intervals until their sum exceeds the time.
    fn poisson(&mut self, mean: f64) -> u64 {
        let mut at = 0.0;
        let mut events = 0;
        loop {
            at -= (1.0 - self.random.f64()).ln();
            if at >= mean {
                return events;
            }
            events += 1;
        }
    }

    /// A normally distributed number (Box-Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.random.f64()).cos()
    }
}
