//! The state of a router with two ports. Each number occurs once, so that a test can find it in the text.

use crate::golden::sample;
use shunt_api::Status;

pub(crate) fn status() -> Status {
    sample(include_str!("golden/status.json"))
}
