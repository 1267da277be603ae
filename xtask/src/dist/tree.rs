//! The file system of the Debian package and of the OCI image.

use super::{LIBRARIES, PROGRAMS, licences, programs_with_lists, run_shunt, sorted, sysroot, texts};
use crate::{arch::Arch, btf, tool::tool_in};
use anyhow::Context;
use shunt_testkit::tree::root;
use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Files of the source tree, and their paths in the package. Manual pages and texts that are compressed are not listed.
const FILES: [(&str, &str); 5] = [
    ("packaging/shunt.toml", "etc/shunt/shunt.toml"),
    ("packaging/prometheus/alerts.yml", "usr/share/shunt/prometheus/alerts.yml"),
    ("packaging/prometheus/dashboard.json", "usr/share/shunt/prometheus/dashboard.json"),
    ("packaging/deb/copyright", "usr/share/doc/shunt/copyright"),
    ("packaging/deb/lintian-overrides", "usr/share/lintian/overrides/shunt"),
];
/// Shells, and where Debian's packages put their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/shunt"),
    ("zsh", "usr/share/zsh/vendor-completions/_shunt"),
    ("fish", "usr/share/fish/vendor_completions.d/shunt.fish"),
];
const DOC: &str = "usr/share/doc/shunt";

/// What goes into the package besides files of the source tree.
#[derive(Debug)]
pub struct Contents<'a> {
    pub arch: &'a Arch,
    pub programs: [PathBuf; 2],
    /// The script for each shell of [`COMPLETIONS`].
    pub completions: [String; 3],
    /// The directory of the manual pages.
    pub manual: PathBuf,
    /// Licences of crates.
    pub crates: String,
    /// Names of the libraries in the programs, and their copyright files.
    pub libraries: Vec<(String, PathBuf)>,
    /// SOURCE_DATE_EPOCH: the time stamp of all files, in seconds since 1970.
    pub date: String,
}

impl Contents<'_> {
    /// Builds the programs, and gathers everything. `manual` becomes the directory of the manual pages.
    pub fn build<'a>(arch: &'a Arch, manual: &Path) -> anyhow::Result<Contents<'a>> {
        let programs = programs_with_lists(arch)?;
        let sysroot = sysroot(arch)?;
        run_shunt(arch, &programs[0], &["man", &manual.to_string_lossy()])?;
        let library =
            |name: &str| (name.to_owned(), sysroot.join(DOC).with_file_name(name).join("copyright"));
        Ok(Contents {
            arch,
            completions: completions(arch, &programs[0])?,
            manual: manual.to_owned(),
            programs,
            crates: licences::of_crates(arch)?,
            libraries: LIBRARIES.map(library).into(),
            date: source_date()?,
        })
    }

    /// Small files of a test, in the place of programs and texts.
    #[cfg(test)]
    pub fn stand_in(home: &Path) -> Contents<'static> {
        let file = |name: &str| {
            let path = home.join(name);
            fs::write(&path, name).expect("a file");
            path
        };
        let manual = home.join("manual");
        fs::create_dir(&manual).expect("a directory");
        for page in ["shunt-up.1", "shunt.toml.5", "shuntd.8"] {
            fs::write(manual.join(page), page).expect("a page");
        }
        Contents {
            manual,
            arch: &crate::arch::ARM64,
            programs: PROGRAMS.map(file),
            completions: ["bash", "zsh", "fish"].map(str::to_owned),
            crates: "a 1.0.0: MIT".to_owned(),
            libraries: vec![("libelf-dev".to_owned(), file("copyright"))],
            date: "1700000000".to_owned(),
        }
    }

    /// Lays everything out as it is to be in the root of a machine, in the directory `shunt` of a new one.
    pub fn lay_out(&self) -> anyhow::Result<(TempDir, Tree)> {
        let (source, scratch) = (root(), tempfile::tempdir()?);
        let tree = Tree(scratch.path().join("shunt"));
        for (program, name) in self.programs.iter().zip(PROGRAMS) {
            tree.put(&format!("usr/bin/{name}"), &read(program)?, 0o755)?;
        }
        for (from, to) in FILES {
            tree.put(to, &read(&source.join(from))?, 0o644)?;
        }
        for path in texts(&source.join("docs"))? {
            tree.put(&format!("{DOC}/{}", path.display()), &read(&source.join("docs").join(&path))?, 0o644)?;
        }
        for (from, name) in btf::files()? {
            tree.put(&format!("usr/share/shunt/btf/{name}"), &read(&from)?, 0o644)?;
        }
        let unit = fs::read_to_string(source.join("packaging/shuntd@.service"))?;
        let unit = unit.replace("/usr/local/", "/usr/");
        tree.put("usr/lib/systemd/system/shuntd@.service", unit.as_bytes(), 0o644)?;
        for ((_, to), script) in COMPLETIONS.iter().zip(&self.completions) {
            tree.put(to, script.as_bytes(), 0o644)?;
        }
        for page in sorted(&self.manual)? {
            let (name, section) =
                (page.file_name().context("no name")?, page.extension().context("no section")?);
            let (name, section) = (name.to_string_lossy(), section.to_string_lossy());
            tree.put_compressed(&format!("usr/share/man/man{section}/{name}"), &read(&page)?)?;
        }
        tree.put_compressed(&format!("{DOC}/CHANGELOG.md"), &read(&source.join("CHANGELOG.md"))?)?;
        tree.put_compressed(&format!("{DOC}/changelog"), self.debian_changelog()?.as_bytes())?;
        tree.put_compressed(&format!("{DOC}/licences-of-crates"), self.crates.as_bytes())?;
        for (name, copyright) in &self.libraries {
            tree.put(&format!("{DOC}/licences-of-libraries/{name}"), &read(copyright)?, 0o644)?;
        }
        Ok((scratch, tree))
    }

    /// The changelog that Debian asks for, which names the one for people.
    fn debian_changelog(&self) -> anyhow::Result<String> {
        let control = fs::read_to_string(root().join("packaging/deb/control"))?;
        let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
        let maintainer = maintainer.context("packaging/deb/control names no maintainer")?;
        let date = tool_in(&root(), "date", &["--utc", "--rfc-email", "--date", &format!("@{}", self.date)])?;
        Ok(format!(
            "shunt ({}) unstable; urgency=medium\n\n  * /{DOC}/CHANGELOG.md.gz says what has changed.\n\n -- {maintainer}  {}\n",
            version(),
            date.trim()
        ))
    }
}

/// The directory tree of a package. Modes do not depend on the umask.
#[derive(Debug)]
pub struct Tree(pub PathBuf);

impl Tree {
    pub fn put(&self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let path = self.0.join(path);
        let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| !parent.exists()).collect();
        for parent in missing.into_iter().rev() {
            fs::create_dir(parent).with_context(|| parent.display().to_string())?;
            fs::set_permissions(parent, Permissions::from_mode(0o755))?;
        }
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(fs::set_permissions(&path, Permissions::from_mode(mode))?)
    }

    /// A symbolic link to `to`.
    pub fn link(&self, path: &str, to: &str) -> anyhow::Result<()> {
        let path = self.0.join(path);
        symlink(to, &path).with_context(|| path.display().to_string())
    }

    fn put_compressed(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.put(path, bytes, 0o644)?;
        // Without name and time.
        tool_in(&self.0, "gzip", &["-9n", path]).map(drop)
    }

    /// The paths of all files, relative to the tree.
    pub fn files(&self) -> anyhow::Result<Vec<String>> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for path in sorted(&folder)? {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(&self.0)?.to_string_lossy().into_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Packs these paths of a directory. Equal contents make equal archives, byte for byte; `date` is the time stamp of all
/// files, in seconds since 1970.
pub fn tar(directory: &Path, paths: &[&str], date: &str, into: &Path) -> anyhow::Result<()> {
    let mtime = format!("--mtime=@{date}");
    let same = ["--sort=name", "--format=ustar", "--owner=0", "--group=0", "--numeric-owner", &mtime];
    let into = into.to_string_lossy();
    tool_in(directory, "tar", &[&["-cf", &*into], &same[..], paths].concat()).map(drop)
}

pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// The version in Debian's order, in which 1.0~rc1 comes before 1.0.
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").replace('-', "~")
}

/// The scripts of [`COMPLETIONS`].
fn completions(arch: &Arch, program: &Path) -> anyhow::Result<[String; 3]> {
    let mut scripts = [const { String::new() }; 3];
    for ((shell, _), script) in COMPLETIONS.iter().zip(&mut scripts) {
        *script = run_shunt(arch, program, &["completions", shell])?;
    }
    Ok(scripts)
}

/// SOURCE_DATE_EPOCH if it is set; otherwise the time of the last commit.
pub fn source_date() -> anyhow::Result<String> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let date = tool_in(&root(), "git", &["log", "-1", "--format=%ct"]).context(
        "cannot read the time of the last commit; outside a git repository, set SOURCE_DATE_EPOCH",
    )?;
    Ok(date.trim().to_owned())
}
