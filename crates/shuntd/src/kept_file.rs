//! Files that the daemon keeps across restarts, in its state directory: bounded, replaced as a whole, and written on
//! another thread than the event loop's.

use shunt_api::{Failure, FailureCode};
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Only root may read: the files tell who uses the router.
const MODE: u32 = 0o600;

/// A file, and how often what it is to have has changed.
#[derive(Debug)]
pub(crate) struct KeptFile {
    path: PathBuf,
    bytes_max: u64,
    version: u64,
    /// The version in the file.
    written: Arc<Mutex<u64>>,
}

/// Writes the contents of a file.
type Encode = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// What a file is to have.
pub(crate) struct Replacement {
    path: PathBuf,
    bytes_max: u64,
    encode: Encode,
    version: u64,
    written: Arc<Mutex<u64>>,
}

impl KeptFile {
    /// A file of at most `bytes_max` bytes.
    pub(crate) fn new(path: PathBuf, bytes_max: u64) -> Self {
        Self { path, bytes_max, version: 0, written: Arc::default() }
    }

    /// Reads the file; `None` if there is none. A file that `decode` refuses, or that is too long, is set aside as
    /// `PATH.damaged`, and the log says so with `loss`: what is lost, and what to do. Waits for the disk, so call it
    /// before the event loop runs.
    pub(crate) fn load<T>(&self, loss: &str, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Option<T> {
        let path = self.path.display();
        let bytes = match self.read() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("{path}: {error}; {loss}");
                return None;
            }
        };
        let decoded = if bytes.len() as u64 > self.bytes_max {
            Err(format!("longer than {} bytes", self.bytes_max))
        } else {
            decode(&bytes)
        };
        decoded
            .inspect_err(|why| {
                let aside = beside(&self.path, "damaged");
                let kept = match fs::rename(&self.path, &aside) {
                    Ok(()) => format!("the file is now {}", aside.display()),
                    Err(error) => format!("cannot rename it to {}: {error}", aside.display()),
                };
                tracing::warn!("{path}: {why}; {kept}; {loss}");
            })
            .ok()
    }

    /// Reads the file of a daemon that does not run, and leaves it as it is.
    ///
    /// # Errors
    /// With the code `not-running` if there is no file, and `not-root` if this user may not read it.
    pub(crate) fn peek<T>(&self, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, Failure> {
        let named =
            |code, why: &dyn fmt::Display| Failure::new(code, format!("{}: {why}", self.path.display()));
        let bytes = self.read().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => named(FailureCode::NotRunning, &"no daemon has kept anything yet"),
            io::ErrorKind::PermissionDenied => {
                named(FailureCode::NotRoot, &"only root may read it; use sudo")
            }
            _ => named(FailureCode::Internal, &error),
        })?;
        decode(&bytes).map_err(|why| named(FailureCode::Internal, &why))
    }

    /// At most a byte more than the file may have.
    fn read(&self) -> io::Result<Vec<u8>> {
        // Opening a FIFO would wait for its other end.
        if !fs::metadata(&self.path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(&self.path)?.take(self.bytes_max + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// New contents. `encode` runs on the thread that writes them, as it writes them: all of them in memory would be
    /// megabytes.
    pub(crate) fn replace(
        &mut self,
        encode: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Replacement {
        self.version += 1;
        Replacement {
            path: self.path.clone(),
            bytes_max: self.bytes_max,
            encode: Box::new(encode),
            version: self.version,
            written: Arc::clone(&self.written),
        }
    }
}

impl Replacement {
    /// Writes the file, unless it has later contents already. Whatever happens, the file has the former contents or
    /// these, as a whole. Waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be written; the message names it.
    pub(crate) fn write(self) -> Result<(), String> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written > self.version {
            return Ok(());
        }
        let (path, bytes_max, encode) = (&self.path, self.bytes_max, self.encode);
        let replaced = replace(path, |file| {
            let mut bounded = Bounded { file: BufWriter::new(file), bytes_max, left: bytes_max };
            encode(&mut bounded)?;
            bounded.flush()
        });
        replaced.map_err(|error| format!("{}: {error}", path.display()))?;
        *written = self.version;
        Ok(())
    }
}

/// A file of at most so many bytes.
struct Bounded<'a> {
    file: BufWriter<&'a File>,
    bytes_max: u64,
    left: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("would be longer than {} bytes", self.bytes_max),
            )
        })?;
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl fmt::Debug for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacement").field("path", &self.path).field("version", &self.version).finish()
    }
}

/// Writes a file so that it is whole whatever happens.
fn replace(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let new = beside(path, "new");
    let done = write_new(&new, write).and_then(|()| fs::rename(&new, path));
    if done.is_err() {
        // The disk may be full: free the space.
        let _ = fs::remove_file(&new);
    }
    done?;
    File::open(directory)?.sync_all()
}

fn write_new(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)?;
    write(&file)?;
    file.sync_all()
}

/// `PATH.suffix`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const LOSS: &str = "the test's words are lost";

    fn words(bytes: &[u8]) -> Result<String, String> {
        let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
        text.strip_prefix("words ").map(str::to_owned).ok_or_else(|| "no words".to_owned())
    }

    fn kept(directory: &tempfile::TempDir) -> KeptFile {
        KeptFile::new(directory.path().join("state/default.words"), 16)
    }

    fn say(file: &mut KeptFile, text: &'static str) -> Replacement {
        file.replace(move |out| write!(out, "words {text}"))
    }

    fn names(file: &KeptFile) -> Vec<String> {
        let entries = fs::read_dir(file.path.parent().unwrap()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn contents_are_kept_for_the_next_start_and_for_root_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = kept(&directory);
        assert_eq!(file.load(LOSS, words), None);
        say(&mut file, "one").write().unwrap();
        say(&mut file, "two").write().unwrap();
        assert_eq!(kept(&directory).load(LOSS, words).as_deref(), Some("two"));
        assert_eq!(names(&file), ["default.words"]);
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, MODE);
    }

    #[test]
    fn a_file_that_is_read_without_a_daemon_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = kept(&directory);
        assert_eq!(file.peek(words).unwrap_err().code, FailureCode::NotRunning);
        say(&mut file, "one").write().unwrap();
        assert_eq!(file.peek(words).unwrap(), "one");
        fs::write(&file.path, "damaged").unwrap();
        let failure = file.peek(words).unwrap_err();
        assert!(
            failure.message.contains("default.words") && failure.message.contains("no words"),
            "{failure}"
        );
        assert_eq!(names(&file), ["default.words"]);
    }

    #[test]
    fn earlier_contents_do_not_replace_later_ones() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = kept(&directory);
        let (earlier, later) = (say(&mut file, "one"), say(&mut file, "two"));
        later.write().unwrap();
        earlier.write().unwrap();
        assert_eq!(file.load(LOSS, words).as_deref(), Some("two"));
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_a_new_one_takes_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = kept(&directory);
        say(&mut file, "one").write().unwrap();
        for damage in ["wor".to_owned(), format!("words {}", "x".repeat(11))] {
            fs::write(&file.path, &damage).unwrap();
            assert_eq!(file.load(LOSS, words), None);
            assert_eq!(names(&file), ["default.words.damaged"]);
            assert_eq!(fs::read_to_string(beside(&file.path, "damaged")).unwrap(), damage);
        }
        say(&mut file, "two").write().unwrap();
        assert_eq!(file.load(LOSS, words).as_deref(), Some("two"));
    }

    #[test]
    fn what_cannot_be_written_leaves_the_former_contents() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = kept(&directory);
        say(&mut file, "one").write().unwrap();
        let long = say(&mut file, "far too long").write().unwrap_err();
        assert!(long.ends_with("default.words: would be longer than 16 bytes"), "{long}");
        fs::create_dir(beside(&file.path, "new")).unwrap();
        assert!(say(&mut file, "two").write().is_err());
        assert_eq!(file.load(LOSS, words).as_deref(), Some("one"));
    }

    #[test]
    fn what_is_not_a_regular_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(KeptFile::new(fifo, 16).load(LOSS, words), None);
    }
}
