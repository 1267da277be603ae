//! The devices that default routes lead to.

use std::{collections::BTreeSet, fs, net::Ipv4Addr};

/// A route to nowhere: `unreachable` and the like.
const LOOPBACK: &str = "lo";

/// The devices of the default routes of the calling thread's network namespace, IPv4 and IPv6, and the devices below
/// them: VLAN devices, bridges, bonds.
pub fn default_route_devices() -> BTreeSet<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let mut devices = devices_v4(&read("route"));
    devices.extend(devices_v6(&read("ipv6_route")));
    with_lower(devices, |device| {
        let entries = fs::read_dir(format!("/sys/class/net/{device}")).into_iter().flatten().flatten();
        let lower = entries.filter_map(|entry| {
            entry.file_name().to_string_lossy().strip_prefix("lower_").map(str::to_owned)
        });
        lower.collect()
    })
}

/// Lines such as `eth0 00000000 0101A8C0 0003 0 0 0 00000000 ...`: device, destination, gateway, ..., mask.
fn devices_v4(text: &str) -> BTreeSet<String> {
    let any = format!("{:08X}", u32::from(Ipv4Addr::UNSPECIFIED));
    let device = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&any.as_str()) && words.get(7) == Some(&any.as_str());
        is_default.then(|| words[0].to_owned())
    };
    text.lines().filter_map(device).collect()
}

/// Lines with a destination in hexadecimal, its length in bits, ..., and the device at the end.
fn devices_v6(text: &str) -> BTreeSet<String> {
    let device = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.first()?.bytes().all(|digit| digit == b'0') && words.get(1) == Some(&"00");
        let device = words.last().filter(|name| **name != LOOPBACK)?;
        is_default.then(|| (*device).to_owned())
    };
    text.lines().filter_map(device).collect()
}

fn with_lower(mut devices: BTreeSet<String>, lower: impl Fn(&str) -> Vec<String>) -> BTreeSet<String> {
    let mut rest: Vec<String> = devices.iter().cloned().collect();
    while let Some(device) = rest.pop() {
        rest.extend(lower(&device).into_iter().filter(|one| devices.insert(one.clone())));
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_default_routes_count() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  wan0.7\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                  lan0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                  tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n";
        assert_eq!(devices_v4(v4), ["wan0.7".to_owned()].into());
        let zeros = "0".repeat(32);
        let v6 = format!(
            "{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 ppp0\n\
             {zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200 lo\n\
             fe80{} 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001 lan0\n",
            "0".repeat(28)
        );
        assert_eq!(devices_v6(&v6), ["ppp0".to_owned()].into());
    }

    #[test]
    fn devices_below_are_found_and_a_circle_ends() {
        let lower = |device: &str| match device {
            "bond0.7" => vec!["bond0".to_owned()],
            "bond0" => vec!["eth0".to_owned(), "eth1".to_owned(), "bond0.7".to_owned()],
            _ => Vec::new(),
        };
        let all = with_lower(["bond0.7".to_owned()].into(), lower);
        assert_eq!(all, ["bond0", "bond0.7", "eth0", "eth1"].map(str::to_owned).into());
    }
}
