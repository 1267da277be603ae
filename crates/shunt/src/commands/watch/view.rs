//! The text of `shunt watch`: one line for each event.

use crate::{
    commands::{
        conntrack::view::name as protocol_name,
        flows::view::{port, source_and_destination},
    },
    render::{Answer, Format, json_line},
};
use shunt_api::{ConnectionEnd, EndedDirection, FlowEvent, WatchEvent};
use std::time::{Duration, SystemTime};

impl Answer for WatchEvent {
    fn text(&self, _: Format) -> String {
        describe(self) + "\n"
    }

    fn json(&self) -> serde_json::Result<String> {
        json_line(self)
    }
}

fn describe(event: &WatchEvent) -> String {
    let (name, flow) = event.parts();
    match event {
        WatchEvent::Epoch { at_us, epoch, cause } => format!("{} {name:<8} {epoch} {cause}", time(*at_us)),
        WatchEvent::Lost { count } => format!("{count} events lost"),
        WatchEvent::End(end) => describe_end(name, end),
        _ => flow.map(|flow| describe_flow(name, flow)).unwrap_or_default(),
    }
}

fn describe_flow(name: &str, flow: &FlowEvent) -> String {
    let FlowEvent { at_us, proto, tuple, port: device, vlans, reason } = flow;
    let mut text = format!(
        "{} {name:<8} {proto} {} {}",
        time(*at_us),
        port(device, vlans),
        source_and_destination(tuple)
    );
    if let Some(reason) = reason {
        text += &format!(" {reason}");
    }
    text
}

/// The addresses of the original direction, and all packets of each direction.
fn describe_end(name: &str, end: &ConnectionEnd) -> String {
    let ConnectionEnd { at_us, protocol, orig, reply } = end;
    let counts = |direction: &EndedDirection| match direction.count {
        Some(count) => {
            format!("packets={} bytes={} fast={}", count.packets, count.bytes, direction.fast.packets)
        }
        None => format!("packets=? bytes=? fast={}", direction.fast.packets),
    };
    let ends = source_and_destination(&orig.tuple);
    let (time, protocol) = (time(*at_us), protocol_name(*protocol));
    format!("{time} {name:<8} {protocol} {ends} {}, reply {}", counts(orig), counts(reply))
}

/// The time of day in UTC, in milliseconds: a line without a VLAN tag fits 80 columns. The JSON has the whole time.
fn time(at_us: u64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(at_us);
    let whole = humantime::format_rfc3339_millis(at).to_string();
    whole.split_once('T').map_or(whole.clone(), |(_, time)| time.trim_end_matches('Z').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, assert_fits, assert_golden_text, sample, show};

    fn events() -> Vec<WatchEvent> {
        include_str!("golden/watch.jsonl").lines().map(sample).collect()
    }

    #[test]
    fn texts_match_their_golden_files() {
        let watched = |format| events().into_iter().map(|event| show(&event, format)).collect::<String>();
        events().iter().for_each(|event| assert_fits("golden/watch.txt", event, TEXT));
        assert_golden_text("golden/watch.txt", &watched(TEXT));
        assert_golden_text("golden/watch.jsonl", &watched(JSON));
    }
}
