//! Quantities with their units, in texts and tables.

pub(crate) use shunt_wire::units::{
    bits_per_second, bytes, change_percent, count, number, packets_per_second, percent, quantity, rounded,
    time, unsigned_zero,
};

/// The share of the line, or `-` if its speed is not known.
pub(crate) fn line_share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), percent)
}

/// A CPU load, or `-` if it was not measured.
pub(crate) fn load(percent: Option<f64>) -> String {
    percent.map_or("-".to_owned(), |percent| format!("{} %", rounded(percent)))
}

/// A note for tables whose column `line` is empty.
pub(crate) const NO_LINE: &str =
    "The line speed is not known, so no shares of it are shown; give it with --speed.\n";
