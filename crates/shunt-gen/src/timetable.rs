//! Schedules whose rate changes: a warm-up, a ramp, and a rate that holds.

use crate::Wrong;
use std::time::Duration;

/// Steps that a linear ramp has at most; the due times within a step are evenly spaced.
const RAMP_PARTS: u32 = 100;
/// Steps that a ramp in steps has at most.
pub const RAMP_STEPS_MAX: u32 = 100;
/// An end that no schedule reaches, in ns / 65536: 39 hours.
const NEVER: u64 = u64::MAX / 2;

/// A part of a schedule with one rate. Times are in ns / 65536 since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// When the first packet is due.
    pub from: u64,
    /// No packet is due from then on.
    pub until: u64,
    /// Interval between packets; 0 for as fast as the sender can.
    pub interval: u64,
}

/// A rate that rises or falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// The first rate in packets/s.
    pub from: f64,
    /// The rate at the end, in packets/s.
    pub to: f64,
    /// Time from the first rate to the last.
    pub time: Duration,
    /// Number of rates of equal duration before the last one; None for a linear ramp.
    pub steps: Option<u32>,
}

/// The rates of a stream, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Timetable {
    /// The steps in their order.
    pub steps: Vec<Step>,
    /// Packets that are due before do not count; in ns / 65536 since the start.
    pub warm_until: u64,
}

/// The times and rates from which a [`Timetable`] is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// Time without packets at the start.
    pub delay: Duration,
    /// Duration of packets that do not count, at the first rate.
    pub warm_up: Duration,
    /// The ramp to `pps`, if there is one; [`Ramp::to`] is `pps`.
    pub ramp: Option<Ramp>,
    /// The rate that holds, in packets/s; None for as fast as the sender can.
    pub pps: Option<f64>,
    /// Duration of the packets that count, with the ramp; None for no end.
    pub duration: Option<Duration>,
}

impl Ramp {
    /// The steps from this time on. Packets of a linear ramp are due when its integral reaches a whole number.
    fn steps_from(&self, start: u64) -> Vec<Step> {
        let seconds = self.time.as_secs_f64();
        let at = |second: f64| start + units(second);
        if let Some(count) = self.steps {
            let level = |n: u32| self.from + (self.to - self.from) * f64::from(n) / f64::from(count);
            let part = seconds / f64::from(count);
            return (0..count)
                .map(|n| {
                    let (from, until) = (at(part * f64::from(n)), at(part * f64::from(n + 1)));
                    Step { from, until, interval: interval(level(n)) }
                })
                .collect();
        }
        let slope = (self.to - self.from) / seconds;
        let sent_by = |second: f64| (self.from + slope * second / 2.0) * second;
        let due =
            |packet: f64| 2.0 * packet / (self.from + (self.from.powi(2) + 2.0 * slope * packet).sqrt());
        let last = (sent_by(seconds) - 1e-6).ceil();
        // Steps begin when a packet is due, so that none is missing or doubled between two of them.
        let mut knots: Vec<f64> = (0..RAMP_PARTS)
            .map(|n| (sent_by(seconds * f64::from(n) / f64::from(RAMP_PARTS)) - 1e-6).ceil().max(0.0))
            .filter(|packet| *packet < last)
            .collect();
        knots.dedup();
        let ends =
            knots.iter().skip(1).map(|packet| (*packet, at(due(*packet)))).chain([(last, at(seconds))]);
        let starts = knots.iter().map(|packet| (*packet, at(due(*packet))));
        starts
            .zip(ends)
            .map(|((first, from), (next, until))| {
                let interval = ((until - from) as f64 / (next - first)).ceil() as u64;
                Step { from, until, interval: interval.max(1) }
            })
            .collect()
    }
}

impl Course {
    /// The steps of this course.
    ///
    /// # Errors
    /// Fails if the ramp takes longer than the whole duration, has no time or too many steps.
    pub fn timetable(&self) -> Result<Timetable, Wrong> {
        if let Some(ramp) = self.ramp {
            check(&ramp, self.duration)?;
        }
        let first = self.ramp.map_or(self.pps, |ramp| Some(ramp.from));
        let start = units(self.delay.as_secs_f64());
        let warm_until = start + units(self.warm_up.as_secs_f64());
        let end = self.duration.map_or(NEVER, |time| warm_until + units(time.as_secs_f64()));
        let mut steps = Vec::new();
        if warm_until > start {
            steps.push(Step { from: start, until: warm_until, interval: first.map_or(0, interval) });
        }
        steps.extend(Self::after(warm_until, self.ramp, self.pps, end));
        Ok(Timetable { steps, warm_until })
    }

    /// The steps of another rate from a time on, until the end of the schedule: to change a stream that is being sent.
    ///
    /// # Errors
    /// As [`Course::timetable`].
    pub fn change(at: u64, ramp: Option<Ramp>, pps: Option<f64>, end: u64) -> Result<Vec<Step>, Wrong> {
        if let Some(ramp) = ramp {
            check(&ramp, None)?;
        }
        Ok(Self::after(at, ramp, pps, end))
    }

    fn after(at: u64, ramp: Option<Ramp>, pps: Option<f64>, end: u64) -> Vec<Step> {
        let mut steps = ramp.map_or(Vec::new(), |ramp| ramp.steps_from(at));
        let from = at + ramp.map_or(0, |ramp| units(ramp.time.as_secs_f64()));
        steps.push(Step { from, until: end, interval: pps.map_or(0, interval) });
        steps.retain(|step| step.from < step.until.min(end));
        steps.iter_mut().for_each(|step| step.until = step.until.min(end));
        steps
    }
}

impl Timetable {
    /// Number of packets that count; None if a step has no pacing or the schedule has no end.
    pub fn offered(&self) -> Option<u64> {
        let counted = self.steps.iter().filter(|step| step.from >= self.warm_until);
        counted
            .map(|step| {
                (step.interval > 0 && step.until < NEVER)
                    .then(|| (step.until - step.from).div_ceil(step.interval))
            })
            .sum()
    }

    /// When the schedule ends, in ns / 65536 since the start; a time that is never reached if it has no end.
    pub fn end(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.until)
    }

    /// The highest rate in packets/s; None if a step has no pacing.
    pub fn most_pps(&self) -> Option<f64> {
        let least = self.steps.iter().map(|step| step.interval).min()?;
        (least > 0).then(|| 1e9 * 65536.0 / least as f64)
    }
}

fn check(ramp: &Ramp, duration: Option<Duration>) -> Result<(), Wrong> {
    if ramp.time.is_zero() {
        return Err(Wrong::because("a ramp of 0s: its duration is more than 0"));
    }
    if let Some(steps) = ramp.steps.filter(|steps| !(1..=RAMP_STEPS_MAX).contains(steps)) {
        return Err(Wrong::because(format!("a ramp in {steps} steps: 1 to {RAMP_STEPS_MAX} are possible")));
    }
    match duration {
        Some(time) if ramp.time > time => Err(Wrong::because(format!(
            "a ramp of {:?} does not fit into {time:?}: shorten it, or send for longer",
            ramp.time
        ))),
        _ => Ok(()),
    }
}

/// A time in ns / 65536.
fn units(seconds: f64) -> u64 {
    ((seconds * 1e9 * 65536.0).round() as u64).min(NEVER)
}

fn interval(pps: f64) -> u64 {
    ((1e9 * 65536.0 / pps - 1e-6).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn course(ramp: Option<Ramp>, pps: Option<f64>) -> Course {
        Course { delay: Duration::ZERO, warm_up: Duration::ZERO, ramp, pps, duration: Some(SECOND * 10) }
    }

    /// The number of packets that are due between two seconds.
    fn due_within(table: &Timetable, from: f64, until: f64) -> usize {
        let (from, until) = (units(from), units(until));
        let all = table
            .steps
            .iter()
            .flat_map(|step| (step.from..step.until).step_by(usize::try_from(step.interval).unwrap()));
        all.filter(|due| (from..until).contains(due)).count()
    }

    #[test]
    fn a_linear_ramp_follows_its_integral_in_every_slice() {
        for (from, to) in [(1_000.0, 9_000.0), (9_000.0, 1_000.0), (0.5, 2_000.0), (40.0, 60.0)] {
            let ramp = Ramp { from, to, time: SECOND * 8, steps: None };
            let table = course(Some(ramp), Some(to)).timetable().unwrap();
            let integral = |t: f64| from * t + (to - from) * t * t / 16.0;
            for n in 0..16 {
                let (a, b) = (f64::from(n) * 0.5, f64::from(n + 1) * 0.5);
                let (got, want) = (due_within(&table, a, b) as f64, integral(b) - integral(a));
                // Within a step the rate is constant: that is 1/100 of the ramp.
                assert!((got - want).abs() <= 1.0 + want * 0.01, "{from} to {to}, {a} s: {got}, not {want}");
            }
            assert_eq!(due_within(&table, 0.0, 8.0) as f64, (integral(8.0) - 1e-6).ceil());
            assert_eq!(due_within(&table, 8.0, 10.0) as f64, to * 2.0);
            assert_eq!(table.offered().unwrap() as usize, due_within(&table, 0.0, 10.0));
        }
    }

    #[test]
    fn a_ramp_in_steps_has_equal_steps() {
        let ramp = Ramp { from: 100.0, to: 500.0, time: SECOND * 4, steps: Some(4) };
        let table = course(Some(ramp), Some(500.0)).timetable().unwrap();
        let seconds: Vec<usize> = (0..6).map(|s| due_within(&table, s.into(), (s + 1).into())).collect();
        assert_eq!(seconds, [100, 200, 300, 400, 500, 500]);
        assert_eq!((table.offered(), table.steps.len()), (Some(1000 + 6 * 500), 5));
        assert!((table.most_pps().unwrap() - 500.0).abs() < 1e-3);
    }

    #[test]
    fn a_warm_up_does_not_count_and_a_delay_has_no_packets() {
        let plain = course(None, Some(1000.0));
        let table = Course { delay: SECOND, warm_up: SECOND * 2, ..plain }.timetable().unwrap();
        assert_eq!((due_within(&table, 0.0, 1.0), due_within(&table, 1.0, 3.0)), (0, 2000));
        assert_eq!((table.offered(), table.warm_until, table.end()), (Some(10_000), units(3.0), units(13.0)));
        let endless = Course { duration: None, ..plain }.timetable().unwrap();
        assert_eq!((endless.offered(), endless.most_pps().map(f64::round)), (None, Some(1000.0)));
        assert_eq!(course(None, None).timetable().unwrap().offered(), None);
    }

    #[test]
    fn impossible_ramps_are_refused() {
        let ramp = Ramp { from: 1.0, to: 2.0, time: SECOND * 11, steps: None };
        let why = |ramp| course(Some(ramp), Some(2.0)).timetable().unwrap_err().to_string();
        assert_eq!(why(ramp), "a ramp of 11s does not fit into 10s: shorten it, or send for longer");
        assert_eq!(why(Ramp { time: Duration::ZERO, ..ramp }), "a ramp of 0s: its duration is more than 0");
        let many = Ramp { time: SECOND, steps: Some(101), ..ramp };
        assert_eq!(why(many), "a ramp in 101 steps: 1 to 100 are possible");
    }
}
