use crate::{NetNs, require_root};
use std::path::PathBuf;

#[test]
fn a_namespace_is_separate_and_is_deleted_on_drop() {
    if !require_root() {
        return;
    }
    let netns = NetNs::new("own");
    let path = netns.path();
    netns.run("ip link add d0 type veth peer name d1");
    assert!(netns.ifindex("d0") > 1);
    assert!(nix::net::if_::if_nametoindex("d0").is_err());
    netns.sysctl("ipv4/ip_forward", 1);
    assert_eq!(netns.run("cat /proc/sys/net/ipv4/ip_forward"), "1\n");
    let error = netns.try_run("echo no >&2; exit 3").unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.ends_with("no"), "{error}");
    drop(netns);
    assert!(!path.exists());
}

#[test]
fn a_process_is_killed_when_its_guard_is_dropped() {
    if !require_root() {
        return;
    }
    let netns = NetNs::new("process");
    let process = netns.spawn("sleep 60");
    let proc = PathBuf::from(format!("/proc/{}", process.pid()));
    assert!(proc.exists());
    drop(process);
    assert!(!proc.exists());
}
