//! A report of `shunt gen`.

use crate::golden::sample;
use shunt_lab::traffic::Report;

/// Traffic in both directions, with a little loss.
pub(crate) fn traffic() -> Report {
    sample(include_str!("golden/gen.json"))
}
