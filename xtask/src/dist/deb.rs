//! `cargo xtask deb`: a Debian package of the static programs of `cargo xtask dist`.

use super::tree::{Contents, Tree, read, version};
use crate::{arch::Arch, tool::tool_in};
use anyhow::Context;
use shunt_testkit::tree::{root, target};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Build a Debian package for an architecture in target/deb.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture: amd64, arm64 or armv7.
    #[arg(default_value = "amd64")]
    arch: String,
}

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the programs and the package.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let manual = tempfile::tempdir()?;
    let contents = Contents::build(Arch::named(&options.arch)?, manual.path())?;
    let package = pack(&contents, &target().join("deb"))?;
    println!("{}", package.display());
    Ok(())
}

/// Writes the package into a directory and returns its path. Equal contents make equal packages, byte for byte.
fn pack(contents: &Contents<'_>, into: &Path) -> anyhow::Result<PathBuf> {
    let (scratch, tree) = contents.lay_out()?;
    describe(contents.arch, &tree, &root().join("packaging/deb"))?;
    fs::create_dir_all(into).with_context(|| into.display().to_string())?;
    let package = into.join(format!("shunt_{}_{}.deb", version(), contents.arch.debian));
    let date = format!("SOURCE_DATE_EPOCH={}", contents.date);
    let build = ["dpkg-deb", "--build", "--root-owner-group", "-Zxz"];
    let paths = [&*tree.0.to_string_lossy(), &*package.to_string_lossy()];
    tool_in(scratch.path(), "env", &[&[date.as_str()], &build[..], &paths].concat())?;
    Ok(package)
}

/// Writes the directory DEBIAN: what dpkg must know about the package.
fn describe(arch: &Arch, tree: &Tree, templates: &Path) -> anyhow::Result<()> {
    let files = tree.files()?;
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    let sums = tool_in(&tree.0, "md5sum", &names)?;
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(tree.0.join(file))?.len();
    }
    let control = fs::read_to_string(templates.join("control"))?
        .replace("@VERSION@", &version())
        .replace("@ARCHITECTURE@", arch.debian)
        .replace("@SIZE@", &bytes.div_ceil(1024).to_string());
    tree.put("DEBIAN/control", control.as_bytes(), 0o644)?;
    tree.put("DEBIAN/conffiles", &read(&templates.join("conffiles"))?, 0o644)?;
    tree.put("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        tree.put(&format!("DEBIAN/{script}"), &read(&templates.join(script))?, 0o755)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{btf, tool::tool};

    fn packed(into: &Path) -> PathBuf {
        let contents = Contents::stand_in(into);
        pack(&contents, into).expect("a package")
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
            "usr/share/doc/shunt/CHANGELOG.md.gz",
            "usr/share/doc/shunt/changelog.gz",
            "usr/share/doc/shunt/copyright",
            "usr/share/doc/shunt/reasons.md",
            "usr/share/doc/shunt/limits/ports.md",
            "usr/share/doc/shunt/guide/why-slow.md",
            "usr/share/doc/shunt/guide/static-flows.md",
            "usr/share/doc/shunt/licences-of-crates.gz",
            "usr/share/doc/shunt/licences-of-libraries/libelf-dev",
            "usr/share/lintian/overrides/shunt",
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
