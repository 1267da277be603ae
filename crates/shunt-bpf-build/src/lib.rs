//! Compiles `bpf/` for build scripts and tests: eBPF objects with clang, and C for the host.
//!
//! Failures panic: cargo prints the message of a build script that panics.

mod abi;
#[cfg(feature = "pack")]
mod archive;

#[cfg(feature = "pack")]
pub use archive::pack;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The `bpf/` directory of the tree whose package cargo builds or tests. Looked up at run time: the tree may be a copy,
/// with the target directory, of the one in which this crate was compiled.
pub fn source_dir() -> PathBuf {
    let package =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let mut folders = package.ancestors().map(|folder| folder.join("bpf"));
    folders
        .find(|bpf| bpf.join("abi").is_dir())
        .unwrap_or_else(|| panic!("no directory `bpf` above {}", package.display()))
}

/// Makes cargo run the build script again after a change in `bpf/`. The path is relative to the package, so that a
/// copied tree watches its own files.
pub fn watch_sources() {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let bpf = source_dir();
    let depth = package.ancestors().take_while(|folder| !bpf.starts_with(folder)).count();
    println!("cargo:rerun-if-changed={}bpf", "../".repeat(depth));
}

/// The files below `bpf`, a copy of [`source_dir`] or the original, that the fast path is compiled from: their paths
/// there.
pub fn fast_path_files(bpf: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["abi", "core", "external", "include", "prog"].map(PathBuf::from).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(bpf.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

/// A clang command line for the BPF target, with `include` as its include directory. The caller adds warnings, the
/// source and the output. `CLANG` names the compiler; the default is `clang`.
pub fn clang(include: &Path) -> Command {
    let mut command = Command::new(env::var("CLANG").unwrap_or_else(|_| "clang".to_owned()));
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-fno-strict-aliasing", "-I"]).arg(include);
    // BTF names the source of each line. The names begin at the tree, wherever it is, and so do those in the verifier's
    // messages.
    if let Some(tree) = include.parent() {
        command.arg(format!("-ffile-prefix-map={}/=", tree.display()));
    }
    // Debian keeps asm/ in the architecture's directory, which clang does not search for the BPF target. The build
    // machine's asm/ serves every target: the parts in use are the same on all little-endian architectures.
    command.arg("-idirafter").arg(format!("/usr/include/{}-linux-gnu", env::consts::ARCH));
    command
}

/// Compiles every `*.bpf.c` of `bpf/<folder>` to `$OUT_DIR/<name>.o`. For build scripts.
pub fn compile_folder(folder: &str) {
    let dir = source_dir().join(folder);
    for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let file_name = entry.unwrap_or_else(|e| panic!("{}: {e}", dir.display())).file_name();
        let file_name = file_name.to_string_lossy();
        if let Some(name) = file_name.strip_suffix(".bpf.c") {
            compile(&format!("{folder}/{file_name}"), name, &[]);
        }
    }
}

/// Compiles a file that includes those of `bpf`, a copy of [`source_dir`] or the original, as for machines that cannot
/// read words at any address.
pub fn compile_with(bpf: &Path, source: &Path, object: &Path) {
    let status = clang(bpf).args(["-w", "-c"]).arg(source).arg("-o").arg(object).status();
    assert!(status.is_ok_and(|status| status.success()), "clang cannot compile {}", source.display());
}

/// Compiles `bpf/<source>` to `$OUT_DIR/<name>.o`, with more options for clang. For build scripts.
pub fn compile(source: &str, name: &str, options: &[&str]) {
    let bpf = source_dir();
    println!("cargo:rerun-if-env-changed=CLANG");
    watch_sources();
    let object = out_dir().join(format!("{name}.o"));
    let mut command = clang(&bpf);
    command.args(["-Wall", "-Wextra", "-Werror"]).args(options);
    // CPUs that read and write words at any address; the verifier knows which they are.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| matches!(arch.as_str(), "x86_64" | "aarch64")) {
        command.arg("-DSHUNT_UNALIGNED");
    }
    command.arg("-c").arg(bpf.join(source)).arg("-o").arg(&object);
    let status = command.status().unwrap_or_else(|e| {
        panic!("{}: {e}; install clang, or name it in CLANG", command.get_program().to_string_lossy())
    });
    assert!(status.success(), "clang cannot compile bpf/{source}");
    strip(&object);
}

/// Removes DWARF from an object, which clang writes beside BTF: nothing reads it, and shuntd would have 1.7 MB
/// more. Without `llvm-strip`, which is in a package of its own, the object stays as it is.
fn strip(object: &Path) {
    if let Ok(status) = Command::new("llvm-strip").arg("--strip-debug").arg(object).status() {
        assert!(status.success(), "llvm-strip cannot strip {}", object.display());
    }
}

/// Compiles `bpf/<source>` for the host and links it into the crate as a static library. For build scripts.
pub fn compile_for_host(source: &str, library: &str) {
    host_build(&[source]).compile(library);
}

/// Compiles files of `bpf/external` like [`compile_for_host`]. Their maps are arrays in memory.
pub fn compile_external(sources: &[&str], library: &str) {
    let sources: Vec<_> = sources.iter().map(|source| format!("external/{source}")).collect();
    let sources: Vec<_> = sources.iter().map(String::as_str).collect();
    host_build(&sources).include(source_dir().join("external/host")).opt_level(3).compile(library);
}

fn host_build(sources: &[&str]) -> cc::Build {
    let bpf = source_dir();
    watch_sources();
    let mut build = cc::Build::new();
    build
        .files(sources.iter().map(|source| bpf.join(source)))
        .include(bpf)
        .flag("-fno-strict-aliasing")
        .extra_warnings(true)
        .flag_if_supported("-Wno-unknown-pragmas");
    build
}

/// Writes the Rust twin of headers of `bpf/` to `$OUT_DIR/<name>.rs`, for `include!`. For build scripts.
///
/// Its unit test compares every size, offset and constant with the C compiler's. The C table for it is compiled with
/// `-Wpadded -Werror`, and the headers are checked so for the BPF target, too: no struct has a hole.
pub fn generate_abi(headers: &[&str], name: &str) {
    let bpf = source_dir();
    let strict = ["-Wpadded", "-Werror"];
    for header in headers {
        let status =
            clang(&bpf).args(["-fsyntax-only", "-x", "c"]).args(strict).arg(bpf.join(header)).status();
        assert!(status.is_ok_and(|status| status.success()), "bpf/{header} has a hole on the BPF target");
    }
    generate_twin(headers, name, &strict);
}

/// Like [`generate_abi`], for structures of the host that hold pointers and may have holes.
pub fn generate_host_abi(headers: &[&str], name: &str) {
    generate_twin(headers, name, &[]);
}

fn generate_twin(headers: &[&str], name: &str, flags: &[&str]) {
    let bpf = source_dir();
    watch_sources();
    let read = |header| fs::read_to_string(bpf.join(header)).unwrap_or_else(|e| panic!("bpf/{header}: {e}"));
    let texts: Vec<String> = headers.iter().map(read).collect();
    let twin = abi::twin(texts.iter().map(String::as_str));
    let table = format!("{name}_layout");
    write_out(&format!("{name}.rs"), &twin.rust(&table));
    let source = write_out(&format!("{table}.c"), &twin.c_table(headers, &table));
    let mut build = cc::Build::new();
    build.file(source).include(bpf).extra_warnings(true).flags(flags);
    build.flag_if_supported("-Wno-unknown-pragmas").compile(&table);
}

/// Writes a file to `$OUT_DIR`.
fn write_out(name: &str, text: &str) -> PathBuf {
    write_bytes_out(name, text.as_bytes())
}

fn write_bytes_out(name: &str, bytes: &[u8]) -> PathBuf {
    let path = out_dir().join(name);
    fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// Writes the reasons of `bpf/abi/reasons.h` as Rust items to `$OUT_DIR/reasons.rs`: `REASONS`, and a constant with the
/// number of each. For build scripts.
pub fn expand_reasons() {
    let source = write_out("reasons.c", REASONS);
    let expanded = cc::Build::new().file(&source).include(source_dir()).expand();
    let expanded = String::from_utf8(expanded).unwrap_or_else(|e| panic!("bpf/abi/reasons.h: {e}"));
    // The preprocessor's lines say where the others come from.
    let lines: Vec<&str> = expanded.lines().filter(|line| !line.starts_with('#')).collect();
    write_out("reasons.rs", &lines.join("\n"));
}

/// Has the C preprocessor turn each reason into Rust.
const REASONS: &str = r#"
#define KIND_PUNT ReasonKind::Punt
#define KIND_REFUSAL ReasonKind::Refusal
#define KIND_DROP ReasonKind::Drop
#define IS_CAUSE true
#define IS_PASSING false
#define SHUNT_REASON(n, c, p, k, q, r, m, y) \
	Reason { number: n, name: p, kind: KIND_##k, is_cause: IS_##r, meaning: m, remedy: y },
pub const REASONS: &[Reason] = &[
#include "abi/reasons.h"
];
#undef SHUNT_REASON
#define SHUNT_REASON(n, c, ...) pub const c: usize = n;
pub mod numbers {
#include "abi/reasons.h"
}
"#;

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}
