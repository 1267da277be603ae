//! A file of results.

/// The text of a complete file of results.
pub(crate) fn result_file() -> &'static str {
    include_str!("../../../../shunt-report/src/sample/tc.json")
}
