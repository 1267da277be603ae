//! Objects in a compressed archive, as `shunt_bpf_build::pack` writes it: of each object, the length of its name, the
//! name, the length of the file, the file.

use lzma_rust2::LzmaReader;
use std::io::{self, Read};

/// The file of this name. Unpacks the files before it, too, and keeps none of them.
pub(super) fn unpack(archive: &[u8], name: &str) -> io::Result<Vec<u8>> {
    let mut files = LzmaReader::new_mem_limit(archive, u32::MAX, None)?;
    loop {
        let found = take(&mut files)?;
        let bytes = take(&mut files)?;
        if found == name.as_bytes() {
            return Ok(bytes);
        }
    }
}

/// What stands after its length, which is a little-endian number of 32 bits.
fn take(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
