//! The text of `shunt why`.

use super::{flows::source_and_destination, tracked, units};
use shunt_api::{Because, Explained, Explanation, Why};

pub(crate) fn describe(explanation: &Explanation) -> String {
    let mut text: String = explanation.connections.iter().map(describe_connection).collect();
    if explanation.more > 0 {
        text += &format!("and {} more\n", explanation.more);
    }
    text
}

fn describe_connection(connection: &Explained) -> String {
    let Explained { protocol, tracked: is_tracked, state, directions } = connection;
    let mut text = tracked::name(*protocol).to_owned();
    if let Some(state) = state {
        text += &format!(" {state}");
    }
    if !is_tracked {
        text += ", unknown to conntrack";
    }
    text.push('\n');
    for why in directions {
        text += &describe_direction(why);
    }
    text
}

fn describe_direction(why: &Why) -> String {
    let Why { dir, tuple, fast, since_s, engine, in_port, out_port, because } = why;
    let mut text =
        format!("  {dir:<5}  {}  {}", source_and_destination(tuple), if *fast { "fast" } else { "slow" });
    if let Some(seconds) = since_s {
        text += &format!(" since {}", units::time(*seconds));
    }
    if let Some(engine) = engine {
        text += &format!(" by {engine}");
    }
    if let Some((from, to)) = in_port.as_ref().zip(out_port.as_ref()) {
        text += &format!(", {from} -> {to}");
    }
    if let Some(Because { reason, meaning, detail, remedy }) = because {
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        text += &format!(": {reason}\n         {meaning}{detail}\n         {remedy}");
    }
    text + "\n"
}
