//! The text of `shunt qos`.

use crate::render::{Format, Text, columns::align, units};
use shunt_api::{PortQos, QosCounters, QosStatus};
use std::time::Duration;

impl Text for Vec<QosStatus> {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(all: &[QosStatus]) -> String {
    if all.is_empty() {
        return "no port has queues; `shunt qos set PORT --rate 100M`, or [qos.PORT] of the configuration file, gives some to \
                a port of the external engine; `tc -s qdisc` shows those of Linux\n"
            .to_owned();
    }
    all.iter().map(port).collect::<Vec<_>>().join("\n")
}

fn port(status: &QosStatus) -> String {
    let QosStatus { port, unused, qos, policer_passed, policer_dropped, classes } = status;
    let mut text = format!("{port}: {}", shaper(qos));
    if qos.police.0 != 0 {
        text += &format!(
            "; policer {}, burst {}: {policer_passed} passed, {policer_dropped} dropped",
            units::bits_per_second(qos.police.0),
            units::bytes(qos.police_burst.0.into()),
        );
    }
    text.push('\n');
    if let Some(why) = unused {
        text += &format!("  not in use: {why}\n");
    }
    let heading = [
        "  class", "prio", "quantum", "limit", "target", "packets", "bytes", "full", "codel", "mean", "max",
        "waiting",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(qos.classes().iter().zip(classes).map(|(class, counted)| {
        let target = if class.target.is_zero() { "-".to_owned() } else { time(class.target) };
        let start = vec![
            format!("  {}", class.name),
            class.priority.to_string(),
            class.quantum.to_string(),
            class.limit.to_string(),
            target,
        ];
        [start, counters(counted)].concat()
    }));
    text + &align("<>", &rows)
}

fn shaper(qos: &PortQos) -> String {
    if qos.rate.0 == 0 {
        return "not shaped".to_owned();
    }
    let (rate, burst) = (units::bits_per_second(qos.rate.0), units::bytes(qos.burst.0.into()));
    let overhead = if qos.overhead == 0 { String::new() } else { format!(", overhead {} B", qos.overhead) };
    format!("shaped to {rate}, burst {burst}{overhead}")
}

fn counters(counted: &QosCounters) -> Vec<String> {
    vec![
        counted.sent_packets.to_string(),
        units::bytes(counted.sent_bytes),
        counted.dropped_full.to_string(),
        counted.dropped_codel.to_string(),
        time(Duration::from_micros(counted.delay_mean_us)),
        time(Duration::from_micros(counted.delay_max_us)),
        units::bytes(counted.backlog_bytes),
    ]
}

/// `250us`, `5.2ms`.
fn time(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..1000 => format!("{us}us"),
        us => format!("{}ms", units::rounded(us as f64 / 1000.0)),
    }
}
