//! `cargo xtask deb`: a Debian package of the static programs of `cargo xtask dist`.

use super::{LIBRARIES, PROGRAMS, licences, programs, run_shunt, sorted, sysroot, texts};
use crate::{arch::Arch, btf, tool::tool_in};
use anyhow::Context;
use shunt_testkit::tree::{root, target};
use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Build a Debian package for an architecture in target/deb.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture: amd64, arm64 or armv7.
    #[arg(default_value = "amd64")]
    arch: String,
}

/// Files of the source tree, and their paths in the package. Manual pages and texts that are compressed are not listed.
const FILES: [(&str, &str); 4] = [
    ("packaging/shunt.toml", "etc/shunt/shunt.toml"),
    ("packaging/prometheus/alerts.yml", "usr/share/shunt/prometheus/alerts.yml"),
    ("packaging/prometheus/dashboard.json", "usr/share/shunt/prometheus/dashboard.json"),
    ("packaging/deb/copyright", "usr/share/doc/shunt/copyright"),
];
/// Shells, and where Debian's packages put their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/shunt"),
    ("zsh", "usr/share/zsh/vendor-completions/_shunt"),
    ("fish", "usr/share/fish/vendor_completions.d/shunt.fish"),
];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const DOC: &str = "usr/share/doc/shunt";

/// Builds the programs and the package.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let arch = Arch::named(&options.arch)?;
    let programs = programs(arch)?;
    let sysroot = sysroot(arch)?;
    let manual = tempfile::tempdir()?;
    run_shunt(arch, &programs[0], &["man", &manual.path().to_string_lossy()])?;
    let library = |name: &str| (name.to_owned(), sysroot.join(DOC).with_file_name(name).join("copyright"));
    let contents = Contents {
        arch,
        completions: completions(arch, &programs[0])?,
        manual: manual.path().to_owned(),
        programs,
        crates: licences::of_crates(arch)?,
        libraries: LIBRARIES.map(library).into(),
        date: source_date()?,
    };
    let package = contents.pack(&target().join("deb"))?;
    println!("{}", package.display());
    Ok(())
}

/// What goes into the package besides files of the source tree.
#[derive(Debug)]
struct Contents<'a> {
    arch: &'a Arch,
    programs: [PathBuf; 2],
    /// The script for each shell of [`COMPLETIONS`].
    completions: [String; 3],
    /// The directory of the manual pages.
    manual: PathBuf,
    /// Licences of crates.
    crates: String,
    /// Names of the libraries in the programs, and their copyright files.
    libraries: Vec<(String, PathBuf)>,
    /// SOURCE_DATE_EPOCH: the time stamp of all files, in seconds since 1970.
    date: String,
}

impl Contents<'_> {
    /// Writes the package into a directory and returns its path. Equal contents make equal packages, byte for byte.
    fn pack(&self, into: &Path) -> anyhow::Result<PathBuf> {
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
        tree.put_compressed(&format!("{DOC}/changelog"), &read(&source.join("CHANGELOG.md"))?)?;
        tree.put_compressed(&format!("{DOC}/licences-of-crates"), self.crates.as_bytes())?;
        for (name, copyright) in &self.libraries {
            tree.put(&format!("{DOC}/licences-of-libraries/{name}"), &read(copyright)?, 0o644)?;
        }
        self.describe(&tree, &source.join("packaging/deb"))?;
        fs::create_dir_all(into).with_context(|| into.display().to_string())?;
        let package = into.join(format!("shunt_{}_{}.deb", version(), self.arch.debian));
        let date = format!("SOURCE_DATE_EPOCH={}", self.date);
        let build = ["dpkg-deb", "--build", "--root-owner-group", "-Zxz"];
        let paths = [&*tree.0.to_string_lossy(), &*package.to_string_lossy()];
        tool_in(scratch.path(), "env", &[&[date.as_str()], &build[..], &paths].concat())?;
        Ok(package)
    }

    /// Writes the directory DEBIAN: what dpkg must know about the package.
    fn describe(&self, tree: &Tree, templates: &Path) -> anyhow::Result<()> {
        let files = tree.files()?;
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        let sums = tool_in(&tree.0, "md5sum", &names)?;
        let mut bytes = 0;
        for file in &files {
            bytes += fs::metadata(tree.0.join(file))?.len();
        }
        let control = fs::read_to_string(templates.join("control"))?
            .replace("@VERSION@", &version())
            .replace("@ARCHITECTURE@", self.arch.debian)
            .replace("@SIZE@", &bytes.div_ceil(1024).to_string());
        tree.put("DEBIAN/control", control.as_bytes(), 0o644)?;
        tree.put("DEBIAN/conffiles", &read(&templates.join("conffiles"))?, 0o644)?;
        tree.put("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
        for script in SCRIPTS {
            tree.put(&format!("DEBIAN/{script}"), &read(&templates.join(script))?, 0o755)?;
        }
        Ok(())
    }
}

/// The directory tree of a package. Modes do not depend on the umask.
struct Tree(PathBuf);

impl Tree {
    fn put(&self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let path = self.0.join(path);
        let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| !parent.exists()).collect();
        for parent in missing.into_iter().rev() {
            fs::create_dir(parent).with_context(|| parent.display().to_string())?;
            fs::set_permissions(parent, Permissions::from_mode(0o755))?;
        }
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(fs::set_permissions(&path, Permissions::from_mode(mode))?)
    }

    fn put_compressed(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.put(path, bytes, 0o644)?;
        // Without name and time.
        tool_in(&self.0, "gzip", &["-9n", path]).map(drop)
    }

    /// The paths of all files, relative to the tree.
    fn files(&self) -> anyhow::Result<Vec<String>> {
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

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// The version in Debian's order, in which 1.0~rc1 comes before 1.0.
fn version() -> String {
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
fn source_date() -> anyhow::Result<String> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let date = tool_in(&root(), "git", &["log", "-1", "--format=%ct"]).context(
        "cannot read the time of the last commit; outside a git repository, set SOURCE_DATE_EPOCH",
    )?;
    Ok(date.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arch::ARM64, tool::tool};

    fn packed(into: &Path) -> PathBuf {
        let file = |name: &str| {
            let path = into.join(name);
            fs::write(&path, name).expect("a file");
            path
        };
        let manual = into.join("manual");
        fs::create_dir(&manual).expect("a directory");
        for page in ["shunt-up.1", "shunt.toml.5", "shuntd.8"] {
            fs::write(manual.join(page), page).expect("a page");
        }
        let contents = Contents {
            manual,
            arch: &ARM64,
            programs: PROGRAMS.map(file),
            completions: ["bash", "zsh", "fish"].map(str::to_owned),
            crates: "a 1.0.0: MIT".to_owned(),
            libraries: vec![("libelf-dev".to_owned(), file("copyright"))],
            date: "1700000000".to_owned(),
        };
        contents.pack(into).expect("a package")
    }

    #[test]
    fn equal_contents_make_equal_packages() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let [one, other] = [one.path(), other.path()].map(packed);
        assert!(fs::read(one).expect("a package") == fs::read(other).expect("a package"));
    }

    #[test]
    fn the_package_has_every_file_with_its_mode_and_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let package = packed(directory.path());
        assert!(package.ends_with(format!("shunt_{}_arm64.deb", version())), "{}", package.display());
        let package = package.to_string_lossy();
        let listed = tool("dpkg-deb", &["--contents", &package]).expect("a list");
        let has = |mode: &str, path: &str| {
            let is_it = |line: &str| {
                line.starts_with(&format!("{mode} root/root ")) && line.ends_with(&format!(" ./{path}"))
            };
            assert!(listed.lines().any(is_it), "{mode} {path}\n{listed}");
        };
        for path in ["usr/bin/shunt", "usr/bin/shuntd"] {
            has("-rwxr-xr-x", path);
        }
        has("drwxr-xr-x", "etc/shunt/");
        for path in [
            "etc/shunt/shunt.toml",
            "usr/lib/systemd/system/shuntd@.service",
            "usr/share/bash-completion/completions/shunt",
            "usr/share/doc/shunt/copyright",
            "usr/share/doc/shunt/reasons.md",
            "usr/share/doc/shunt/limits/ports.md",
            "usr/share/doc/shunt/guide/why-slow.md",
            "usr/share/doc/shunt/guide/static-flows.md",
            "usr/share/doc/shunt/licences-of-crates.gz",
            "usr/share/doc/shunt/licences-of-libraries/libelf-dev",
            "usr/share/man/man1/shunt-up.1.gz",
            "usr/share/man/man5/shunt.toml.5.gz",
            "usr/share/man/man8/shuntd.8.gz",
        ] {
            has("-rw-r--r--", path);
        }
        for (_, name) in btf::files().expect("files") {
            has("-rw-r--r--", &format!("usr/share/shunt/btf/{name}"));
        }
        let unit = tool("dpkg-deb", &["--fsys-tarfile", &package]).expect("an archive");
        assert!(unit.contains("ExecStart=/usr/bin/shuntd ") && !unit.contains("/usr/local/"));
        let field = |name| tool("dpkg-deb", &["--field", &package, name]).expect("a field").trim().to_owned();
        assert_eq!((field("Architecture"), field("Version")), ("arm64".to_owned(), version()));
        let conffiles = tool("dpkg-deb", &["--info", &package, "conffiles"]).expect("conffiles");
        assert_eq!(conffiles, "/etc/shunt/shunt.toml\n");
    }
}
