//! Reads sysctls of the calling thread's network namespace.

use crate::{ConntrackTimeouts, Error, Forwarding};
use shunt_core::BridgeCalls;
use std::{fs, io, path::Path, time::Duration};

const NET: &str = "/proc/sys/net";

/// Reads whether Linux forwards packets.
///
/// # Errors
/// When the sysctls cannot be read.
pub fn forwarding() -> Result<Forwarding, Error> {
    // Since Linux 6.17 (commit f24987ef6959) IPv6 forwarding can be on for a single device, as IPv4 forwarding always
    // could.
    Ok(Forwarding {
        v4: number(&format!("{NET}/ipv4/ip_forward"))? != 0 || on_any_device("ipv4", "forwarding")?,
        v6: Path::new(NET).join("ipv6").is_dir()
            && (number(&format!("{NET}/ipv6/conf/all/forwarding"))? != 0
                || on_any_device("ipv6", "force_forwarding")?),
    })
}

pub(crate) fn conntrack_present() -> bool {
    ["nf_conntrack_max", "nf_conntrack_count"].iter().any(|name| netfilter(name).exists())
}

/// The number of connections that conntrack tracks; 0 if it is not loaded.
pub(crate) fn conntrack_count() -> u64 {
    number(&netfilter("nf_conntrack_count").to_string_lossy()).unwrap_or_default()
}

/// Reads conntrack's timeouts.
///
/// # Errors
/// When connection tracking is not loaded.
pub fn conntrack_timeouts() -> Result<ConntrackTimeouts, Error> {
    let seconds = |name| {
        let path = netfilter(name);
        number(&path.to_string_lossy()).map(Duration::from_secs)
    };
    Ok(ConntrackTimeouts {
        udp: seconds("nf_conntrack_udp_timeout")?,
        udp_stream: seconds("nf_conntrack_udp_timeout_stream")?,
        tcp_be_liberal: number(&netfilter("nf_conntrack_tcp_be_liberal").to_string_lossy())? != 0,
        tcp_close: seconds("nf_conntrack_tcp_timeout_close")?,
        tcp_time_wait: seconds("nf_conntrack_tcp_timeout_time_wait")?,
        tcp_syn_sent: seconds("nf_conntrack_tcp_timeout_syn_sent")?,
        tcp_established: seconds("nf_conntrack_tcp_timeout_established")?,
        tcp_unacknowledged: seconds("nf_conntrack_tcp_timeout_unacknowledged")?
            .max(seconds("nf_conntrack_tcp_timeout_max_retrans")?),
    })
}

/// The families whose bridged packets br_netfilter hands to iptables; `None` if br_netfilter is not loaded. A sysctl
/// that cannot be read counts as on.
pub(crate) fn bridge_calls() -> Option<BridgeCalls> {
    let is_on = |name: &str| number(&format!("{NET}/bridge/{name}")).map_or(true, |on| on != 0);
    Path::new(NET)
        .join("bridge")
        .is_dir()
        .then(|| BridgeCalls { v4: is_on("bridge-nf-call-iptables"), v6: is_on("bridge-nf-call-ip6tables") })
}

/// Whether conntrack counts the packets and bytes of new connections (nf_conntrack_acct).
pub fn conntrack_accounting() -> bool {
    number(&netfilter("nf_conntrack_acct").to_string_lossy()).is_ok_and(|on| on != 0)
}

fn netfilter(name: &str) -> std::path::PathBuf {
    Path::new(NET).join("netfilter").join(name)
}

fn on_any_device(family: &str, setting: &str) -> Result<bool, Error> {
    let path = format!("{NET}/{family}/conf");
    let entries = fs::read_dir(&path).map_err(|source| Error::Sysctl { path, source })?;
    for entry in entries.flatten() {
        // `default` is for future devices. A device that has just gone, or lacks the setting, counts as off.
        let is_device = entry.file_name() != "default";
        if is_device && fs::read_to_string(entry.path().join(setting)).is_ok_and(|text| text.trim() != "0") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn number(path: &str) -> Result<u64, Error> {
    let failed = |source| Error::Sysctl { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    text.trim().parse().map_err(|e| failed(io::Error::new(io::ErrorKind::InvalidData, e)))
}
