//! Compiles each bpf/prog/*.bpf.c to $OUT_DIR/<name>.o, and the packet core for this machine.

use std::{env, fs, path::Path, process::Command};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    println!("cargo:rerun-if-changed={}", root.join("bpf").display());
    println!("cargo:rerun-if-env-changed=CLANG");
    for entry in fs::read_dir(root.join("bpf/prog")).expect("bpf/prog is part of the source") {
        let source = entry.expect("bpf/prog can be listed").path();
        let name = source.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(".bpf.c") else { continue };
        compile(&clang, &root, &source, &Path::new(&out).join(format!("{stem}.o")), &[]);
    }
    let forward = root.join("bpf/prog/tc_forward.bpf.c");
    let object = Path::new(&out).join("tc_forward_without_btf.o");
    compile(&clang, &root, &forward, &object, &["-DSHUNT_WITHOUT_BTF"]);
    cc::Build::new()
        .file(root.join("bpf/core/host.c"))
        .include(root.join("bpf"))
        .flag("-fno-strict-aliasing")
        .extra_warnings(true)
        .flag_if_supported("-Wno-unknown-pragmas")
        .compile("shunt_core");
}

fn compile(clang: &str, root: &Path, source: &Path, object: &Path, options: &[&str]) {
    let mut command = Command::new(clang);
    command.args([
        "-target",
        "bpf",
        "-mcpu=v3",
        "-O2",
        "-g",
        "-fno-strict-aliasing",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    command.args(options).arg("-I").arg(root.join("bpf"));
    // Debian keeps asm/ below the architecture's directory, which clang does not search for target bpf. This machine's serves
    // every target: what the programs use of it is the same on all that are little-endian.
    command.arg("-idirafter").arg(format!("/usr/include/{}-linux-gnu", env::consts::ARCH));
    command.arg("-c").arg(source).arg("-o").arg(object);
    let status =
        command.status().unwrap_or_else(|e| panic!("{clang}: {e}; install clang, or name it in CLANG"));
    assert!(status.success(), "{clang} did not compile {}", source.display());
}
