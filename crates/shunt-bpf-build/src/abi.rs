//! The Rust twin of ABI headers.

mod header;
mod twin;

pub(crate) use twin::Twin;

/// The twin of headers, given with their texts.
pub(crate) fn twin<'a>(texts: impl Iterator<Item = &'a str>) -> Twin {
    let mut all = header::Header::default();
    for text in texts {
        let header = header::read(text);
        all.enums.extend(header.enums);
        all.structs.extend(header.structs);
    }
    Twin::of(&all)
}
