//! Reports of the lab in a directory: pages that `shunt report` wrote.
//!
//! A client names a report, and gets it only if the list has that name, so no name leads out of the directory.

use nix::{
    fcntl::{OFlag, openat},
    sys::stat::Mode,
};
use shunt_api::{Failure, FailureCode, StoredReport};
use std::{
    fs::{self, DirEntry, File},
    io::{self, Read, Take},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::UNIX_EPOCH,
};

/// The newest reports that are listed.
const REPORTS_MAX: usize = 200;
/// The largest report that is served.
const BYTES_MAX: u64 = 32 << 20;
/// The page in the directory of a campaign.
const OF_CAMPAIGN: &str = "report.html";

/// The directory of reports, which a reload can change; empty for none.
#[derive(Debug, Clone, Default)]
pub(super) struct ReportsDirectory(Arc<Mutex<PathBuf>>);

impl ReportsDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(path)))
    }

    pub(super) fn set(&self, path: PathBuf) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The reports in a directory, the newest first; none if there is no such directory.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn list(directory: &Path) -> Result<Vec<StoredReport>, Failure> {
    if directory.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| unreadable(directory, &error))?,
    };
    let mut reports: Vec<StoredReport> = entries.filter_map(|entry| report(&entry.ok()?)).collect();
    reports.sort_by(|a, b| b.written_s.cmp(&a.written_s).then_with(|| a.name.cmp(&b.name)));
    reports.truncate(REPORTS_MAX);
    Ok(reports)
}

fn report(entry: &DirEntry) -> Option<StoredReport> {
    let name = entry.file_name().into_string().ok()?;
    // Of the entry itself, not of what a link names.
    let is_campaign = entry.file_type().ok()?.is_dir();
    let path = if is_campaign { entry.path().join(OF_CAMPAIGN) } else { entry.path() };
    let file = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let written = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let is_page = name.ends_with(".html") || is_campaign;
    let shown = is_page && !name.starts_with('.');
    shown.then_some(StoredReport { name, bytes: file.len(), written_s: written.as_secs() })
}

/// Opens a report. No step below the directory follows a link, even if an entry becomes a link now, and no step waits
/// for a FIFO.
fn open_unchecked(directory: &Path, name: &str) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let top = File::open(directory)?;
    let mut file = File::from(openat(&top, name, flags, Mode::empty())?);
    if file.metadata()?.is_dir() {
        file = File::from(openat(&file, OF_CAMPAIGN, flags, Mode::empty())?);
    }
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// The page of a report, to be read; none if the list has no such name.
///
/// # Errors
/// If it cannot be read, or is too large.
pub(super) fn open(directory: &Path, name: &str) -> Result<Option<Take<File>>, Failure> {
    if !list(directory)?.iter().any(|report| report.name == name) {
        return Ok(None);
    }
    let path = directory.join(name);
    let opened = open_unchecked(directory, name).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) = opened.map_err(|error| unreadable(&path, &error))?;
    if bytes > BYTES_MAX {
        let why = format!("{} is larger than {} MiB; open the file itself", path.display(), BYTES_MAX >> 20);
        return Err(Failure::new(FailureCode::BadRequest, why));
    }
    Ok(Some(file.take(bytes)))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureCode::Internal, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, time::Duration};
    use tempfile::TempDir;

    #[test]
    fn only_what_is_listed_is_read() {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["campaign", "empty", "reports"] {
            fs::create_dir(at(name)).unwrap();
        }
        for (name, text) in [
            ("reports/old.html", "old"),
            ("reports/new.html", "new"),
            ("reports/.hidden.html", "hidden"),
            ("reports/results.json", "{}"),
            ("secret.html", "secret"),
            ("campaign/report.html", "campaign"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        symlink(at("secret.html"), at("reports/link.html")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/report.html"), "secret").unwrap();
        symlink(at("elsewhere"), at("reports/linked")).unwrap();
        symlink(at("elsewhere"), at("reports/linked.html")).unwrap();
        fs::create_dir(at("reports/campaign-with-link")).unwrap();
        symlink(at("secret.html"), at("reports/campaign-with-link/report.html")).unwrap();
        fs::rename(at("campaign"), at("reports/campaign")).unwrap();
        fs::rename(at("empty"), at("reports/empty")).unwrap();
        let age = |name: &str, seconds| {
            let file = File::options().write(true).open(at(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        age("reports/old.html", 1000);
        age("reports/new.html", 3000);
        age("reports/campaign/report.html", 2000);

        let reports = list(&at("reports")).unwrap();
        let listed: Vec<_> =
            reports.iter().map(|one| (one.name.as_str(), one.bytes, one.written_s)).collect();
        assert_eq!(listed, [("new.html", 3, 3000), ("campaign", 8, 2000), ("old.html", 3, 1000)]);
        let read = |name: &str| {
            let mut page = Vec::new();
            open(&at("reports"), name).unwrap()?.read_to_end(&mut page).unwrap();
            Some(page)
        };
        assert_eq!(read("campaign").as_deref(), Some(&b"campaign"[..]));
        assert_eq!(read("old.html").as_deref(), Some(&b"old"[..]));
        for name in [
            "linked",
            "linked.html",
            "campaign-with-link",
            "../secret.html",
            "link.html",
            ".hidden.html",
            "results.json",
            "empty",
            "",
            ".",
            "/etc/passwd",
        ] {
            assert_eq!(read(name), None, "{name}");
        }
        // An entry that became a link after it was listed.
        for name in ["linked", "linked.html", "campaign-with-link", "link.html"] {
            assert!(open_unchecked(&at("reports"), name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_report() {
        let dir = TempDir::new().unwrap();
        assert_eq!(list(&dir.path().join("none")).unwrap(), []);
        assert_eq!(list(Path::new("")).unwrap(), []);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(list(&dir.path().join("file")).unwrap_err().message.contains("file: "));
    }

    #[test]
    fn a_large_file_is_refused() {
        let dir = TempDir::new().unwrap();
        File::create(dir.path().join("large.html")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(open(dir.path(), "large.html").unwrap_err().message.contains("larger than 32 MiB"));
    }
}
