//! Files of results.

use crate::{Report, ResultFile};

/// The names and texts of files: two of routers (the second run was interrupted), and one with odd names and values.
pub(crate) const fn files() -> [(&'static str, &'static str); 3] {
    [
        ("tc.json", include_str!("sample/tc.json")),
        ("xdp.json", include_str!("sample/xdp.json")),
        ("odd.json", include_str!("sample/odd.json")),
    ]
}

/// The text of a complete file of results.
pub(crate) fn result_file() -> String {
    files()[0].1.to_owned()
}

pub(crate) fn report() -> Report {
    let sources = files().into_iter().enumerate();
    let parsed = sources.map(|(nth, (name, text))| {
        ResultFile::parse(ResultFile::letter(nth), name.to_owned(), text.to_owned()).unwrap()
    });
    Report::new(parsed.collect(), Vec::new())
}
