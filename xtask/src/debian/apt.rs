//! apt with an index of its own for one suite and architecture, from the mirror that this machine uses.

use super::{
    Suite,
    cache::{Cache, MEGABYTE},
};
use crate::{
    arch::Arch,
    tool::{tool, tool_in},
};
use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Keys with which the archives are signed.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Disk space that an index takes.
const ROOM: u64 = 100 * MEGABYTE;

/// A package in the archive's index.
#[derive(Debug)]
pub struct Package {
    /// `NAME=VERSION`, as on apt's command line.
    name: String,
    /// File name in the cache.
    pub file: String,
    /// Size in bytes.
    pub size: u64,
    sha256: String,
}

/// apt with its own directory of indices.
#[derive(Debug)]
pub struct Apt {
    directory: PathBuf,
    suite: Suite,
    arch: &'static str,
}

impl Apt {
    /// Opens the index. Fetches it with `update`, or if there is none yet.
    pub fn new(suite: Suite, arch: &Arch, cache: &Cache, update: bool) -> anyhow::Result<Self> {
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is missing, so no Debian package can be verified; install the package debian-archive-keyring"
        );
        let label = format!("{}\t", suite.archive);
        let known =
            tool("apt-get", &["indextargets", "--format", "$(LABEL)\t$(REPO_URI)", "Created-By: Packages"])?;
        let uri = known.lines().find_map(|line| line.strip_prefix(&label)).with_context(|| {
            format!(
                "apt on this machine has no index of an archive labelled `{}`, from which {} comes: \
                 add it to apt's sources and run apt-get update",
                suite.archive, suite.name
            )
        })?;
        let directory = cache.path().join(format!("apt-{}-{}", suite.name, arch.debian));
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(directory.join(part)).with_context(|| directory.display().to_string())?;
        }
        fs::write(directory.join("status"), "")?;
        fs::write(
            directory.join("sources.list"),
            format!("deb [signed-by={KEYRING} arch={}] {uri} {} main\n", arch.debian, suite.name),
        )?;
        let apt = Self { directory, suite, arch: arch.debian };
        if update || !apt.has_index() {
            cache.require_room(ROOM)?;
            apt.ask(&["apt-get", "-q", "--error-on=any", "update"])
                .context("the archive's index cannot be fetched; without it no package can be checked")?;
        }
        Ok(apt)
    }

    fn has_index(&self) -> bool {
        let lists = fs::read_dir(self.directory.join("lists")).into_iter().flatten().flatten();
        lists.into_iter().any(|file| file.file_name().to_string_lossy().ends_with("_Packages"))
    }

    /// The names of all packages that a package depends on, directly or indirectly.
    pub fn needed_by(&self, package: &str) -> anyhow::Result<Vec<String>> {
        let text =
            self.ask(&["apt-cache", "depends", "--recurse", "--important", "--no-pre-depends", package])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The latest builds of these packages.
    pub fn packages(&self, names: &[&str]) -> anyhow::Result<Vec<Package>> {
        let uris = self.ask(&[&["apt-get", "--print-uris", "download"], names].concat())?;
        let packages: Option<Vec<Package>> = uris.lines().map(Package::parse).collect();
        packages.filter(|packages| packages.len() == names.len()).with_context(|| {
            format!(
                "{}: unexpected output of apt-get --print-uris, or no SHA256:
                {uris}",
                self.suite.name
            )
        })
    }

    /// The latest builds of these packages and of all their dependencies.
    pub fn closure(&self, names: &[&str]) -> anyhow::Result<Vec<Package>> {
        let install = ["apt-get", "-qq", "--print-uris", "--no-install-recommends", "install"];
        let uris = self.ask(&[&install, names].concat())?;
        let needed: Vec<String> = uris.lines().filter_map(named_by).collect();
        self.packages(&needed.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Fetches packages that are not in the cache, and checks all against the index.
    pub fn fetch(&self, packages: &[Package], cache: &Cache) -> anyhow::Result<()> {
        let missing: Vec<&Package> =
            packages.iter().filter(|package| !cache.path().join(&package.file).is_file()).collect();
        if !missing.is_empty() {
            let size = missing.iter().map(|package| package.size).sum::<u64>();
            cache.require_room(size)?;
            for package in &missing {
                eprintln!("fetching {} ({} MB)", package.file, package.size / MEGABYTE + 1);
            }
            let partial = tempfile::tempdir_in(cache.path())?;
            let names: Vec<&str> = missing.iter().map(|package| package.name.as_str()).collect();
            self.ask_in(partial.path(), &[&["apt-get", "-q", "download"], &names[..]].concat())
                .with_context(|| {
                    format!(
                        "cannot fetch {}; if the archive has newer packages by now, use --update",
                        names.join(", ")
                    )
                })?;
            for found in fs::read_dir(partial.path())? {
                let found = found?;
                let path = cache.path().join(found.file_name());
                fs::rename(found.path(), &path).with_context(|| path.display().to_string())?;
            }
        }
        packages.iter().try_for_each(|package| package.check(&cache.path().join(&package.file)))
    }

    fn ask(&self, line: &[&str]) -> anyhow::Result<String> {
        self.ask_in(&self.directory, line)
    }

    fn ask_in(&self, directory: &Path, line: &[&str]) -> anyhow::Result<String> {
        let own = |option: &str, name: &str| format!("-o{option}={}", self.directory.join(name).display());
        let options = [
            own("Dir::Etc::SourceList", "sources.list"),
            "-oDir::Etc::SourceParts=-".to_owned(),
            own("Dir::State::Lists", "lists"),
            // Ignore the packages that are installed here.
            own("Dir::State::Status", "status"),
            own("Dir::Cache", "."),
            format!("-oAPT::Architecture={}", self.arch),
            format!("-oAPT::Architectures={}", self.arch),
            "-oAcquire::Languages=none".to_owned(),
            "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "-oAcquire::http::Timeout=20".to_owned(),
            "-oAcquire::https::Timeout=20".to_owned(),
            "-oAcquire::Retries=2".to_owned(),
            // The user _apt cannot write to a cache of root's.
            "-oAPT::Sandbox::User=root".to_owned(),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (program, arguments) = line.split_first().context("there is nothing to run")?;
        tool_in(directory, program, &[&options, arguments].concat())
    }
}

/// `NAME=VERSION` of a package, from a line of `apt-get --print-uris`: 'URI' NAME_VERSION_ARCH.deb ...
fn named_by(line: &str) -> Option<String> {
    let mut parts = line.split_whitespace().nth(1)?.split('_');
    Some(format!("{}={}", parts.next()?, parts.next()?.replace("%3a", ":")))
}

impl Package {
    /// Parses a line of `apt-get --print-uris`: 'URI' FILE SIZE SHA256:SUM.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let file = words.next()?.to_owned();
        let size = words.next()?.parse().ok()?;
        let sha256 = words.next()?.strip_prefix("SHA256:")?.to_owned();
        Some(Self { name: named_by(line)?, file, size, sha256 })
    }

    fn check(&self, path: &Path) -> anyhow::Result<()> {
        let text = tool("sha256sum", &[&path.to_string_lossy()])
            .with_context(|| format!("apt did not fetch {} as {}", self.name, self.file))?;
        ensure!(
            text.starts_with(&self.sha256),
            "{} differs from the archive's index (SHA256 {}): remove the file to fetch it again",
            path.display(),
            self.sha256
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Package;

    #[test]
    fn a_line_of_apt_has_the_name_the_version_and_the_checksum_of_a_package() {
        let line = "'http://archive/pool/linux-image-6.12.117%2bdeb12.deb' \
                    linux-image-6.12.117+deb12-cloud-amd64_6.12.117-1~deb12u1_amd64.deb 34307256 SHA256:5195b2";
        let package = Package::parse(line).expect("a valid line");
        assert_eq!(package.name, "linux-image-6.12.117+deb12-cloud-amd64=6.12.117-1~deb12u1");
        assert_eq!((package.size, package.sha256.as_str()), (34_307_256, "5195b2"));
        assert!(Package::parse("'http://archive/x.deb' x_1_amd64.deb 5 MD5Sum:00").is_none());
    }
}
