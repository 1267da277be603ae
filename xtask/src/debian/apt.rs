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

/// Who signs the archives that are known here.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// What an index takes.
const ROOM: u64 = 100 * MEGABYTE;

/// A package as the archive's index has it.
#[derive(Debug)]
pub struct Package {
    /// As apt takes it on its command line.
    name: String,
    /// What it is called in the cache.
    pub file: String,
    /// In bytes.
    pub size: u64,
    sha256: String,
}

/// apt, and where its index is.
#[derive(Debug)]
pub struct Apt {
    directory: PathBuf,
    suite: Suite,
    arch: &'static str,
}

impl Apt {
    /// With `update`, or where there is none yet, the index is fetched.
    pub fn new(suite: Suite, arch: &Arch, cache: &Cache, update: bool) -> anyhow::Result<Self> {
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is not there, so that no Debian package can be checked; the package debian-archive-keyring has it"
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
            cache.demand_room(ROOM)?;
            apt.ask(&["apt-get", "-q", "--error-on=any", "update"])
                .context("the archive's index cannot be fetched; without it no package can be checked")?;
        }
        Ok(apt)
    }

    fn has_index(&self) -> bool {
        let lists = fs::read_dir(self.directory.join("lists")).into_iter().flatten().flatten();
        lists.into_iter().any(|file| file.file_name().to_string_lossy().ends_with("_Packages"))
    }

    /// What a package needs, and what that needs.
    pub fn needed_by(&self, package: &str) -> anyhow::Result<Vec<String>> {
        let said =
            self.ask(&["apt-cache", "depends", "--recurse", "--important", "--no-pre-depends", package])?;
        Ok(said.lines().map(str::to_owned).collect())
    }

    /// The latest builds of these packages.
    pub fn packages(&self, names: &[&str]) -> anyhow::Result<Vec<Package>> {
        let uris = self.ask(&[&["apt-get", "--print-uris", "download"], names].concat())?;
        let packages: Option<Vec<Package>> = uris.lines().map(Package::of).collect();
        packages.filter(|packages| packages.len() == names.len()).with_context(|| {
            format!(
                "{}: apt-get --print-uris said what is not understood, or no SHA256:\n{uris}",
                self.suite.name
            )
        })
    }

    /// The same, with all that they need.
    pub fn closure(&self, names: &[&str]) -> anyhow::Result<Vec<Package>> {
        let install = ["apt-get", "-qq", "--print-uris", "--no-install-recommends", "install"];
        let uris = self.ask(&[&install, names].concat())?;
        let needed: Vec<String> = uris.lines().filter_map(named_by).collect();
        self.packages(&needed.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Puts packages into the cache, unless they are there, and compares them with the index.
    pub fn fetch(&self, packages: &[Package], cache: &Cache) -> anyhow::Result<()> {
        let missing: Vec<&Package> =
            packages.iter().filter(|package| !cache.path().join(&package.file).is_file()).collect();
        if !missing.is_empty() {
            let size = missing.iter().map(|package| package.size).sum::<u64>();
            cache.demand_room(size)?;
            for package in &missing {
                eprintln!("fetching {} ({} MB)", package.file, package.size / MEGABYTE + 1);
            }
            let partial = tempfile::tempdir_in(cache.path())?;
            let names: Vec<&str> = missing.iter().map(|package| package.name.as_str()).collect();
            self.ask_in(partial.path(), &[&["apt-get", "-q", "download"], &names[..]].concat())
                .with_context(|| {
                    format!(
                        "{} cannot be fetched; if the archive has newer ones by now, --update asks for them",
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
            // What is installed here does not count.
            own("Dir::State::Status", "status"),
            own("Dir::Cache", "."),
            format!("-oAPT::Architecture={}", self.arch),
            format!("-oAPT::Architectures={}", self.arch),
            "-oAcquire::Languages=none".to_owned(),
            "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "-oAcquire::http::Timeout=20".to_owned(),
            "-oAcquire::https::Timeout=20".to_owned(),
            "-oAcquire::Retries=2".to_owned(),
            // Where the cache is root's alone, the user _apt cannot write to it.
            "-oAPT::Sandbox::User=root".to_owned(),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (program, arguments) = line.split_first().context("there is nothing to run")?;
        tool_in(directory, program, &[&options, arguments].concat())
    }
}

/// NAME=VERSION of a package, from a line of `apt-get --print-uris`: 'URI' NAME_VERSION_ARCH.deb ...
fn named_by(line: &str) -> Option<String> {
    let mut parts = line.split_whitespace().nth(1)?.split('_');
    Some(format!("{}={}", parts.next()?, parts.next()?.replace("%3a", ":")))
}

impl Package {
    /// From a line of `apt-get --print-uris`: 'URI' FILE SIZE SHA256:SUM.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let file = words.next()?.to_owned();
        let size = words.next()?.parse().ok()?;
        let sha256 = words.next()?.strip_prefix("SHA256:")?.to_owned();
        Some(Self { name: named_by(line)?, file, size, sha256 })
    }

    fn check(&self, path: &Path) -> anyhow::Result<()> {
        let said = tool("sha256sum", &[&path.to_string_lossy()])
            .with_context(|| format!("{} has not been fetched as {}", self.name, self.file))?;
        ensure!(
            said.starts_with(&self.sha256),
            "{} is not what the archive's index has (SHA256 {}): remove it, and it is fetched again",
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
    fn a_line_of_apt_names_the_package_its_version_and_its_checksum() {
        let line = "'http://archive/pool/linux-image-6.12.117%2bdeb12.deb' \
                    linux-image-6.12.117+deb12-cloud-amd64_6.12.117-1~deb12u1_amd64.deb 34307256 SHA256:5195b2";
        let package = Package::of(line).expect("it is understood");
        assert_eq!(package.name, "linux-image-6.12.117+deb12-cloud-amd64=6.12.117-1~deb12u1");
        assert_eq!((package.size, package.sha256.as_str()), (34_307_256, "5195b2"));
        assert!(Package::of("'http://archive/x.deb' x_1_amd64.deb 5 MD5Sum:00").is_none());
    }
}
