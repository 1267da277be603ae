//! `shunt gen --script`: requests and answers, a line of JSON each.

use super::streams;
use crate::{
    commands::arguments::duration,
    failure::{cut_short, traffic_failed, unreadable, usage},
    output::Show,
    render::{Answer, Format, json_line},
    signals::Interruptible,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shunt_api::{Failure, FailureCode, reword_json};
use shunt_lab::traffic::{
    LiveStreams, RampSpec, StreamReport, StreamSpec, StreamsSpec, Testbed, live_streams,
};
use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use toml::Table;

/// Interval at which a session looks for signals and for streams that are over.
const GLANCE: Duration = Duration::from_millis(20);
/// Name of standard input.
const STDIN: &str = "-";

/// A resolved `shunt gen --script`.
#[derive(Debug)]
pub(crate) struct Script {
    pub(super) file: PathBuf,
    pub(super) spec: StreamsSpec,
    pub(super) testbed: Testbed,
}

/// A request, without its id.
#[derive(Debug, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
enum Request {
    /// Start streams together; each has the keys of a file of streams.
    Start { streams: Vec<Table> },
    /// Change the rate of a stream.
    Rate { stream: String, rate: String, ramp_time: Option<String>, ramp_steps: Option<u32> },
    /// End a stream, or all, and read its last counters.
    Stop { stream: Option<String> },
    /// Read the counters of a stream, or of all.
    Counters { stream: Option<String> },
    /// Wait for this time, or until all streams are over.
    Wait { time: Option<String> },
}

/// An answer. It has the id of its request.
#[derive(Debug, Serialize)]
pub(super) struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    ok: bool,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Content {
    /// Names of streams that were started.
    Started(Vec<String>),
    Streams(Vec<StreamReport>),
    Error {
        code: FailureCode,
        message: String,
    },
    #[serde(untagged)]
    Nothing {},
}

impl Answer for Reply {
    fn text(&self, _: Format) -> String {
        self.json().unwrap_or_default()
    }

    fn json(&self) -> serde_json::Result<String> {
        json_line(self)
    }

    /// Always JSON: a program reads it.
    fn render(&self, _: Format) -> io::Result<Vec<u8>> {
        Ok(self.json()?.into_bytes())
    }
}

/// Answers requests until the file ends or a signal arrives; then all streams stop.
pub(super) async fn run(script: Script, show: Show<'_>) -> anyhow::Result<()> {
    let lines = lines(&script.file)?;
    let mut interruptible = Interruptible::new()?;
    let (replies, mut answered) = unbounded_channel();
    {
        let session = interruptible.run(move |stop| {
            let served = live_streams(&script.spec, &script.testbed, |live| {
                serve(live, &lines, &replies, stop);
                Ok(())
            });
            Ok(served.map_err(traffic_failed)?)
        });
        tokio::pin!(session);
        loop {
            tokio::select! {
                biased;
                Some(reply) = answered.recv() => show(&reply)?,
                ended = &mut session => break ended?,
            }
        }
    }
    while let Ok(reply) = answered.try_recv() {
        show(&reply)?;
    }
    interruptible.signal().map_or(Ok(()), |signal| Err(cut_short(signal).into()))
}

/// The lines of a file, as they arrive. The thread that reads them ends with the process.
fn lines(path: &Path) -> Result<Receiver<io::Result<String>>, Failure> {
    let reader: Box<dyn BufRead + Send> = if path == Path::new(STDIN) {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(path).map_err(|error| unreadable(path, &error))?))
    };
    let (lines, received) = sync_channel(1);
    thread::spawn(move || reader.lines().try_for_each(|line| lines.send(line)));
    Ok(received)
}

fn serve(
    live: &mut LiveStreams<'_, '_>,
    lines: &Receiver<io::Result<String>>,
    replies: &UnboundedSender<Reply>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let line = match lines.recv_timeout(GLANCE) {
            Ok(Ok(line)) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => break,
        };
        if !line.trim().is_empty() && replies.send(reply(live, &line, stop)).is_err() {
            break;
        }
    }
}

fn reply(live: &mut LiveStreams<'_, '_>, line: &str, stop: &AtomicBool) -> Reply {
    let mut id = None;
    let content = parse(line, &mut id).and_then(|request| perform(live, request, stop));
    let ok = content.is_ok();
    let content = content.unwrap_or_else(|Failure { code, message }| Content::Error { code, message });
    Reply { id, ok, content }
}

fn parse(line: &str, id: &mut Option<Value>) -> Result<Request, Failure> {
    let mut fields: Map<String, Value> = serde_json::from_str(line)
        .map_err(|why| usage(format!("not a JSON object on one line: {}", reword_json(&why.to_string()))))?;
    *id = fields.remove("id");
    if !fields.contains_key("request") {
        return Err(usage("`request` is missing: start, rate, stop, counters or wait"));
    }
    serde_json::from_value(Value::Object(fields)).map_err(|why| usage(reword_json(&why.to_string())))
}

fn perform(live: &mut LiveStreams<'_, '_>, request: Request, stop: &AtomicBool) -> Result<Content, Failure> {
    match request {
        Request::Start { streams } => {
            let specs: Vec<StreamSpec> = streams.iter().map(stream).collect::<Result<_, _>>()?;
            if specs.is_empty() {
                return Err(usage("streams: an empty list; name at least one stream"));
            }
            live.start(&specs).map_err(traffic_failed)?;
            Ok(Content::Started(specs.into_iter().map(|spec| spec.name).collect()))
        }
        Request::Rate { stream, rate, ramp_time, ramp_steps } => {
            let rate = rate.parse().map_err(|why| usage(format!("rate: {why}")))?;
            let time = ramp_time.map(|time| time_of("ramp-time", &time)).transpose()?;
            if time.is_none() && ramp_steps.is_some() {
                return Err(usage("ramp-steps: needs ramp-time, the duration of the ramp"));
            }
            let ramp = time.map(|time| RampSpec { from: None, time, steps: ramp_steps });
            live.change_rate(&stream, rate, ramp).map_err(traffic_failed)?;
            Ok(Content::Nothing {})
        }
        Request::Stop { stream } => {
            Ok(Content::Streams(live.stop(stream.as_deref()).map_err(traffic_failed)?))
        }
        Request::Counters { stream } => {
            let mut reports = live.reports().map_err(traffic_failed)?;
            if let Some(name) = stream {
                reports.retain(|report| report.name == name);
                if reports.is_empty() {
                    return Err(usage(format!("no stream `{name}`")));
                }
            }
            Ok(Content::Streams(reports))
        }
        Request::Wait { time } => {
            let end = time.map(|time| time_of("time", &time)).transpose()?.map(|time| Instant::now() + time);
            let endless = live.endless().map_err(traffic_failed)?;
            if let Some(name) = endless.filter(|_| end.is_none()) {
                return Err(usage(format!("stream `{name}` has no end: give `time`, or stop it")));
            }
            while !stop.load(Ordering::Relaxed) {
                let over = match end {
                    Some(end) => Instant::now() >= end,
                    None => live.is_over().map_err(traffic_failed)?,
                };
                if over {
                    break;
                }
                let left = end.map_or(GLANCE, |end| end.saturating_duration_since(Instant::now()));
                thread::sleep(left.min(GLANCE));
            }
            Ok(Content::Nothing {})
        }
    }
}

/// The stream of a request. Without a time and a count, it has no end.
fn stream(table: &Table) -> Result<StreamSpec, Failure> {
    let named = table.get("name").and_then(toml::Value::as_str).unwrap_or_default();
    let typed = streams::parse(table).map_err(|wrong| usage(format!("stream `{named}`: {wrong}")))?;
    Ok(typed.into_spec())
}

fn time_of(key: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).map_err(|why| usage(format!("{key}: `{text}`: {why}")))
}

#[cfg(test)]
mod tests;
