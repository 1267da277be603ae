//! The text of `shunt why`.

use crate::{
    commands::{conntrack::view as conntrack, flows::view::source_and_destination},
    render::{Format, Text, columns::align, style, units},
};
use shunt_api::{Because, Explained, Explanation, Idle, Why};

impl Text for Explanation {
    fn text(&self, format: Format) -> String {
        if format.brief { brief(self) } else { describe(self) }
    }
}

pub(crate) fn describe(explanation: &Explanation) -> String {
    let mut told = Vec::new();
    let text: String =
        explanation.connections.iter().map(|connection| describe_connection(connection, &mut told)).collect();
    text + &more(explanation)
}

/// How many connections are left out.
fn more(explanation: &Explanation) -> String {
    if explanation.more > 0 { format!("and {} more\n", explanation.more) } else { String::new() }
}

/// One line for each direction.
pub(crate) fn brief(explanation: &Explanation) -> String {
    let mut rows = Vec::new();
    for Explained { protocol, directions, .. } in &explanation.connections {
        rows.extend(directions.iter().map(|why| {
            let cause = match (&why.because, &why.engine) {
                (Some(because), Some(engine)) => format!("{engine}, some packets slow: {}", because.reason),
                (Some(because), None) => because.reason.clone(),
                (None, Some(engine)) => engine.to_string(),
                (None, None) => why.idle.and_then(before).unwrap_or_default().to_owned(),
            };
            let tuple = source_and_destination(&why.tuple);
            vec![conntrack::name(*protocol).to_owned(), why.dir.to_string(), tuple, fast_or_slow(why), cause]
        }));
    }
    align("<", &rows) + &more(explanation)
}

fn fast_or_slow(why: &Why) -> String {
    match why {
        Why { idle: Some(_), .. } => "idle".to_owned(),
        Why { fast: true, .. } => style::good("fast"),
        Why { .. } => style::warning("slow"),
    }
}

/// What an idle direction was before, if that is known.
fn before(idle: Idle) -> Option<&'static str> {
    idle.was_fast.map(|was_fast| if was_fast { "was fast" } else { "not fast" })
}

/// `told` are the causes that have been explained above.
fn describe_connection<'a>(connection: &'a Explained, told: &mut Vec<&'a Because>) -> String {
    let Explained { protocol, tracked: is_tracked, state, directions } = connection;
    let mut text = conntrack::name(*protocol).to_owned();
    if let Some(state) = state {
        text += &format!(" {state}");
    }
    if !is_tracked {
        text += ", unknown to conntrack";
    }
    text.push('\n');
    for why in directions {
        text += &describe_direction(why, told);
    }
    text
}

fn describe_direction<'a>(why: &'a Why, told: &mut Vec<&'a Because>) -> String {
    let Why { dir, tuple, idle, since_s, engine, in_port, out_port, because, .. } = why;
    let mut text = format!("  {dir:<5}  {}  {}", source_and_destination(tuple), fast_or_slow(why));
    if let Some(idle) = idle {
        let pause = idle
            .for_s
            .map_or_else(String::new, |seconds| format!(" for {}{}", idle.least(), units::time(seconds)));
        text += &pause;
        text += &before(*idle).map_or_else(String::new, |before| format!("; {before}"));
    }
    let since = since_s.map(units::time);
    if let Some(time) = since.as_ref().filter(|_| !why.fast) {
        text += &format!(" since {time}");
    }
    if let Some(engine) = engine {
        text += &format!(" by {engine}");
    }
    if let Some((from, to)) = in_port.as_ref().zip(out_port.as_ref()) {
        text += &format!(", {from} -> {to}");
    }
    // Since then, a change may have made it slow for a while.
    if let Some(time) = since.filter(|_| why.fast) {
        text += &format!(", first learned {time} ago");
    }
    if let Some(because) = because {
        let Because { reason, meaning, detail, remedy } = because;
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        let now = match idle {
            Some(Idle { was_fast: Some(true), .. }) => ", now",
            None if why.fast => "; some packets are slow:",
            _ => ":",
        };
        text += &format!("{now} {reason}");
        if told.contains(&because) {
            text += ", as above";
        } else {
            told.push(because);
            text += &format!("\n         {meaning}{detail}\n         {remedy}");
        }
    }
    text + "\n"
}

/// Why a connection is fast or slow, as plain text.
pub(crate) fn explanation_text(explanation: &Explanation) -> String {
    Format::default().finish(&describe(explanation))
}
