//! The QEMU that runs a guest: that of this machine, or that of Debian's next release, unpacked, if this machine's has
//! not got the guest's board or NIC.

use super::{image::is_this_machine, machine::Machine};
use crate::{
    arch::AMD64,
    debian::{self, NEXT, Set},
};
use anyhow::{Context, ensure};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The libraries of the unpacked programs, in its directory.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const MODULES: &str = "usr/lib/x86_64-linux-gnu/qemu";
/// Where it finds its firmware.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// The start of the command line of a QEMU that has this machine and this model of a NIC.
pub fn command(machine: &Machine, nic: Option<&str>) -> anyhow::Result<Vec<String>> {
    let own = vec![machine.qemu.to_owned()];
    ensure!(
        output(&own, &["--version"]).is_some(),
        "{} is missing; `packaging/deps.sh --vm` installs it",
        machine.qemu
    );
    // Only programs for this architecture can be unpacked and started here.
    if has(&own, machine, nic) || !is_this_machine(&AMD64) {
        return Ok(own);
    }
    let package = package(machine.qemu).with_context(|| format!("no package has {}", machine.qemu))?;
    let set = Set { name: package, suite: NEXT, arch: &AMD64, packages: &[package], closed: true };
    let next = unpacked(machine.qemu, &debian::unpacked(&set)?);
    // If it has no such machine either, the error is that of the program that people know.
    Ok(if has(&next, machine, nic) { next } else { own })
}

/// The command line of a program in a directory with its libraries, its modules and its firmware.
fn unpacked(program: &str, root: &Path) -> Vec<String> {
    let at = |path: &str| root.join(path).to_string_lossy().into_owned();
    let mut line = vec![
        "env".to_owned(),
        format!("QEMU_MODULE_DIR={}", at(MODULES)),
        at(LOADER),
        "--library-path".to_owned(),
        LIBRARIES.map(at).join(":"),
        at(&format!("usr/bin/{program}")),
    ];
    line.extend(FIRMWARE.iter().flat_map(|path| ["-L".to_owned(), at(path)]));
    line
}

fn package(program: &str) -> Option<&'static str> {
    match program {
        "qemu-system-x86_64" => Some("qemu-system-x86"),
        "qemu-system-arm" | "qemu-system-aarch64" => Some("qemu-system-arm"),
        _ => None,
    }
}

fn has(line: &[String], machine: &Machine, nic: Option<&str>) -> bool {
    let mut words = machine.arguments.split_whitespace();
    let board = words.find(|word| *word == "-M").and_then(|_| words.next());
    let knows = |question: &[&str], is_it: &dyn Fn(&str) -> bool| {
        output(line, question).is_some_and(|list| list.lines().any(is_it))
    };
    board
        .is_none_or(|board| knows(&["-M", "help"], &|listed| listed.split_whitespace().next() == Some(board)))
        && nic.is_none_or(|nic| {
            let name = nic.split(',').next().unwrap_or(nic);
            // For a list of all devices, QEMU would load all modules, also the machine's of another version.
            knows(&["-device", &format!("{name},help")], &|listed| listed == format!("{name} options:"))
        })
}

/// What the program prints if it is asked this.
fn output(line: &[String], asked: &[&str]) -> Option<String> {
    let (program, arguments) = line.split_first()?;
    let output = Command::new(program).args(arguments).args(asked).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_program_gets_its_own_libraries_modules_and_firmware() {
        let line = unpacked("qemu-system-arm", Path::new("/cache/qemu"));
        assert_eq!(line[1], "QEMU_MODULE_DIR=/cache/qemu/usr/lib/x86_64-linux-gnu/qemu");
        assert_eq!(line[2], "/cache/qemu/usr/lib64/ld-linux-x86-64.so.2");
        assert_eq!(line[5], "/cache/qemu/usr/bin/qemu-system-arm");
        assert_eq!(line[6..8], ["-L", "/cache/qemu/usr/share/qemu"]);
    }

    #[test]
    fn a_program_that_lists_the_machine_and_the_nic_is_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = "case $1,$2 in -M,help) echo 'virt  a machine' ;; -device,e1000e,help) echo 'e1000e options:' ;; esac";
        let path = directory.path().join("qemu");
        std::fs::write(&path, script).expect("a script");
        let line = ["sh".to_owned(), path.to_string_lossy().into_owned()];
        let machine = Machine::for_arch(&crate::arch::ARM64).expect("a machine");
        assert!(has(&line, machine, None) && has(&line, machine, Some("e1000e,mq=on")));
        assert!(!has(&line, machine, Some("e1000")), "only a part of a name");
        assert!(!has(&line, Machine::for_arch(&AMD64).expect("a machine"), None));
    }
}
