//! The build ID of a kernel: a hash that the linker puts into a note, so that no two builds have the same.

use std::{fmt, fs, io, str::FromStr};

/// The notes of the running kernel: ELF notes, one after the other.
const NOTES: &str = "/sys/kernel/notes";
/// NT_GNU_BUILD_ID of elf.h.
const GNU_BUILD_ID: u32 = 3;

/// A build ID, as bytes; written in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// That of the running kernel.
    ///
    /// # Errors
    /// Fails if the kernel does not tell it.
    pub fn of_running_kernel() -> io::Result<Self> {
        let of_file = |why: io::Error| io::Error::new(why.kind(), format!("{NOTES}: {why}"));
        let notes = fs::read(NOTES).map_err(of_file)?;
        in_notes(&notes).ok_or_else(|| io::Error::other(format!("{NOTES} has none")))
    }

    /// The name of a file with the types of this kernel.
    pub fn file_name(&self) -> String {
        format!("{self}.btf")
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for BuildId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text}: a build ID has 16 to 64 hexadecimal digits, two for each byte; see readelf -n vmlinux"
            )
        };
        let pairs = text.len() / 2;
        if !(8..=32).contains(&pairs)
            || pairs * 2 != text.len()
            || !text.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return Err(wrong());
        }
        let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
        digits
            .map(|pair| u8::from_str_radix(pair, 16))
            .collect::<Result<_, _>>()
            .map(Self)
            .map_err(|_| wrong())
    }
}

/// The build ID in notes (elf(5)): each has the sizes of its name and its contents and a type, and both are padded to
/// four bytes.
fn in_notes(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| Some(u32::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let (name_bytes, bytes, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let (name, rest) = rest.split_at_checked(name_bytes.next_multiple_of(4))?;
        let contents = rest.get(..bytes)?;
        if kind == GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(BuildId(contents.to_vec()));
        }
        notes = rest.get(bytes.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, contents: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, contents.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for part in [name, contents] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let id = [0xab; 20];
        let notes =
            [note(b"Xen\0", 6, b"linux"), note(b"Linux\0", 3, &[1; 7]), note(b"GNU\0", 3, &id)].concat();
        assert_eq!(in_notes(&notes).map(|id| id.to_string()), Some("ab".repeat(20)));
        assert_eq!(in_notes(&notes[..notes.len() - 4]), None);
        assert_eq!(in_notes(&note(b"GNU\0", 1, &id)), None);
        assert_eq!(in_notes(&[0xff; 64]), None);
    }

    #[test]
    fn a_build_id_is_read_as_it_is_written() {
        let text = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(text.parse::<BuildId>().unwrap().to_string(), text);
        for wrong in ["", "0123", "0123456789abcdefg", "0123456789abcdef0", &"a".repeat(66)] {
            assert!(wrong.parse::<BuildId>().is_err(), "{wrong}");
        }
    }
}
