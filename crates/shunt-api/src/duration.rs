//! Durations as people write them: `500ms`, `2s`, `1m`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::{fmt, time::Duration};

/// A duration that a message shows.
#[derive(PartialEq, PartialOrd)]
pub(crate) struct Readable(pub(crate) Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&Readable(*value))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(|_| {
        D::Error::custom(format!("`{text}` is not a duration; expected a form such as 500ms, 2s or 1m"))
    })
}
