//! Quantities of measurements: shares, loads, and the bounds of values.

use super::{percent, rounded};
use shunt_lab::{Spread, SpreadKind, load::Load, statistics::share_interval, traffic::Variant};

/// The share of the line, or `-` if its speed is not known.
pub(crate) fn line_share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), percent)
}

/// A CPU load, or `-` if it was not measured.
pub(crate) fn load(percent: Option<f64>) -> String {
    percent.map_or("-".to_owned(), |percent| format!("{} %", rounded(percent)))
}

/// Heads of the columns of [`loads`].
pub(crate) const LOAD_HEADS: [&str; 2] = ["DUT load", "of a core"];
/// What these columns show.
pub(crate) const LOAD_NOTE: &str = "DUT load is the CPU load of the router in percent of all its cores; the next column is in percent of one core.\n";

/// A load in percent of all cores, and in percent of one.
pub(crate) fn loads(of: Option<&Load>) -> [String; 2] {
    [of.map(|load| load.load_percent), of.and_then(|load| load.core_percent)].map(load)
}

/// A sentence about the traffic, after a space; empty for one flow of IPv4 without NAT.
pub(crate) fn variant(variant: Option<&Variant>) -> String {
    variant.filter(|variant| !variant.is_empty()).map_or(String::new(), |it| format!(" Traffic: {it}."))
}

/// The bounds of a value, with their meaning: `95 %: 1.2 to 1.3`, or `range: 1.2 to 1.3`.
pub(crate) fn bounds(spread: Spread, shown: impl Fn(f64) -> String) -> String {
    let meaning = match spread.kind {
        SpreadKind::Range => "range",
        SpreadKind::Confidence95 => "95 %",
    };
    format!("{meaning}: {} to {}", shown(spread.low), shown(spread.high))
}

/// The 95 % confidence interval of a loss, `0.3 to 0.5 %`; `-` if nothing was sent.
pub(crate) fn loss_interval(lost: u64, sent: u64, decimals: usize) -> String {
    share_interval(lost, sent).map_or("-".to_owned(), |Spread { low, high, .. }| {
        format!("{:.decimals$} to {:.decimals$} %", low * 100.0, high * 100.0)
    })
}

/// A note for tables whose column `line` is empty.
pub(crate) const NO_LINE: &str =
    "The line speed is not known, so no shares of it are shown; give it with --speed.\n";
