//! The text of `shunt compare`. Doubts stand above the numbers.

use crate::{
    failure::usage,
    render::{
        Format, Text,
        columns::align,
        style,
        units::{change_percent, number, rounded, unsigned_zero},
    },
};
use shunt_api::Failure;
use shunt_lab::{
    Compared, Comparison, Doubt, MARGIN, MachineState, Obstacle, Pairing, SHARES_MARGIN, Side, Spread,
    Verdict, statistics::runs_wanted,
};
use std::mem::discriminant;

/// How to compare files that cannot be compared one after the other.
const IN_TURN: &str = "repeat both measurements in turn, with --runs 1 and the same --keep files";

impl Text for Comparison {
    /// Without a reading in common, the lists only with --verbose: the failure says what each file has.
    fn text(&self, format: Format) -> String {
        if self.readings.is_empty() && !format.verbose { String::new() } else { describe(self) }
    }

    fn failure(&self) -> Option<Failure> {
        let Self { a, b, readings, .. } = self;
        readings.is_empty().then(|| {
            let has = |side: &Side| match &side.engines.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [] => format!("{} has `{}`", side.file, side.what),
                engines => format!("{} has `{}` ({})", side.file, side.what, engines.join(", ")),
            };
            usage(format!(
                "no reading in common: {}, {}; compare files of the same measurement and traffic",
                has(a),
                has(b)
            ))
        })
    }
}

fn describe(comparison: &Comparison) -> String {
    let Comparison { a, b, conditions, readings, alone } = comparison;
    let mut text = side("A", a) + &side("B", b);
    for differing in conditions {
        text += &format!("differs: {}: A {}, B {}\n", differing.name, differing.a, differing.b);
    }
    text += &doubts(readings);
    text += &machine_doubts(readings);
    if !readings.is_empty() {
        let mut rows =
            vec![["reading", "A", "B", "", "change", "95 %", "runs", ""].map(str::to_owned).to_vec()];
        rows.extend(readings.iter().map(fields));
        text += &align("<>><><", &rows);
        text += &held_together(readings);
    }
    alone.iter().for_each(|what| text += &format!("not compared: {what}\n"));
    text
}

/// The note that intervals hold together, if those of the readings do.
fn held_together(readings: &[Compared]) -> String {
    let together = readings.iter().map(|reading| reading.together).max().unwrap_or(1);
    match together {
        ..=1 => String::new(),
        several => {
            format!("95 %: all {several} intervals hold together, so each of them is wider than one alone.\n")
        }
    }
}

fn side(name: &str, side: &Side) -> String {
    let note = if side.complete { "" } else { ", interrupted" };
    format!("{name}: {}, {}, started {}{note}\n", side.file, side.what, side.began)
}

/// The doubts of all readings, one of each kind, with the number of others of that kind.
fn doubts(readings: &[Compared]) -> String {
    let mut kinds: Vec<(&Doubt, usize)> = Vec::new();
    for doubt in readings.iter().flat_map(|reading| &reading.doubts) {
        match kinds.iter_mut().find(|(first, _)| discriminant(*first) == discriminant(doubt)) {
            Some((first, others)) => *others += usize::from(*first != doubt),
            None => kinds.push((doubt, 0)),
        }
    }
    let line = |(doubt, others): &(&Doubt, usize)| match others {
        0 => format!("doubt: {doubt}\n"),
        _ => format!("doubt: {doubt}, and {others} more of this kind\n"),
    };
    kinds.iter().map(line).collect()
}

/// Doubts about readings whose runs were not made in turn, with the state of the machine that was the worst.
fn machine_doubts(readings: &[Compared]) -> String {
    let is_in_sequence = |reading: &&Compared| {
        reading.pairing == Pairing::InSequence && reading.obstacle != Some(Obstacle::TooFewRuns)
    };
    let in_sequence = || readings.iter().filter(is_in_sequence);
    if in_sequence().next().is_none() {
        return String::new();
    }
    let mut text =
        "doubt: the runs were not made in turn: a difference of up to 5 % may be a change of the machine\n"
            .to_owned();
    let has = |obstacle| in_sequence().any(|reading| reading.obstacle == Some(obstacle));
    let worst = |of: fn(&MachineState) -> f64| {
        let apart = |machine: &[MachineState; 2]| machine.map(|state| of(&state));
        let states = in_sequence().filter_map(|reading| reading.machine.as_ref()).map(apart);
        states.max_by(|one, other| one[0].max(one[1]).total_cmp(&other[0].max(other[1])))
    };
    if let Some([a, b]) = worst(|state| state.others_percent).filter(|_| has(Obstacle::MachineBusy)) {
        let (a, b) = (rounded(a), rounded(b));
        text +=
            &format!("doubt: other programs used {a} % of the CPUs during A and {b} % during B; {IN_TURN}\n");
    }
    if let Some([a, b]) = worst(|state| state.work_us).filter(|_| has(Obstacle::MachineChanged)) {
        let (a, b) = (number(a / 1e3), number(b / 1e3));
        text +=
            &format!("doubt: the same work took {a} ms of a CPU during A and {b} ms during B; {IN_TURN}\n");
    }
    if has(Obstacle::MachineUnknown) {
        text +=
            &format!("doubt: the files do not say how busy the machine was; {IN_TURN}, or measure again\n");
    }
    text
}

fn fields(compared: &Compared) -> Vec<String> {
    let Compared { name, unit, runs, pairing, spread, .. } = compared;
    let runs = match pairing {
        Pairing::Interleaved => format!("{} in turn", runs.0.min(runs.1)),
        Pairing::InSequence => format!("{} and {}", runs.0, runs.1),
    };
    vec![
        name.clone(),
        number(compared.a),
        number(compared.b),
        unit.clone(),
        change(compared),
        spread.map_or("-".to_owned(), |spread| interval(compared, spread)),
        runs,
        marked(compared),
    ]
}

/// The change from A to B: in percent of A, in percentage points for shares, or in the unit if A may be 0.
pub(crate) fn change(compared: &Compared) -> String {
    let value = compared.difference.or(compared.ratio);
    value.map_or("-".to_owned(), |value| amount(compared, value))
}

/// The confidence interval of the change.
pub(crate) fn interval(compared: &Compared, spread: Spread) -> String {
    let [low, high] = [spread.low, spread.high].map(|end| amount(compared, end));
    // The unit stands once.
    format!("{} to {high}", low.split_once(' ').map_or(&*low, |(number, _)| number))
}

/// The conclusion in its colour: green if better, red if worse.
pub(crate) fn marked(compared: &Compared) -> String {
    let conclusion = conclusion(compared);
    match compared.verdict {
        Verdict::Better => style::good(&conclusion),
        Verdict::Worse => style::bad(&conclusion),
        _ => conclusion,
    }
}

/// The conclusion, with its margin, or with why there is none and what would tell.
fn conclusion(compared: &Compared) -> String {
    let is_shares = compared.difference.is_some() && compared.unit == "%";
    match (compared.verdict, compared.obstacle) {
        (Verdict::Better, _) => "better".to_owned(),
        (Verdict::Worse, _) => "worse".to_owned(),
        (Verdict::Differs, _) => "differs".to_owned(),
        (Verdict::Equal, _) if is_shares => format!("equal within {SHARES_MARGIN} point"),
        (Verdict::Equal, _) => format!("equal within {} %", MARGIN * 100.0),
        (Verdict::CannotTell, obstacle) => {
            let why = match obstacle {
                Some(Obstacle::TooFewRuns) => {
                    let least = runs_wanted(compared.pairing == Pairing::Interleaved, compared.together);
                    format!("at least {least} runs of each are needed")
                }
                Some(Obstacle::MayBeDrift) => "runs made in turn are needed".to_owned(),
                Some(Obstacle::MachineUnknown) => "the machine's load is not recorded".to_owned(),
                Some(Obstacle::MachineBusy) => "the machine was busy".to_owned(),
                Some(Obstacle::MachineChanged) => "the machine changed".to_owned(),
                Some(Obstacle::WideInterval) | None => runs_that_would_tell(compared),
            };
            format!("cannot tell: {why}")
        }
    }
}

/// The number of runs that would tell: the interval narrows with the square root of their number.
fn runs_that_would_tell(compared: &Compared) -> String {
    const MANY: f64 = 100.0;
    let spread = compared.spread.filter(|_| compared.ratio.is_some());
    let runs = spread.map(|Spread { low, high, .. }| {
        let apart = (high - 1.0).abs().max((1.0 - low).abs()) / MARGIN;
        compared.runs.0.max(compared.runs.1) as f64 * apart.powi(2)
    });
    match runs {
        Some(runs) if runs < MANY => format!("about {runs:.0} runs of each are needed"),
        Some(_) => format!("more than {MANY} runs of each, or less noise, are needed"),
        None => "more runs or less noise are needed".to_owned(),
    }
}

fn amount(compared: &Compared, value: f64) -> String {
    match compared.difference {
        Some(_) => {
            let unit = if compared.unit == "%" { "points" } else { &compared.unit };
            format!("{} {unit}", unsigned_zero(format!("{value:+.2}")))
        }
        None => change_percent((value - 1.0) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::FailureCode;
    use shunt_lab::{Conditions, Labels, MachineSample, PathLabel, Reading, Results, Run};

    /// Six rates, one a second from `first` on, while other programs use some of the CPUs.
    fn file(what: &str, name: &str, first: u32, others_percent: f64) -> Results {
        let mut results = Results::new(what, Conditions::default());
        let at = |second: u32| format!("2026-01-02T03:04:{second:02}.000Z");
        let seconds = first..first + 6;
        let run = |second| Run { at: Some(at(second)), ..Run::from(f64::from(1000 + second % 3)) };
        let mut rate = Reading::from_runs("pps", seconds.clone().map(run).collect()).unwrap();
        rate.labels = Labels { engine: PathLabel::from_name("tc"), ..Labels::default() };
        results.readings.insert(name.to_owned(), rate);
        let sample = |second| MachineSample { at: at(second), others_percent, work_us: 5000.0 };
        results.machine = seconds.map(sample).collect();
        results
    }

    #[test]
    fn files_with_nothing_in_common_fail_and_say_what_each_has() {
        let (a, b) = (file("goodput matrix", "tc", 0, 0.0), file("UDP rate sweep", "r0", 10, 0.0));
        let failure = Text::failure(&Comparison::new(("a.json", &a), ("b.json", &b))).unwrap();
        assert_eq!(failure.code, FailureCode::Usage);
        let each = "no reading in common: a.json has `goodput matrix` (tc), b.json has `UDP rate sweep` (tc); compare";
        assert!(failure.message.starts_with(each), "{}", failure.message);
        let comparison = Comparison::new(("a.json", &a), ("b.json", &b));
        assert_eq!(comparison.text(Format::default()), "");
        assert!(comparison.text(Format { verbose: true, ..Format::default() }).contains("only in A"));
        assert_eq!(Text::failure(&Comparison::new(("a.json", &a), ("a.json", &a))), None);
    }

    #[test]
    fn a_busy_machine_is_named_with_what_to_do() {
        let (a, b) = (file("throughput", "ndr", 0, 1.0), file("throughput", "ndr", 10, 63.2));
        let text = describe(&Comparison::new(("a.json", &a), ("b.json", &b)));
        let doubt = "doubt: other programs used 1.0 % of the CPUs during A and 63.2 % during B; repeat both";
        assert!(text.contains(doubt) && text.contains("cannot tell: the machine was busy"), "{text}");
    }
}
