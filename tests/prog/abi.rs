//! The header that both sides include.

use std::{path::Path, process::Command};

#[test]
fn the_abi_has_no_holes_for_either_compiler() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    for target in [&["-target", "bpf", "-idirafter", &multiarch][..], &[]] {
        let output = Command::new(&clang)
            .args(target)
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpadded", "-Werror", "-I"])
            .args([&bpf, &bpf.join("abi_check.c")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
