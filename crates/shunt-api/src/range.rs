//! Checks that a value is possible. A message names the key, what is expected, and the value.

use std::{fmt::Display, ops::RangeInclusive};

pub(crate) fn within<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("{key}: expected {} to {}, got {value}", range.start(), range.end()))
}
