//! A state of `shunt top`.

use super::Top;
use crate::golden::sample;

/// Two connections of the other examples, and five more with falling rates; a minute with a change in it.
pub(crate) fn top() -> Top {
    sample(include_str!("golden/top-once.json"))
}
