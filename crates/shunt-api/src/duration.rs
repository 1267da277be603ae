//! Durations as people write them: `500ms`, `2s`, `1m`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::time::Duration;

pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&humantime::format_duration(*value))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(|_| {
        D::Error::custom(format!("`{text}` is not a duration; expected a form such as 500ms, 2s or 1m"))
    })
}
