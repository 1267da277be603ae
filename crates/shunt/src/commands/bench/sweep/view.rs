//! The text of `shunt bench sweep`. Doubts stand above the numbers.

use crate::render::{Format, Text, columns::align, units};
use shunt_lab::{
    counters::Change,
    sweep::{Beyond, Knee, Report, Step},
    traffic::{Directed, Figures},
};

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(report: &Report) -> String {
    let mut text: String = report.doubts.iter().map(|doubt| format!("doubt: {doubt}\n")).collect();
    for step in &report.steps {
        for doubt in step.doubts.iter().filter(|doubt| !report.doubts.contains(doubt)) {
            text += &format!("doubt: at {}: {doubt}\n", bits(step.offered_bps as f64));
        }
    }
    let load_doubts =
        report.steps.iter().filter_map(|step| step.dut_load.as_ref()).flat_map(|load| &load.doubts);
    for line in load_doubts.map(|doubt| format!("doubt: the load of the DUT: {doubt}\n")) {
        if !text.contains(&line) {
            text += &line;
        }
    }
    let heads = [
        "offered",
        "direction",
        "achieved",
        "arrived",
        "line",
        "sent",
        "received",
        "lost",
        "",
        "95 %",
        "jitter us",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(
        report
            .steps
            .iter()
            .flat_map(|step| step.directions.iter().map(move |direction| fields(step, direction))),
    );
    let loads = report.steps.iter().flat_map(|step| step.directions.iter().map(|_| step.dut_load.as_ref()));
    if report.steps.iter().any(|step| step.dut_load.is_some()) {
        rows[0].push("DUT load".to_owned());
        for (row, load) in rows[1..].iter_mut().zip(loads) {
            row.push(units::load(load.map(|load| load.load_percent)));
        }
    }
    text += &align("><>", &rows);
    text += &troubles(&report.steps);
    report.knees.iter().for_each(|knee| text += &describe_knee(knee));
    text += &format!(
        "Steps of {} s; bit/s count frames with FCS. Counters whose names do not suggest trouble are in the JSON only.{}\n",
        report.step_s,
        units::variant(Some(&report.variant))
    );
    let mut directions = report.steps.iter().flat_map(|step| &step.directions);
    match directions.find_map(|direction| direction.limit.as_ref()) {
        Some(limit) => {
            text += &format!("Line is what arrived, as a share of what the line carries ({}).\n", limit.of)
        }
        None => text += units::NO_LINE,
    }
    text
}

fn fields(step: &Step, direction: &Directed) -> Vec<String> {
    let Figures { achieved_l2_bps, sent, received, lost, loss_ratio, jitter_us, .. } = direction.figures;
    vec![
        bits(step.offered_bps as f64),
        format!("{} > {}", direction.from, direction.to),
        bits(achieved_l2_bps),
        bits(achieved_l2_bps * (1.0 - loss_ratio)),
        units::line_share(direction.line_share),
        sent.to_string(),
        received.to_string(),
        lost.to_string(),
        format!("{:.2} %", loss_ratio * 100.0),
        units::loss_interval(lost, sent, 2),
        format!("{jitter_us:.2}"),
    ]
}

fn troubles(steps: &[Step]) -> String {
    let line = |step: &Step| {
        let trouble: Vec<String> = step.changes.iter().filter(|change| change.trouble).map(change).collect();
        let at = bits(step.offered_bps as f64);
        (!trouble.is_empty()).then(|| format!("counters at {at}: {}\n", trouble.join(", ")))
    };
    steps.iter().filter_map(line).collect()
}

fn change(change: &Change) -> String {
    let Change { device, counter, rise, bits, reset, .. } = change;
    match (bits, reset) {
        (Some(bits), _) => format!("{device} {counter} +{rise} (wraps at {bits} bits, may be more)"),
        (None, true) => format!("{device} {counter} was reset, +{rise} since then"),
        (None, false) => format!("{device} {counter} +{rise}"),
    }
}

fn describe_knee(knee: &Knee) -> String {
    let most = bits(knee.most_bps);
    let knee_text = match (knee.passes_bps, knee.loses_bps.zip(knee.loss_ratio)) {
        (Some(passes), Some((loses, ratio))) => {
            format!("knee at {}: at {} the loss is {:.2} %", bits(passes), bits(loses), ratio * 100.0)
        }
        (None, Some((loses, ratio))) => {
            format!("knee below the lowest rate: at {} the loss is {:.2} %", bits(loses), ratio * 100.0)
        }
        (_, None) if knee.beyond == Beyond::HeldUp => "cannot tell where the knee is".to_owned(),
        (_, None) => "no knee".to_owned(),
    };
    let beyond = match knee.beyond {
        Beyond::NotReached => format!("{most} arrive without loss; raise --to to find the knee"),
        Beyond::GeneratorBound => {
            format!("{most} arrive without loss, and the generator cannot send more")
        }
        Beyond::HeldUp => {
            format!(
                "{most} arrive without loss, and the sender was held up at higher rates; repeat it on an idle machine"
            )
        }
        Beyond::Flat => format!("above the knee at most {most} arrive, whatever is sent"),
        Beyond::Collapse => format!("collapse: at most {most} arrive, and less at the highest rate"),
    };
    let mut text = format!("{} > {}: {knee_text}; {beyond}\n", knee.from, knee.to);
    for suspect in &knee.suspects {
        text += &format!(
            "  rises with the loss: {} {}: +{}, {:.2} of the lost packets\n",
            suspect.device, suspect.counter, suspect.rise, suspect.of_lost
        );
    }
    if knee.loses_bps.is_some() && knee.suspects.is_empty() {
        text += "  no available counter rises with the loss\n";
    }
    text
}

fn bits(bps: f64) -> String {
    units::bits_per_second(bps.round() as u64)
}
