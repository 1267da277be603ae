//! Files of results.

use super::view::{Report, ResultFile};

/// The text of a complete file of results.
pub(crate) fn result_file() -> String {
    include_str!("../../../tests/report/tc.json").to_owned()
}

/// Two routers, the second of which was interrupted, and a file with odd names and values.
pub(crate) fn report() -> Report {
    let files = [
        ("tc.json", result_file()),
        ("xdp.json", include_str!("../../../tests/report/xdp.json").to_owned()),
        ("odd.json", include_str!("../../../tests/report/odd.json").to_owned()),
    ];
    let sources = files.into_iter().enumerate();
    Report::new(
        sources
            .map(|(nth, (name, text))| {
                ResultFile::parse(ResultFile::letter(nth), name.to_owned(), text).unwrap()
            })
            .collect(),
    )
}
