//! Golden files: what commands print, kept beside them.

use crate::render::{Answer, Format};
use std::{env, fs, path::Path};

pub(crate) const TEXT: Format =
    Format { json: false, brief: false, verbose: false, width: None, colour: false };
pub(crate) const VERBOSE: Format = Format { verbose: true, ..TEXT };
pub(crate) const BRIEF: Format = Format { brief: true, ..TEXT };
pub(crate) const JSON: Format = Format { json: true, ..TEXT };

pub(crate) fn show(answer: &dyn Answer, format: Format) -> String {
    String::from_utf8(answer.render(format).unwrap()).unwrap()
}

/// Compares the text with a golden file, named from the folder of the sources; with SHUNT_BLESS=1, rewrites the file.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{} differs; SHUNT_BLESS=1 accepts this:\n{text}", path.display());
    assert!(text.lines().all(|line| line.trim_end() == line), "blanks at the end of a line of {name}");
}
