//! The text of `shunt bench sweep`. Doubts stand above the numbers.

use crate::render::{Format, Text, columns::align, units};
use shunt_lab::{
    counters::Change,
    registers::{self, RegisterChange},
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
        rows[0].extend(units::LOAD_HEADS.map(str::to_owned));
        for (row, load) in rows[1..].iter_mut().zip(loads) {
            row.extend(units::loads(load));
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
    if report.steps.iter().any(|step| step.dut_load.is_some()) {
        text += units::LOAD_NOTE;
    }
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

/// The counters of trouble and the registers that changed in each step.
fn troubles(steps: &[Step]) -> String {
    let line = |what: &str, step: &Step, changes: Vec<String>| {
        let at = bits(step.offered_bps as f64);
        if changes.is_empty() { String::new() } else { format!("{what} at {at}: {}\n", changes.join(", ")) }
    };
    let of_step = |step: &Step| {
        // Registers were asked for by name, so all that changed are shown.
        let (registers, counters): (Vec<&Change>, Vec<&Change>) =
            step.changes.iter().partition(|change| change.device == registers::DEVICE);
        let trouble = counters.into_iter().filter(|change| change.trouble).map(change);
        let others = step.registers.iter().map(register_change);
        let registers = registers.into_iter().map(change).chain(others).collect();
        line("counters", step, trouble.collect()) + &line("registers", step, registers)
    };
    steps.iter().map(of_step).collect()
}

fn register_change(change: &RegisterChange) -> String {
    let RegisterChange { register, before, after, fields } = change;
    let hex = |value: &Option<u64>| value.map_or("unread".to_owned(), |value| format!("{value:#x}"));
    let fields: Vec<String> =
        fields.iter().map(|(name, before, after)| format!("{name} {before:#x} > {after:#x}")).collect();
    let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
    format!("{register} {} > {}{fields}", hex(before), hex(after))
}

fn change(change: &Change) -> String {
    let Change { device, counter, rise, bits, reset, .. } = change;
    let name = if device == registers::DEVICE { counter.clone() } else { format!("{device} {counter}") };
    match (bits, reset) {
        (Some(bits), _) => format!("{name} +{rise} (wraps at {bits} bits, may be more)"),
        (None, true) => format!("{name} was reset, +{rise} since then"),
        (None, false) => format!("{name} +{rise}"),
    }
}

fn describe_knee(knee: &Knee) -> String {
    let most = bits(knee.most_bps);
    let knee_text = match (knee.passes_bps, knee.loses_bps.zip(knee.loss_ratio)) {
        (passes, Some((loses, ratio))) if knee.undecided => {
            let from = passes.map_or("the lowest rate".to_owned(), bits);
            format!(
                "knee between {from} and {}, where the loss is {:.2} %; cannot tell closer: too few packets in the steps between, \
                 raise --time",
                bits(loses),
                ratio * 100.0
            )
        }
        (Some(passes), Some((loses, ratio))) => {
            format!("knee at {}: at {} the loss is {:.2} %", bits(passes), bits(loses), ratio * 100.0)
        }
        (None, Some((loses, ratio))) => {
            format!("knee below the lowest rate: at {} the loss is {:.2} %", bits(loses), ratio * 100.0)
        }
        (_, None) if matches!(knee.beyond, Beyond::HeldUp | Beyond::TooFewPackets) => {
            "cannot tell where the knee is".to_owned()
        }
        (_, None) => "no knee".to_owned(),
    };
    let beyond = match knee.beyond {
        Beyond::NotReached => format!("{most} arrive without loss; raise --to to find the knee"),
        Beyond::GeneratorBound => {
            format!("{most} arrive without loss, and the generator cannot send more")
        }
        Beyond::TooFewPackets => {
            format!(
                "at most {most} arrive, and too few packets to tell a loss of 0.1 % from none; raise --time"
            )
        }
        // No step counts.
        Beyond::HeldUp if knee.most_bps == 0.0 => {
            "the sender was held up at every rate; repeat it on an idle machine, or with a lower --to"
                .to_owned()
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

#[cfg(test)]
mod tests {
    use super::{super::sample::sweep, *};

    #[test]
    fn a_sender_that_was_held_up_at_every_rate_says_nothing_of_the_router() {
        let known = sweep().knees.swap_remove(0);
        let none = Knee {
            passes_bps: None,
            loses_bps: None,
            loss_ratio: None,
            undecided: false,
            most_bps: 0.0,
            beyond: Beyond::HeldUp,
            suspects: Vec::new(),
            ..known
        };
        let text = describe_knee(&none);
        assert!(
            text.contains("cannot tell where the knee is; the sender was held up at every rate"),
            "{text}"
        );
        let some = describe_knee(&Knee { most_bps: 38.6e6, ..none });
        assert!(some.contains("38.6 Mbit/s arrive without loss, and the sender was held up"), "{some}");
    }
}
