//! `cargo xtask dist`: a tarball of static programs for an architecture, with man pages, unit, configuration and
//! licences.

pub mod deb;
mod licences;
mod musl;
pub mod oci;
pub mod openwrt;
pub mod router;
mod tree;

use crate::{
    arch::{ARCHES, Arch, COMPILER},
    btf,
    debian::{self, Set},
    tool::{tool, tool_in},
};
use anyhow::{Context, ensure};
use shunt_testkit::tree::{root, target};
use std::{
    env, fs, io, iter,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Build static programs for an architecture and pack them into a tarball in target/dist.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture: amd64, arm64 or armv7.
    #[arg(default_value = "amd64")]
    arch: String,
}

/// The programs.
pub const PROGRAMS: [&str; 2] = ["shunt", "shuntd"];
/// Packages of the libraries that are linked into the programs.
const LIBRARIES: [&str; 4] = ["libc6-dev", "libelf-dev", "libgcc-12-dev", "zlib1g-dev"];
/// Packages that these need at build time: headers, and a licence.
const BESIDE: [&str; 2] = ["gcc-12-base", "linux-libc-dev"];
/// The package with QEMU's user mode for all architectures. It needs no libraries.
const EMULATORS: &str = "qemu-user-static";
/// Further files, and their paths in the tarball.
const FILES: [(&str, &str); 8] = [
    ("packaging/shunt.toml", "shunt.toml"),
    ("packaging/prometheus/alerts.yml", "share/shunt/prometheus/alerts.yml"),
    ("packaging/prometheus/dashboard.json", "share/shunt/prometheus/dashboard.json"),
    ("packaging/shuntd@.service", "lib/systemd/system/shuntd@.service"),
    ("LICENSE-MIT", "licences/LICENSE-MIT"),
    ("LICENSE-APACHE", "licences/LICENSE-APACHE"),
    ("bpf/LICENSE-GPL-2.0", "licences/bpf/LICENSE-GPL-2.0"),
    ("bpf/LICENSE-BSD-2-Clause", "licences/bpf/LICENSE-BSD-2-Clause"),
];

/// What docs/ has for people who use Shunt, by the path below it. Messages, help texts and manual pages name these
/// files.
const TEXTS: [&str; 7] =
    ["README.md", "reasons.md", "reload.md", "limitations.md", "limitations-lab.md", "limits", "guide"];

/// Builds the programs and packs the tarball.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let arch = Arch::named(&options.arch)?;
    let programs = programs_with_lists(arch)?;
    let name = format!("shunt-{}-{}", env!("CARGO_PKG_VERSION"), arch.name);
    let dist = target().join("dist");
    let directory = dist.join(&name);
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    for (program, name) in programs.iter().zip(PROGRAMS) {
        put(program, &directory.join("bin").join(name))?;
    }
    let root = root();
    for (from, to) in FILES {
        put(&root.join(from), &directory.join(to))?;
    }
    for path in texts(&root.join("docs"))? {
        put(&root.join("docs").join(&path), &directory.join("doc").join(&path))?;
    }
    for (from, name) in btf::files()? {
        put(&from, &directory.join("share/shunt/btf").join(name))?;
    }
    let pages = tempfile::tempdir()?;
    run_shunt(arch, &programs[0], &["man", &pages.path().to_string_lossy()])?;
    for page in fs::read_dir(pages.path())? {
        let page = page?.path();
        let name = page.file_name().context("a page has a name")?;
        let section = page.extension().context("a page has a section")?.to_string_lossy();
        put(&page, &directory.join(format!("share/man/man{section}")).join(name))?;
    }
    let sysroot = sysroot(arch)?;
    for package in LIBRARIES {
        let licence = sysroot.join("usr/share/doc").join(package).join("copyright");
        put(&licence, &directory.join("licences/libraries").join(package))?;
    }
    fs::write(directory.join("licences/crates"), licences::of_crates(arch)?)?;
    let tarball = dist.join(format!("{name}.tar.gz"));
    let (tarball_text, dist_text) = (tarball.to_string_lossy(), dist.to_string_lossy());
    let reproducible = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    tool("tar", &[&["-czf", &tarball_text, "-C", &dist_text], &reproducible[..], &[name.as_str()]].concat())?;
    println!("{}", tarball.display());
    Ok(())
}

/// The files of [`TEXTS`], by their paths below `docs`.
fn texts(docs: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for name in TEXTS {
        let path = docs.join(name);
        let files = if path.is_dir() { sorted(&path)? } else { vec![path] };
        for file in files {
            found.push(file.strip_prefix(docs)?.to_owned());
        }
    }
    Ok(found)
}

fn sorted(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// Builds static programs for an architecture; returns their paths.
pub fn programs(arch: &Arch) -> anyhow::Result<[PathBuf; 2]> {
    build_with(cargo(arch, &["build"])?, arch)
}

/// As [`programs`], for packages: each program has the list of its crates, which scanners for known faults read.
fn programs_with_lists(arch: &Arch) -> anyhow::Result<[PathBuf; 2]> {
    eprintln!("Building static programs for {}. On two CPUs, the first time takes ten minutes.", arch.name);
    let tool = tool_in(&root(), "packaging/auditable.sh", &[])?;
    let mut build = cargo(arch, &["auditable", "build"])?;
    let path = env::var("PATH").unwrap_or_default();
    build.env("PATH", format!("{}:{path}", tool.trim()));
    build_with(build, arch)
}

fn build_with(mut cargo: Command, arch: &Arch) -> anyhow::Result<[PathBuf; 2]> {
    cargo.args(["--release", "--package", "shunt", "--package", "shuntd"]);
    ensure!(cargo.status()?.success(), "cannot build Shunt for {}", arch.name);
    let programs = PROGRAMS.map(|name| target().join(arch.target).join("release").join(name));
    for program in &programs {
        let headers = tool("readelf", &["--program-headers", "--wide", &program.to_string_lossy()])?;
        ensure!(!headers.contains("INTERP"), "{} is not static", program.display());
    }
    Ok(programs)
}

/// What the built `shunt` prints. QEMU runs it if this machine cannot: a second build for this machine would take
/// minutes.
fn run_shunt(arch: &Arch, program: &Path, words: &[&str]) -> anyhow::Result<String> {
    let mut command = if arch.is_of_this_machine() {
        Command::new(program)
    } else {
        let mut emulator = Command::new(emulator(arch)?);
        emulator.arg(program);
        emulator
    };
    let what = words.join(" ");
    let output = command.args(words).output().with_context(|| format!("cannot run shunt {what}"))?;
    ensure!(output.status.success(), "shunt {what}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The user mode of QEMU for programs of another architecture: that of this machine, or unpacked from Debian's package.
fn emulator(arch: &Arch) -> anyhow::Result<PathBuf> {
    let name = arch.emulator();
    let there = Command::new(&name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_ok() {
        return Ok(name.into());
    }
    let here = ARCHES.iter().find(|arch| arch.is_of_this_machine());
    let set = Set {
        name: "emulators",
        suite: debian::STABLE,
        arch: here.context("no known architecture is that of this machine")?,
        packages: &[EMULATORS],
        closed: false,
    };
    let root = debian::unpacked(&set).with_context(|| {
        format!("install {EMULATORS}, which cannot be fetched: {name} writes the manual pages")
    })?;
    Ok(root.join("usr/bin").join(name))
}

/// A cargo command that builds static programs for an architecture.
pub fn cargo(arch: &Arch, command: &[&str]) -> anyhow::Result<Command> {
    arch.require_toolchain()?;
    let sysroot = sysroot(arch)?;
    let about = arch.target.replace('-', "_");
    let mut cargo = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.args(command).args(["--locked", "--target", arch.target]);
    // Only shunt-bpf has the feature.
    cargo.args(["--package", "shunt-bpf", "--features", "shunt-bpf/static"]);
    let from_there = format!("--sysroot={}", sysroot.display());
    let folders = folders_of_this_build()?;
    let flags = folders.iter().map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()));
    let flags: Vec<String> = iter::once(from_there.clone()).chain(flags).collect();
    cargo
        .env(format!("CC_{about}"), COMPILER)
        .env(format!("AR_{about}"), "ar")
        .env(format!("CFLAGS_{about}"), flags.join(" "))
        .env(format!("LIBBPF_SYS_LIBRARY_PATH_{about}"), sysroot.join("usr/lib").join(arch.tuple))
        .env(format!("CARGO_TARGET_{}_LINKER", about.to_uppercase()), COMPILER);
    let linked = [format!("--target={}", arch.tuple), from_there, "-fuse-ld=lld".to_owned()];
    let flags = iter::once("-Ctarget-feature=+crt-static".to_owned())
        .chain(linked.map(|argument| format!("-Clink-arg={argument}")))
        .chain(
            folders.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display())),
        );
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\x1f"));
    Ok(cargo)
}

/// Folders of this machine that compilers write into programs, and the names that stand for them. With these, two
/// builds in different folders give the same bytes. A later entry goes before an earlier one.
fn folders_of_this_build() -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let sources = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let mut folders = vec![(root(), "."), (target(), "./target")];
    // A folder for each registry, named after it.
    if sources.is_dir() {
        folders.extend(sorted(&sources)?.into_iter().map(|registry| (registry, "crates")));
    }
    Ok(folders)
}

/// Directory with the headers and libraries of an architecture.
fn sysroot(arch: &Arch) -> anyhow::Result<PathBuf> {
    let packages = [&LIBRARIES[..], &BESIDE].concat();
    debian::unpacked(&Set {
        name: "sysroot",
        suite: debian::STABLE,
        arch,
        packages: &packages,
        closed: false,
    })
}

fn put(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}
