//! The text of `shunt watch`: one line for each event.

use crate::{
    commands::{
        conntrack::view::name as protocol_name,
        flows::view::{port, source_and_destination},
    },
    render::{Answer, Format, json_line, units},
};
use serde::Serialize;
use shunt_api::{ConnectionEnd, EndedDirection, FlowEvent, Restart, RestartKind, WatchEvent};
use std::time::{Duration, SystemTime};

/// Another daemon of the instance reports the events from here on. The daemon does not report this: the command does.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "restart")]
pub(crate) struct Followed {
    /// Microseconds since 1970-01-01 UTC.
    at_us: u64,
    /// The process ID of the next daemon.
    pid: u32,
    /// What became of the flows; absent if no daemon handed over.
    #[serde(flatten)]
    start: Option<RestartKind>,
}

impl Followed {
    /// A daemon that has just been found.
    pub(crate) fn now(next: Restart) -> Self {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        Self { at_us, pid: next.pid, start: next.start }
    }
}

impl Answer for Followed {
    fn text(&self, _: Format) -> String {
        let Self { at_us, pid, start } = self;
        let flows = match start {
            Some(RestartKind::TakenOver { gap_ms }) => format!("has taken over flows in {gap_ms} ms"),
            Some(RestartKind::Clean { why }) => format!("has started without flows: {why}"),
            None => "has started without flows".to_owned(),
        };
        format!("{} restart  pid {pid} {flows}; events in between are lost\n", time(*at_us))
    }

    fn json(&self) -> serde_json::Result<String> {
        json_line(self)
    }
}

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
        WatchEvent::Lost { count } => format!("{} lost", units::count(*count, "event")),
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

    #[test]
    fn a_restart_is_an_event_with_what_became_of_the_flows() {
        let followed = |start| Followed { at_us: 1_700_000_000_000_001, pid: 7, start };
        let said = |start| show(&followed(start), TEXT);
        assert_eq!(
            said(Some(RestartKind::TakenOver { gap_ms: 12 })),
            "22:13:20.000 restart  pid 7 has taken over flows in 12 ms; events in between are lost\n"
        );
        let why = "the configuration differs: engine".to_owned();
        assert!(said(Some(RestartKind::Clean { why })).contains("without flows: the configuration differs"));
        assert!(said(None).contains("pid 7 has started without flows; "));
        let json = show(&followed(Some(RestartKind::TakenOver { gap_ms: 12 })), JSON);
        assert_eq!(
            json,
            "{\"event\":\"restart\",\"at_us\":1700000000000001,\"pid\":7,\"kind\":\"taken-over\",\"gap_ms\":12}\n"
        );
        assert!(show(&followed(None), JSON).ends_with("\"pid\":7}\n"));
    }
}
