//! Times of the clock in texts, all of UTC.

use std::time::{Duration, UNIX_EPOCH};

/// `2026-11-29T16:05:12Z`, from seconds since 1970.
pub(crate) fn rfc3339(at: u64) -> String {
    // Later times have years of five digits, which humantime does not write.
    const END: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at.min(END))).to_string()
}

/// `2026-11-29 16:05`.
pub(crate) fn minute(at: u64) -> String {
    rfc3339(at)[..16].replace('T', " ")
}

/// `2026-11-29 16:05:12 UTC`.
pub(crate) fn second(at: u64) -> String {
    format!("{} UTC", rfc3339(at)[..19].replace('T', " "))
}
