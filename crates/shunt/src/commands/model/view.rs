//! The answers of `shunt model`. Each text says that it is a model, since its figures look like measurements.

pub(crate) mod stories;

use crate::render::{Answer, Format, columns::align, units};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shunt_lab::PathLabel;
use shunt_model::{Explanation, Fit, Prediction, Times, stories::StoryPredictions};

/// An answer of `shunt model`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelAnswer {
    Run {
        name: String,
        prediction: Box<Prediction>,
    },
    Sweep(Vec<ModelPoint>),
    Explained(Vec<ModelPoint>),
    Fit {
        fit: Fit,
        /// Measured paths that the model does not know.
        left_out: Vec<PathLabel>,
    },
    Stories(Vec<StoryPredictions>),
    /// Case, parameter and value.
    Refitted(Vec<(String, String, f64)>),
    /// Name and description.
    Cases(Vec<(&'static str, String)>),
    Case(&'static str),
}

/// A point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelPoint {
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) prediction: Prediction,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explanation: Option<Explanation>,
}

fn rate(bits: f64) -> String {
    units::bits_per_second(bits as u64)
}

fn settings(settings: &[(String, String)]) -> String {
    let one = |(name, value): &(String, String)| {
        let number = value.parse::<f64>().ok().filter(|number| *number >= 10_000.0);
        match number {
            Some(bits) if name.contains("rate") => format!("{name}={}", rate(bits)),
            _ => format!("{name}={value}"),
        }
    };
    if settings.is_empty() {
        "as it is".to_owned()
    } else {
        settings.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

fn run(name: &str, prediction: &Prediction) -> String {
    let places = prediction.drops.by_place().into_iter().filter(|(count, _)| *count > 0);
    let lost: Vec<String> = places.map(|(count, what)| format!("{count} {what}")).collect();
    let busy = prediction.busy.iter().filter(|(_, busy)| *busy > 0.0);
    let busy: Vec<String> =
        busy.map(|(part, busy)| format!("{} {:.0} %", part.name(), 100.0 * busy)).collect();
    let each: Vec<String> = prediction.goodput.iter().map(|bits| rate(*bits)).collect();
    let mut rows = vec![
        ["offered".to_owned(), rate(prediction.offered)],
        ["goodput".to_owned(), each.join(" and ")],
        ["loss".to_owned(), format!("{:.3} %", 100.0 * prediction.loss)],
        ["CPU load".to_owned(), load(prediction)],
        ["busy".to_owned(), busy.join(", ")],
    ];
    for (name, times) in [("time in the board", prediction.latency), ("ping", prediction.ping)] {
        if let Some(Times { mean_us, p99_us, max_us, .. }) = times {
            let [mean, p99, max] = [mean_us, p99_us, max_us].map(micros);
            rows.push([name.to_owned(), format!("{mean} on average, 99 % within {p99}, at most {max}")]);
        }
    }
    if prediction.pings_lost > 0 {
        rows.push(["lost pings".to_owned(), prediction.pings_lost.to_string()]);
    }
    if !lost.is_empty() {
        rows.push(["lost packets".to_owned(), lost.join(", ")]);
    }
    for (name, count) in
        [("pause frames", prediction.pauses), ("pause frames received", prediction.pauses_received)]
    {
        if count > 0 {
            rows.push([name.to_owned(), count.to_string()]);
        }
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.to_vec()).collect();
    format!("model of {name}, not a measurement\n{}", align("<", &rows))
}

fn load(prediction: &Prediction) -> String {
    let each: Vec<String> = prediction.cores.iter().map(|load| format!("{:.1} %", 100.0 * load)).collect();
    if each.len() > 1 { each.join(", ") } else { format!("{:.1} % of one core", 100.0 * prediction.cpu) }
}

fn micros(us: f64) -> String {
    format!("{} us", significant(us))
}

fn sweep(points: &[ModelPoint]) -> String {
    let heads = ["at", "offered", "goodput", "loss", "CPU", "pauses", "time in the board", "99 %"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let time = |times: &Option<Times>, of: fn(&Times) -> f64| {
        times.as_ref().map_or("-".to_owned(), |times| micros(of(times)))
    };
    rows.extend(points.iter().map(|ModelPoint { settings: at, prediction, .. }| {
        vec![
            settings(at),
            rate(prediction.offered),
            rate(prediction.total()),
            format!("{:.2} %", 100.0 * prediction.loss),
            format!("{:.1} %", 100.0 * prediction.cpu),
            prediction.pauses.to_string(),
            time(&prediction.latency, |times| times.mean_us),
            time(&prediction.latency, |times| times.p99_us),
        ]
    }));
    format!("model, not a measurement\n{}", align("<>", &rows))
}

fn explained(points: &[ModelPoint]) -> String {
    let mut text = "model, not a measurement\n".to_owned();
    for ModelPoint { settings: at, prediction, explanation } in points {
        let Some(explanation) = explanation else { continue };
        text += &format!("{}: {} of {}\n", settings(at), rate(prediction.total()), rate(prediction.offered));
        text += &format!("  limit: {}: {}\n", explanation.bottleneck.name(), explanation.because);
        if explanation.next_goodput > prediction.total() * 1.01 {
            let next = explanation.next.name();
            text += &format!("  without that: {}; then {next}\n", rate(explanation.next_goodput));
        } else {
            text += &format!("  closest to its limit: {}\n", explanation.next.name());
        }
    }
    text
}

fn fit(fit: &Fit, left_out: &[PathLabel]) -> String {
    let mut rows = vec![["parameter", "value", "from", "to", ""].map(str::to_owned).to_vec()];
    rows.extend(fit.parameters.iter().map(|one| {
        vec![
            one.name.clone(),
            significant(one.value),
            significant(one.low),
            one.high.map_or("-".to_owned(), significant),
            match one.determined {
                true => "",
                false if fit.stopped => "search stopped: not known what determines it",
                false => "not determined by this data",
            }
            .to_owned(),
        ]
    }));
    let mut text = format!(
        "model, fitted; mean error {:.1} (% of goodput, points of loss and load)\n{}",
        fit.mean_error,
        align("<>>><", &rows)
    );
    for (a, b) in &fit.alike {
        text += &format!("this data cannot tell {a} and {b} apart\n");
    }
    for path in left_out {
        text += &format!("left out: readings of the path {path}, which the model does not know\n");
    }
    text
}

fn significant(value: f64) -> String {
    match value.abs() {
        0.0..0.001 => "0".to_owned(),
        0.001..10.0 => format!("{value:.3}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

impl Answer for ModelAnswer {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        crate::render::json(&to_json(self))
    }
}

fn describe(answer: &ModelAnswer) -> String {
    match answer {
        ModelAnswer::Run { name, prediction } => run(name, prediction),
        ModelAnswer::Sweep(points) => sweep(points),
        ModelAnswer::Explained(points) => explained(points),
        ModelAnswer::Fit { fit: found, left_out } => fit(found, left_out),
        ModelAnswer::Stories(all) => stories::describe(all),
        ModelAnswer::Refitted(values) => {
            let row = |(case, name, value): &(String, String, f64)| {
                vec![case.clone(), name.clone(), significant(*value)]
            };
            align("<<>", &values.iter().map(row).collect::<Vec<_>>())
        }
        ModelAnswer::Cases(cases) => {
            let row = |(name, about): &(&str, String)| vec![(*name).to_owned(), about.clone()];
            align("<", &cases.iter().map(row).collect::<Vec<_>>())
        }
        ModelAnswer::Case(text) => (*text).to_owned(),
    }
}

/// The same for programs. `model` marks predictions, so that nobody takes them for a measurement.
pub(crate) fn to_json(answer: &ModelAnswer) -> Value {
    match answer {
        ModelAnswer::Run { name, prediction } => json!({"model": name, "prediction": prediction}),
        ModelAnswer::Sweep(points) | ModelAnswer::Explained(points) => {
            json!({"model": true, "points": points})
        }
        ModelAnswer::Fit { fit, left_out } => json!({"model": true, "fit": fit, "left_out": left_out}),
        ModelAnswer::Stories(all) => json!(all),
        ModelAnswer::Refitted(values) => {
            let one = |(case, name, value): &(String, String, f64)| json!({"case": case, "parameter": name, "value": value});
            json!(values.iter().map(one).collect::<Vec<_>>())
        }
        ModelAnswer::Cases(cases) => {
            json!(cases.iter().map(|(name, about)| json!({"case": name, "about": about})).collect::<Vec<_>>())
        }
        ModelAnswer::Case(text) => json!(text),
    }
}
