//! Several routers with Shunt, as docs/guide/two-routers.md sets them up: a standby that takes over, and routers side
//! by side that share the load. The daemons besides Shunt are those of the distribution.

#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not there")]

mod failover;
mod guide;
mod machine;
mod spread;
mod traffic;

use shunt_testkit::{require_root, skip};

/// Whether the test can run: as root, with these programs.
#[track_caller]
fn require_programs(names: &[&str]) -> bool {
    if !require_root() {
        return false;
    }
    let missing = names.iter().find(|name| !is_there(name));
    if let Some(name) = missing {
        skip(&format!("no {name}; packaging/deps.sh --pair installs it"));
    }
    missing.is_none()
}

fn is_there(program: &str) -> bool {
    let path = format!("{}:/usr/sbin:/usr/lib/frr", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
