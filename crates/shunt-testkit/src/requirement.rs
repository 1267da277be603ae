//! Requirements of tests on the machine, and how a test that cannot run says so.

use crate::NetNs;
use shunt_api::Engine;
use std::{env, io::Write};

/// Whether this process is root. If it is not, calls [`skip`].
///
/// ```no_run
/// # fn a_test() {
/// if !shunt_testkit::require_root() {
///     return;
/// }
/// # }
/// ```
#[must_use]
#[track_caller]
pub fn require_root() -> bool {
    nix::unistd::geteuid().is_root() || {
        skip("needs root");
        false
    }
}

/// Whether this machine is a guest of `cargo xtask vm`.
pub fn is_guest() -> bool {
    is_set("SHUNT_GUEST")
}

/// Whether the kernel has VLAN devices and this process is root. If not, prints SKIP, even with `SHUNT_NO_SKIP=1`,
/// since a user cannot install a missing kernel feature. A guest of `cargo xtask vm` must have VLAN devices.
///
/// # Panics
/// If a guest of `cargo xtask vm` has none.
#[must_use]
#[track_caller]
pub fn require_vlans() -> bool {
    require_of_kernel(
        "VLAN devices",
        "--test forwarding -- vlans",
        "ip link add link end0 name end0.2 type vlan id 2",
    )
}

/// Whether the kernel has bonds; otherwise like [`require_vlans`].
///
/// # Panics
/// If a guest of `cargo xtask vm` has none.
#[must_use]
#[track_caller]
pub fn require_bonds() -> bool {
    require_of_kernel("bonds", "--test forwarding -- bonds", "ip link add bond0 type bond mode active-backup")
}

/// Whether the kernel has these qdiscs, none of which may require parameters; otherwise like [`require_vlans`].
///
/// # Panics
/// If a guest of `cargo xtask vm` lacks one.
#[must_use]
#[track_caller]
pub fn require_qdiscs(kinds: &[&str]) -> bool {
    let script: Vec<String> =
        kinds.iter().map(|kind| format!("tc qdisc replace dev end0 root {kind}")).collect();
    let tests = "--test forwarding -- qdisc_kinds, or --test reaction -- rates_by_qdisc";
    require_of_kernel(&kinds.join(", "), tests, &script.join(" && "))
}

/// Whether the kernel has ESP with AES-GCM; otherwise like [`require_vlans`].
///
/// # Panics
/// If a guest of `cargo xtask vm` has none.
#[must_use]
#[track_caller]
pub fn require_ipsec() -> bool {
    let state = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 1 mode tunnel";
    let aead = format!("aead 'rfc4106(gcm(aes))' 0x{} 128", "01".repeat(20));
    require_of_kernel("ESP", "--test forwarding -- re_entry", &format!("{state} {aead}"))
}

/// Says that a test does not run since the kernel lacks a feature, even with `SHUNT_NO_SKIP=1`. `tests` are the options
/// of `cargo xtask vm` that run the test on a kernel that has it.
///
/// # Panics
/// In a guest, which is there to have the feature.
#[track_caller]
pub fn skip_missing_feature(what: &str, tests: &str, why: &str) {
    assert!(!is_guest(), "no {what}: {why}");
    print_skip(&format!("this kernel has no {what}; to test with it: cargo xtask vm {tests}: {why}"));
}

/// Whether a script succeeds in a namespace that has a veth `end0`.
#[track_caller]
fn require_of_kernel(what: &str, tests: &str, script: &str) -> bool {
    if !require_root() {
        return false;
    }
    let result = NetNs::new("required").try_run(&format!("ip link add end0 type veth peer end1 && {script}"));
    let Err(why) = result else { return true };
    skip_missing_feature(what, tests, &why.to_string());
    false
}

/// The engines that Shunt has on this kernel. Before Linux 6.3, the kernel does not report which drivers have native
/// XDP, and Shunt uses tc only.
///
/// # Panics
/// If uname fails.
#[must_use]
pub fn engines() -> Vec<Engine> {
    if kernel_is_at_least(6, 3) {
        return vec![Engine::Tc, Engine::Xdp];
    }
    print_skip("engine xdp: before Linux 6.3, the kernel does not report which drivers have native XDP");
    vec![Engine::Tc]
}

/// Whether this kernel is of a version or a later one.
///
/// # Panics
/// If uname fails.
#[must_use]
pub fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_else(|e| panic!("uname: {e}"));
    let numbers: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).take(2).collect();
    numbers >= vec![major, minor]
}

/// Says on standard error, which the test harness does not capture here, that a test does not run.
///
/// # Panics
/// If `SHUNT_NO_SKIP=1`: then a test that cannot run has failed.
#[track_caller]
pub fn skip(why: &str) {
    assert!(!is_set("SHUNT_NO_SKIP"), "cannot run this test, and SHUNT_NO_SKIP=1: {why}");
    print_skip(why);
}

/// Like [`skip`], for a test that needs something fetched from a registry, which may be out of reach:
/// `SHUNT_SKIP_FETCHED=1` permits the skip in spite of `SHUNT_NO_SKIP=1`.
///
/// # Panics
/// If `SHUNT_NO_SKIP=1`, unless `SHUNT_SKIP_FETCHED=1`.
#[track_caller]
pub fn skip_fetched(why: &str) {
    if is_set("SHUNT_SKIP_FETCHED") { print_skip(why) } else { skip(why) }
}

fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value == "1")
}

fn print_skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A closed standard error must not fail a test that is skipped anyway.
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}
