//! Files of results as they are kept.

use crate::report::{Report, Source};

/// As it stands in the file.
pub(crate) fn result_file() -> String {
    include_str!("../../../tests/report/tc.json").to_owned()
}

/// Two routers, of which the second one was interrupted, and a file of oddities.
pub(crate) fn report() -> Report {
    let files = [
        ("tc.json", result_file()),
        ("xdp.json", include_str!("../../../tests/report/xdp.json").to_owned()),
        ("odd.json", include_str!("../../../tests/report/odd.json").to_owned()),
    ];
    let sources = files.into_iter().enumerate();
    Report::of(
        sources.map(|(nth, (name, text))| Source::parse(nth, name.to_owned(), text).unwrap()).collect(),
    )
}
