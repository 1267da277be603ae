//! Compressed archives of objects, for programs that must be small.

use crate::{out_dir, write_bytes_out};
use lzma_rust2::{LzmaOptions, LzmaWriter};
use std::{
    fs,
    io::{self, Write},
};

/// Packs the objects `$OUT_DIR/<name>.o`, which are compiled, into `$OUT_DIR/<archive>.archive`: LZMA, in which each
/// object is found by its name. For build scripts.
pub fn pack(names: &[&str], archive: &str) {
    let mut files = Vec::new();
    for name in names {
        let path = out_dir().join(format!("{name}.o"));
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for part in [name.as_bytes(), &bytes] {
            let length = u32::try_from(part.len()).expect("an object is smaller than 4 GiB");
            files.extend_from_slice(&length.to_le_bytes());
            files.extend_from_slice(part);
        }
    }
    let packed = compress(&files).unwrap_or_else(|e| panic!("cannot compress {archive}: {e}"));
    write_bytes_out(&format!("{archive}.archive"), &packed);
}

/// A file in the format `.lzma`. Its dictionary reaches over all of it, since the objects are much alike.
fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(9);
    options.dict_size = u32::try_from(bytes.len()).map_err(io::Error::other)?.next_power_of_two();
    options.nice_len = LzmaOptions::NICE_LEN_MAX;
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64))?;
    writer.write_all(bytes)?;
    writer.finish()
}
