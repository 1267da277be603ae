//! Some of the tests on other kernels of the list, in QEMU. `make test` takes the oldest one only.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{env, path::PathBuf, process::Command};

/// The program, in the directory above this test's.
fn xtask() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().with_file_name("xtask")
}

/// `make test` builds the programs for the guests and sets `SHUNT_NO_SKIP`.
#[track_caller]
fn passes_on(kernel: &str) {
    if env::var("SHUNT_NO_SKIP").is_err() {
        eprintln!("SKIP kernel {kernel}: make kernel-test runs these tests");
        return;
    }
    let limit = ["--timeout", "540"];
    let ended = Command::new(xtask()).args(["kernels", "--short", kernel]).args(limit).status();
    assert!(ended.unwrap().success(), "tests failed on kernel {kernel}");
}

/// Tests on the kernel with the drivers of physical NICs.
#[track_caller]
fn pass_with_drivers(tests: &[&str]) {
    let ended = Command::new(xtask()).args(["vm", "--kernel", "drivers"]).args(tests).status();
    assert!(ended.unwrap().success(), "tests failed: {}", tests.join(" "));
}

/// Its verifier is the strictest.
#[test]
fn the_oldest() {
    passes_on("6.1");
}

/// The kernels for clouds, which the other tests take, have no ppp.
#[test]
#[ignore = "takes three minutes; make kernel-test and make test-long run it"]
fn pppoe() {
    pass_with_drivers(&["--timeout", "540", "--test", "forwarding", "--", "pppoe"]);
}

/// Guests have a NIC whose ring the fast path reads, and a kernel with its driver.
#[test]
#[ignore = "takes a minute; make kernel-test and make test-long run it"]
fn the_ring_of_virtio_net() {
    pass_with_drivers(&["--nics", "virtio-net-pci", "--test", "prog", "--", "ahead"]);
}

#[test]
#[ignore = "takes seven minutes; make kernel-test and make test-long run it"]
fn the_newest() {
    passes_on("newest");
}
