//! Why both directions of a connection are fast or slow, with one that conntrack does not know.

use crate::golden::sample;
use shunt_api::Explanation;

pub(crate) fn explanation() -> Explanation {
    sample(include_str!("golden/why.json"))
}
