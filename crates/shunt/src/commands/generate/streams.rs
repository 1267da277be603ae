//! `shunt gen --streams`: several streams at once, from a file.

pub(crate) mod view;

use super::packets::PacketArgs;
use crate::{
    commands::{
        arguments::duration,
        option_keys::{OptionKeys, WrongKey},
    },
    failure::{bad_config, bad_file, unreadable},
};
use clap::{CommandFactory, Parser};
use serde::Deserialize;
use shunt_api::{Failure, read_document};
use shunt_gen::{FrameSizes, RAMP_STEPS_MAX, Rate};
use shunt_lab::traffic::{RampSpec, StreamSpec};
use std::{fs, path::Path, time::Duration};
use toml::{Table, Value};

/// Duration of a stream that has neither a time nor a count.
const DURATION: Duration = Duration::from_secs(2);
const NAME: &str = "name";

/// The options of a stream, which are the keys of a file and of a request to start one.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct StreamArgs {
    /// Name in reports and requests.
    #[arg(long)]
    name: String,
    /// Offered rate, as for `shunt gen --rate`.
    #[arg(long, default_value = "10kpps")]
    rate: Rate,
    /// First rate of a ramp to `rate`.
    #[arg(long, value_name = "RATE", requires = "ramp_time")]
    ramp_from: Option<Rate>,
    /// Duration of the ramp; it is part of `time`.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "ramp_from")]
    ramp_time: Option<Duration>,
    /// Number of steps of the ramp, instead of a linear one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RAMP_STEPS_MAX)), requires = "ramp_from")]
    ramp_steps: Option<u32>,
    /// Time before the first packet.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    delay: Duration,
    /// Duration of the traffic that does not count.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warm_up: Option<Duration>,
    /// Duration of the traffic that counts.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Number of packets that count.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Frame size with FCS [default: the least that has room].
    #[arg(long)]
    size: Option<FrameSizes>,
    /// Number of packets sent back to back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    burst: u32,
    /// Send from --rx to --tx.
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    packets: PacketArgs,
}

/// What holds for streams that do not say otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamDefaults {
    /// None: [`DURATION`] for a stream without a count.
    pub(super) time: Option<Duration>,
    pub(super) warm_up: Duration,
}

/// The file as it stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Options of every stream.
    #[serde(default)]
    common: Table,
    #[serde(default)]
    stream: Vec<Table>,
}

/// Reads a file of streams.
pub(super) fn read(path: &Path, defaults: StreamDefaults) -> Result<Vec<StreamSpec>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let file: File = read_document(&text).map_err(|why| bad_file(path, why))?;
    if file.stream.is_empty() {
        return Err(bad_file(path, "no stream; add one as [[stream]] with `name = \"one\"`"));
    }
    let mut specs = Vec::new();
    for (nth, keys) in (1..).zip(&file.stream) {
        let mut all = file.common.clone();
        all.extend(keys.clone());
        let named =
            all.get(NAME).and_then(Value::as_str).map_or(String::new(), |name| format!(" (`{name}`)"));
        let place = |why| bad_config(format!("{}: stream {nth}{named}: {why}", path.display()));
        let mut spec = parse(&all).map_err(|wrong| place(wrong.to_string()))?;
        spec.warm_up = spec.warm_up.or(Some(defaults.warm_up));
        let bounded = spec.spec.packets.is_some() || spec.spec.duration.is_some();
        spec.spec.duration =
            spec.spec.duration.or(defaults.time).or(if bounded { None } else { Some(DURATION) });
        specs.push(spec.into_spec());
    }
    Ok(specs)
}

/// A stream as its keys describe it.
pub(super) struct TypedStream {
    spec: StreamSpec,
    /// None if the keys do not say.
    warm_up: Option<Duration>,
}

impl TypedStream {
    /// The stream, without a warm-up unless the keys say so.
    pub(super) fn into_spec(self) -> StreamSpec {
        StreamSpec { warm_up: self.warm_up.unwrap_or_default(), ..self.spec }
    }
}

/// The stream that these keys describe.
pub(super) fn parse(table: &Table) -> Result<TypedStream, WrongKey> {
    let command = StreamArgs::command();
    let keys = OptionKeys { command: &command, owner: "a stream".to_owned(), unit: "stream", reserved: None };
    if !table.contains_key(NAME) {
        return Err(WrongKey {
            key: NAME.to_owned(),
            why: "missing; reports call the stream by it".to_owned(),
        });
    }
    let mut words = Vec::new();
    for (key, value) in table {
        words.extend(keys.words(key, value)?);
    }
    let typed = StreamArgs::try_parse_from(words)?;
    let wrong = |key: &str| {
        let key = key.to_owned();
        |why| WrongKey { key, why }
    };
    typed.packets.tags().map_err(wrong("vlan"))?;
    let shape = typed.packets.shape(typed.size.as_ref()).map_err(wrong("size"))?;
    let ramp = typed.ramp_time.map(|time| RampSpec { from: typed.ramp_from, time, steps: typed.ramp_steps });
    let spec = StreamSpec {
        name: typed.name,
        shape,
        rate: typed.rate,
        ramp,
        delay: typed.delay,
        warm_up: Duration::ZERO,
        duration: typed.time,
        packets: typed.count,
        burst: typed.burst,
        reverse: typed.reverse,
    };
    Ok(TypedStream { spec, warm_up: typed.warm_up })
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
