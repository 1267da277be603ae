//! Registers by name: definitions, values as fields, and the places from which registers are read.
//!
//! Parsers and decoding are pure. I/O is in [`RegisterSource`] (`/dev/mem`, files, debugfs, `ethtool -d`, MDIO) and in
//! [`device_tree`].

mod builtin;
mod dat;
mod decode;
mod definitions;
pub mod device_tree;
mod dump;
mod mdio;
mod memory;
mod native;
mod problem;
mod select;
mod snapshot;
mod source;
mod svd;

pub use builtin::{builtin, soc_of_machine, socs};
pub use dat::parse_dat;
pub use decode::{Decoded, DecodedField};
pub use definitions::{Access, Block, Bus, Counter, Definitions, EthtoolLayout, Field, Register};
pub use dump::{DumpError, parse_ethtool_dump, parse_regmap};
pub(crate) use mdio::MdioBus;
pub use native::{parse_toml, parse_toml_for};
pub use problem::{Problem, Problems};
pub use select::{SelectError, Selected, Selector};
pub use snapshot::{Difference, FieldChange, Reading, Snapshot, diff};
pub use source::{RegisterSource, SourceError, Unreadable};
pub use svd::parse_svd;

use std::path::Path;

/// Parses a file of definitions by the extension of its name: `.dat`, `.svd` or `.xml`, `.toml`.
///
/// # Errors
/// Every line that breaks the grammar, or an unknown extension.
pub fn parse_definitions(path: &Path, text: &str) -> Result<Definitions, Problems> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "dat" => parse_dat(text),
        "svd" | "xml" => parse_svd(text),
        "toml" => parse_toml(text),
        _ => Err(Problem::of_file(
            "unknown kind of definitions: expected a name that ends in .dat, .svd or .toml",
        )
        .into()),
    }
}
