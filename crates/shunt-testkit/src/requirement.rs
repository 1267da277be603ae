//! What a test needs of the machine, and how it says that it is missing.

use crate::NetNs;
use shunt_api::Engine;
use std::{env, io::Write};

/// Whether this process is root. When it is not, says so aloud as [`skip`] does.
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
        skip("it needs root");
        false
    }
}

/// Whether this is a guest of `cargo xtask vm`.
pub fn is_guest() -> bool {
    is_set("SHUNT_GUEST")
}

/// Whether the kernel has VLAN devices; and root, to make them. Where `SHUNT_GUEST=1` says that the kernel is one of the
/// list of `cargo xtask vm`, it must have them. Any other need not, whatever `SHUNT_NO_SKIP` says: what the kernel lacks
/// cannot be installed.
///
/// # Panics
/// When such a kernel has none.
#[must_use]
#[track_caller]
pub fn require_vlans() -> bool {
    require_of_kernel("VLAN devices", "vlans", "ip link add link end0 name end0.2 type vlan id 2")
}

/// Whether the kernel has these qdiscs, as [`require_vlans`] does. Each must do without parameters.
///
/// # Panics
/// When such a kernel lacks one.
#[must_use]
#[track_caller]
pub fn require_qdiscs(kinds: &[&str]) -> bool {
    let script: Vec<String> =
        kinds.iter().map(|kind| format!("tc qdisc replace dev end0 root {kind}")).collect();
    require_of_kernel(&kinds.join(", "), "forwarding_shapers", &script.join(" && "))
}

/// Whether a script works that has a veth `end0`. `tests` are those of the program `forwarding` that need it.
#[track_caller]
fn require_of_kernel(what: &str, tests: &str, script: &str) -> bool {
    if !require_root() {
        return false;
    }
    let made = NetNs::new("required").try_run(&format!("ip link add end0 type veth peer end1 && {script}"));
    let Err(why) = made else { return true };
    assert!(!is_guest(), "{why}");
    say(&format!(
        "this kernel has no {what}, `cargo xtask vm --test forwarding -- {tests}` boots one that has: {why}"
    ));
    false
}

/// The engines that this kernel has: before Linux 6.3 it does not say which drivers have native XDP, and Shunt does without.
///
/// # Panics
/// When the kernel's release is none.
#[must_use]
pub fn engines() -> Vec<Engine> {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_else(|e| panic!("uname: {e}"));
    let numbers: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).take(2).collect();
    if numbers >= vec![6, 3] {
        return vec![Engine::Tc, Engine::Xdp];
    }
    say(&format!("by xdp: Linux {release} does not say which drivers have it"));
    vec![Engine::Tc]
}

/// Says on stderr, past the capture of the test harness, that a test does not run.
///
/// # Panics
/// When `SHUNT_NO_SKIP=1`: then a test that cannot run has failed.
#[track_caller]
pub fn skip(why: &str) {
    assert!(!is_set("SHUNT_NO_SKIP"), "this must not be skipped: {why}");
    say(why);
}

fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value == "1")
}

fn say(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A closed stderr must not fail a test that is skipped anyway.
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}
