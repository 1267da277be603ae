//! musl, libelf and zlib for the program of small routers. Debian has musl's headers for every architecture, but libelf
//! and zlib for glibc only, so these two are compiled from the sources that libbpf-sys contains.

use super::{folders_of_this_build, put};
use crate::{
    arch::{Arch, COMPILER},
    debian::{self, Set},
    tool::tool,
};
use anyhow::Context;
use serde_json::Value;
use shunt_testkit::tree::target;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What musl has, for the sources of elfutils.
const CONFIG: &str = "\
#define _GNU_SOURCE 1
#define HAVE_DECL_MEMPCPY 1
#define HAVE_DECL_MEMRCHR 1
#define HAVE_DECL_RAWMEMCHR 0
#define HAVE_DECL_POWEROF2 0
#define HAVE_DECL_REALLOCARRAY 1
#define HAVE_ERR_H 1
#define HAVE_FALLTHROUGH 1
#define HAVE_MREMAP 1
#define HAVE_STDATOMIC_H 1
#define HAVE_VISIBILITY 1
#include <eu-config.h>
";
/// Headers that programs include.
const ELF_HEADERS: [&str; 2] = ["gelf.h", "libelf.h"];
const ZLIB_HEADERS: [&str; 2] = ["zconf.h", "zlib.h"];
/// Where headers and libraries for programs with musl are.
pub(super) struct Musl {
    /// Options of the compiler.
    pub(super) flags: Vec<String>,
    /// The directory of `libelf.a` and `libz.a`.
    pub(super) libraries: PathBuf,
}

/// Fetches the headers and builds the libraries, unless they are there.
pub(super) fn prepare(arch: &Arch) -> anyhow::Result<Musl> {
    let sysroot = sysroot(arch)?;
    let home = target().join("small-libraries").join(arch.name);
    let (sources, headers) = (sources()?, home.join("include"));
    for (folder, names) in [("elfutils/libelf", ELF_HEADERS), ("zlib", ZLIB_HEADERS)] {
        for name in names {
            put(&sources.join(folder).join(name), &headers.join(name))?;
        }
    }
    let directories = [
        headers,
        sysroot.join("usr/include").join(arch.musl_tuple()),
        sysroot.join("usr/include").join(arch.tuple),
        sysroot.join("usr/include"),
    ];
    let mut flags = vec![format!("--target={}", arch.musl_tuple()), "-nostdlibinc".to_owned()];
    flags.extend(directories.iter().map(|directory| format!("-isystem{}", directory.display())));
    flags.extend(["-ffunction-sections", "-fdata-sections"].map(str::to_owned));
    let renamed = folders_of_this_build()?;
    flags.extend(
        renamed.iter().map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display())),
    );
    build(&sources, &home, &flags)?;
    Ok(Musl { flags, libraries: home })
}

fn sysroot(arch: &Arch) -> anyhow::Result<PathBuf> {
    debian::unpacked(&Set {
        name: "musl",
        suite: debian::STABLE,
        arch,
        packages: &["musl-dev", "linux-libc-dev"],
        closed: false,
    })
}

/// musl's licence.
pub(super) fn licence(arch: &Arch) -> anyhow::Result<String> {
    let path = sysroot(arch)?.join("usr/share/doc/musl-dev/copyright");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The directory of libbpf-sys.
fn sources() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let text = tool(&cargo, &["metadata", "--locked", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let found = packages.iter().find(|package| package["name"] == "libbpf-sys");
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let directory = manifest.and_then(|path| Path::new(path).parent());
    Ok(directory.context("the workspace does not use libbpf-sys")?.to_owned())
}

/// Compiles both libraries, unless those there are of the same sources and options.
fn build(sources: &Path, home: &Path, flags: &[String]) -> anyhow::Result<()> {
    let made = format!("{}\n{}\n{CONFIG}", sources.display(), flags.join("\n"));
    if fs::read_to_string(home.join("made")).is_ok_and(|there| there == made) {
        return Ok(());
    }
    fs::write(home.join("config.h"), CONFIG)?;
    let include = |folder: &Path| format!("-I{}", folder.display());
    let (libelf, lib, zlib) =
        (sources.join("elfutils/libelf"), sources.join("elfutils/lib"), sources.join("zlib"));
    let elf = [
        "-DHAVE_CONFIG_H".to_owned(),
        include(home),
        include(&libelf),
        include(&lib),
        "-std=gnu11".to_owned(),
        "-w".to_owned(),
    ];
    library("elf", &c_files(&libelf)?, &[flags, &elf].concat(), home)?;
    let options = ["-DHAVE_UNISTD_H".to_owned(), "-DHAVE_HIDDEN".to_owned(), "-w".to_owned()];
    library("z", &c_files(&zlib)?, &[flags, &options].concat(), home)?;
    Ok(fs::write(home.join("made"), made)?)
}

fn c_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = super::sorted(folder)?;
    files.retain(|path| path.extension().is_some_and(|end| end == "c"));
    Ok(files)
}

/// Compiles these files into `lib<name>.a`.
fn library(name: &str, files: &[PathBuf], flags: &[String], home: &Path) -> anyhow::Result<()> {
    let objects = home.join(name);
    fs::create_dir_all(&objects)?;
    let mut paths = Vec::new();
    for file in files {
        let stem = file.file_stem().context("a source has a name")?.to_string_lossy();
        let object = objects.join(format!("{stem}.o")).to_string_lossy().into_owned();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let rest = ["-Oz", "-c", &file.to_string_lossy(), "-o", &object];
        tool(COMPILER, &[&flags[..], &rest].concat())?;
        paths.push(object);
    }
    let archive = home.join(format!("lib{name}.a")).to_string_lossy().into_owned();
    let _ = fs::remove_file(&archive);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    tool("ar", &[&["rcsD", archive.as_str()], &paths[..]].concat()).map(drop)
}
