//! `cargo xtask router`: the program for small routers, which is the daemon and the commands of a router in one file.

use super::{folders_of_this_build, musl, put};
use crate::{
    arch::{ARCHES, Arch, COMPILER},
    tool::tool,
};
use anyhow::ensure;
use shunt_testkit::tree::{root, target};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Build the program for small routers, for an architecture, in target/router.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture: amd64, arm64 or armv7; or all, which also writes the sizes into docs/small-router.md.
    #[arg(default_value = "amd64")]
    arch: String,
}

/// The most bytes that the program may have: just above the largest one. A router with 16 MB of flash has little to
/// spare, so this may only fall.
const MOST_BYTES: u64 = 5_650_000;
const PROFILE: &str = "small";
/// Has the linker leave out unwind tables, which `-Cforce-unwind-tables=no` does not remove from libraries.
const LINKER_SCRIPT: &str = include_str!("no_unwinding.ld");
/// The document with the sizes.
const PAGE: &str = "docs/small-router.md";
const BEGIN: &str = "<!-- sizes: `cargo xtask router all` -->\n";
const END: &str = "<!-- end of sizes -->\n";

/// Builds the program, and checks its size.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.arch != "all" {
        let program = program(Arch::named(&options.arch)?)?;
        println!("{} ({} bytes)", program.display(), fs::metadata(&program)?.len());
        return Ok(());
    }
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for arch in &ARCHES {
        match program(arch) {
            Ok(program) => {
                let bytes = fs::metadata(&program)?.len();
                println!("{} ({bytes} bytes)", program.display());
                rows.push((arch.name, bytes, compressed_bytes(&program)?));
            }
            Err(error) => {
                eprintln!("{}: {error:#}", arch.name);
                missing.push(arch.name);
            }
        }
    }
    let page = root().join(PAGE);
    let text = with_sizes(&fs::read_to_string(&page)?, &rows)?;
    fs::write(page, text)?;
    ensure!(missing.is_empty(), "not built, and not on {PAGE}: {}", missing.join(", "));
    Ok(())
}

/// Builds the program for an architecture; returns its path.
pub fn program(arch: &Arch) -> anyhow::Result<PathBuf> {
    let built = target().join(arch.musl_target()).join(PROFILE).join("shunt");
    eprintln!("Building the program for small routers, {}. On two CPUs, this takes ten minutes.", arch.name);
    ensure!(cargo(arch)?.status()?.success(), "cannot build the program for small routers, {}", arch.name);
    let headers = tool("readelf", &["--program-headers", "--wide", &built.to_string_lossy()])?;
    ensure!(!headers.contains("INTERP"), "{} is not static", built.display());
    let bytes = fs::metadata(&built)?.len();
    ensure!(
        bytes <= MOST_BYTES,
        "{}: {bytes} bytes, more than the {MOST_BYTES} that it may have; see docs/adr/0032 for what the size is made of",
        built.display()
    );
    let name = format!("shunt-router-{}-{}", env!("CARGO_PKG_VERSION"), arch.name);
    let program = target().join("router").join(name);
    put(&built, &program)?;
    Ok(program)
}

/// The cargo command that builds it: static, with musl, without what a router does not need.
fn cargo(arch: &Arch) -> anyhow::Result<Command> {
    let triple = arch.musl_target();
    arch.require_toolchain_for(&triple)?;
    let musl = musl::prepare(arch)?;
    let about = triple.replace('-', "_");
    let mut cargo = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.args(["rustc", "--locked", "--profile", PROFILE, "--target", &triple, "--bin", "shunt"]);
    cargo.args(["--package", "shunt", "--no-default-features", "--features", "daemon,shuntd/static"]);
    let script = musl.libraries.join("no_unwinding.ld");
    fs::write(&script, LINKER_SCRIPT)?;
    cargo.args(["--", &format!("-Clink-arg=--script={}", script.display())]);
    cargo
        .env(format!("CC_{about}"), COMPILER)
        .env(format!("AR_{about}"), "ar")
        .env(format!("CFLAGS_{about}"), musl.flags.join(" "))
        .env(format!("LIBBPF_SYS_LIBRARY_PATH_{about}"), &musl.libraries)
        .env(format!("CARGO_TARGET_{}_LINKER", about.to_uppercase()), "ld.lld");
    // A panic aborts, so nothing unwinds.
    let linking = [
        "-Clinker-flavor=ld.lld",
        "-Clink-self-contained=yes",
        "-Cforce-unwind-tables=no",
        "-Crelocation-model=static",
    ]
    .map(str::to_owned);
    let renamed = folders_of_this_build()?;
    let renamed =
        renamed.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()));
    let flags: Vec<String> = linking.into_iter().chain(renamed).collect();
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    Ok(cargo)
}

/// Its size in a compressed file system or package.
fn compressed_bytes(program: &Path) -> anyhow::Result<u64> {
    let scratch = tempfile::tempdir()?;
    let copy = scratch.path().join("program");
    put(program, &copy)?;
    tool("xz", &["-9e", &copy.to_string_lossy()])?;
    Ok(fs::metadata(copy.with_extension("xz"))?.len())
}

/// The page with these sizes: architecture, bytes, bytes compressed.
fn with_sizes(page: &str, rows: &[(&str, u64, u64)]) -> anyhow::Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| anyhow::anyhow!("{PAGE} has no place for the sizes"))?;
    let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    let mut table = "| architecture | program | compressed (xz) |\n| --- | --- | --- |\n".to_owned();
    for (name, bytes, packed) in rows {
        table += &format!("| {name} | {} | {} |\n", megabytes(*bytes), megabytes(*packed));
    }
    table += &format!(
        "\nA program may have at most {} MB; a build that has more fails.\n",
        MOST_BYTES as f64 / 1e6
    );
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_replace_those_on_the_page_and_nothing_else() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let new = with_sizes(&page, &[("arm64", 2_345_678, 1_000_000)]).expect("a page");
        assert!(new.starts_with("before\n") && new.ends_with("after\n") && !new.contains("old"), "{new}");
        assert!(new.contains("| arm64 | 2.35 MB | 1.00 MB |\n"), "{new}");
        assert!(with_sizes("no place", &[]).is_err());
    }

    #[test]
    fn the_page_has_the_limit_and_no_size_above_it() {
        let page = fs::read_to_string(root().join(PAGE)).expect("a page");
        let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).expect("a table").0;
        let limit = MOST_BYTES as f64 / 1e6;
        assert!(table.contains(&format!("at most {limit} MB;")), "{table}");
        for row in table.lines().filter(|line| line.starts_with("| a") && line.contains(" MB ")) {
            let size =
                row.split('|').nth(2).and_then(|cell| cell.trim().strip_suffix(" MB")).expect("a size");
            assert!(size.parse::<f64>().expect("a number") <= limit, "{row}");
        }
    }
}
