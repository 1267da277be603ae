//! What went wrong with a file, in words that say what to do.

use std::{io, path::Path};

/// Why a file could not be read, and what to do about it.
#[must_use]
pub fn cannot_read(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file: check the path".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "reading is not permitted: use sudo, or `chmod` the file".to_owned()
        }
        io::ErrorKind::IsADirectory => "this is a directory: name a file".to_owned(),
        io::ErrorKind::NotADirectory => "a part of this path is a file: check the path".to_owned(),
        io::ErrorKind::InvalidData => "this is not a text file (UTF-8): name another one".to_owned(),
        _ => format!("cannot be read: {}", without_number(&error.to_string())),
    }
}

/// Why a file could not be written, and what to do about it.
#[must_use]
pub fn cannot_write(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
                Some(directory) => {
                    format!("its directory does not exist: make it with `mkdir -p {}`", directory.display())
                }
                None => "the directory of this command does not exist any more: name a whole path".to_owned(),
            }
        }
        io::ErrorKind::PermissionDenied => {
            "writing is not permitted here: use sudo, or name a file in another directory".to_owned()
        }
        io::ErrorKind::IsADirectory => "this is a directory: name a file in it".to_owned(),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a part of this path is a file: name another path".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is mounted read-only: name a file on another one".to_owned()
        }
        io::ErrorKind::StorageFull => "no space is left here: name a file on another file system".to_owned(),
        _ => format!("cannot be written: {}", without_number(&error.to_string())),
    }
}

/// A message without the number of the operating system's error, which says nothing to its reader.
#[must_use]
pub fn without_number(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(')')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_file_says_what_to_do_and_has_no_number() {
        let error = io::Error::from_raw_os_error;
        for (number, read, written) in [
            (2, "no such file: check the path", "make it with `mkdir -p /no/such`"),
            (13, "not permitted: use sudo", "not permitted here: use sudo"),
            (21, "a directory: name a file", "a directory: name a file in it"),
            (20, "a part of this path is a file", "a part of this path is a file"),
            (28, "cannot be read", "no space is left"),
            (30, "cannot be read", "mounted read-only"),
            (5, "cannot be read: Input/output error", "cannot be written: Input/output error"),
        ] {
            let said = cannot_read(&error(number));
            assert!(said.contains(read) && !said.contains("os error"), "{said}");
            let said = cannot_write(Path::new("/no/such/file"), &error(number));
            assert!(said.contains(written) && !said.contains("os error"), "{said}");
        }
        assert!(cannot_write(Path::new("file"), &error(2)).contains("name a whole path"));
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        assert_eq!(without_number("x: No such device (os error 19); y (os error 2)"), "x: No such device; y");
        assert_eq!(without_number("nothing wrong (here)"), "nothing wrong (here)");
    }
}
