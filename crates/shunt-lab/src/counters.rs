//! Counters of drivers, MACs and the kernel, and their changes.

use crate::net::NetNs;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
};

/// Columns of /proc/net/dev behind the device's name.
const NET_DEV: [(usize, &str); 13] = [
    (2, "rx_errors"),
    (3, "rx_dropped"),
    (4, "rx_fifo_errors"),
    (5, "rx_frame_errors"),
    (10, "tx_errors"),
    (11, "tx_dropped"),
    (12, "tx_fifo_errors"),
    (13, "collisions"),
    (14, "tx_carrier_errors"),
    (0, "rx_bytes"),
    (1, "rx_packets"),
    (8, "tx_bytes"),
    (9, "tx_packets"),
];
/// Columns of /proc/net/softnet_stat, whose numbers are hexadecimal.
const SOFTNET: [(usize, &str); 4] =
    [(0, "processed"), (1, "dropped"), (2, "time_squeeze"), (10, "flow_limit_count")];
/// Column with the number of the CPU; older kernels lack the column and print a line for each CPU.
const SOFTNET_CPU: usize = 12;
/// Parts of the names of counters that count lost or delayed packets. `fdxfc` is a pause frame in the names of the fec
/// driver.
const TROUBLE: [&str; 21] = [
    "drop",
    "discard",
    "err",
    "fail",
    "miss",
    "over",
    "fifo",
    "pause",
    "fdxfc",
    "no_buf",
    "nobuf",
    "no_desc",
    "crc",
    "squeeze",
    "limit",
    "coll",
    "timeout",
    "jabber",
    "xoff",
    "ring_full",
    "lost",
];

/// A device whose counters are read.
#[derive(Debug, Clone)]
pub struct Device<'n> {
    ns: Option<&'n NetNs>,
    name: String,
}

/// All counters at one time, by device and name. Counters of a CPU have the device `cpu0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<(String, String), u64>);

/// The change of a counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The network device or CPU.
    pub device: String,
    /// The counter's name, as the driver or the kernel has it.
    pub counter: String,
    /// The value before.
    pub before: u64,
    /// The value after.
    pub after: u64,
    /// The increase; a lower bound if `bits` is set.
    pub rise: u64,
    /// Width of the counter in bits if it was seen to wrap: the increase is known modulo 2^bits only.
    pub bits: Option<u32>,
    /// Whether the counter went back without wrapping, as when a device is reset.
    pub reset: bool,
    /// Whether the counter's name says that it counts lost or delayed packets.
    pub trouble: bool,
}

/// The JSON of `ethtool --json --include-statistics --show-pause`.
#[derive(Debug, Deserialize)]
struct Pause {
    #[serde(default)]
    statistics: BTreeMap<String, u64>,
}

impl<'n> Device<'n> {
    /// A device of the caller's network namespace.
    pub fn here(name: &str) -> Self {
        Self { ns: None, name: name.to_owned() }
    }

    /// A device of another network namespace.
    pub fn in_namespace(ns: &'n NetNs, name: &str) -> Self {
        Self { ns: Some(ns), name: name.to_owned() }
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All devices of the caller's network namespace except the loopback.
    pub fn all_here() -> Vec<Device<'static>> {
        let all = Device::here("").net_dev();
        let names = all.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
        names.filter(|name| name != "lo").map(|name| Device::here(&name)).collect()
    }

    fn ethtool(&self, args: &[&str]) -> Option<String> {
        let mut command = self.ns.map_or_else(|| Command::new("ethtool"), |ns| ns.command("ethtool"));
        let output = command.args(args).arg(&self.name).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn net_dev(&self) -> String {
        // /proc/thread-self/net is the namespace of the thread.
        let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        self.ns.map_or_else(read, |ns| ns.within(read))
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let mut all = net_dev(&self.net_dev(), &self.name);
        if let Some(text) = self.ethtool(&["-S"]) {
            all.extend(statistics(&text));
        }
        let pause = self.ethtool(&["--json", "-I", "-a"]);
        let pause: Option<Vec<Pause>> = pause.and_then(|text| serde_json::from_str(&text).ok());
        all.extend(pause.into_iter().flatten().flat_map(|one| one.statistics));
        all
    }
}

impl Snapshot {
    /// Reads the counters of these devices and the receive counters of all CPUs.
    pub fn read(devices: &[Device]) -> Self {
        let mut all = softnet(&fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default());
        for device in devices {
            let own = device.counters().into_iter();
            all.extend(own.map(|(counter, value)| ((device.name.clone(), counter), value)));
        }
        Self(all)
    }
}

/// Parses `ethtool -S`, which has no JSON output in ethtool 6.1.
fn statistics(text: &str) -> impl Iterator<Item = (String, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.trim().rsplit_once(':')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    })
}

fn net_dev(text: &str, device: &str) -> BTreeMap<String, u64> {
    let own = text.lines().find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == device));
    let values: Vec<&str> = own.map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let value =
        |(column, name): &(usize, &str)| Some(((*name).to_owned(), values.get(*column)?.parse().ok()?));
    NET_DEV.iter().filter_map(value).collect()
}

fn softnet(text: &str) -> BTreeMap<(String, String), u64> {
    let mut all = BTreeMap::new();
    for (row, line) in (0..).zip(text.lines()) {
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let values: Vec<u64> = line.split_whitespace().filter_map(hex).collect();
        let cpu = values.get(SOFTNET_CPU).copied().unwrap_or(row);
        for (column, name) in SOFTNET {
            if let Some(value) = values.get(column) {
                all.insert((format!("cpu{cpu}"), name.to_owned()), *value);
            }
        }
    }
    all
}

/// The changes from each snapshot to the next. A counter that wraps once has a known width in all steps.
pub fn changes(snapshots: &[Snapshot]) -> Vec<Vec<Change>> {
    let mut all = vec![Vec::new(); snapshots.len().saturating_sub(1)];
    let names: BTreeSet<_> = snapshots.iter().flat_map(|snapshot| snapshot.0.keys()).collect();
    for (device, counter) in names {
        let at = |snapshot: &Snapshot| snapshot.0.get(&(device.clone(), counter.clone())).copied();
        let values: Vec<Option<u64>> = snapshots.iter().map(at).collect();
        let bits = width(&values);
        let trouble = is_trouble(counter);
        for (step, pair) in values.windows(2).enumerate() {
            let (Some(before), Some(after)) = (pair[0], pair[1]) else { continue };
            if before == after {
                continue;
            }
            let (rise, reset) = match bits {
                Some(bits) => (after.wrapping_sub(before) & (u64::MAX >> (64 - bits)), false),
                None if after < before => (after, true),
                None => (after - before, false),
            };
            let (device, counter) = (device.clone(), counter.clone());
            all[step].push(Change { device, counter, before, after, rise, bits, reset, trouble });
        }
    }
    all
}

/// Whether the name of a counter says that it counts lost or delayed packets.
pub fn is_trouble(counter: &str) -> bool {
    let name = counter.to_lowercase();
    // The generator's receiver is an XDP program that drops the packets it has counted, so `xdp_drop` is normal.
    !name.contains("xdp_drop") && TROUBLE.iter().any(|part| name.contains(part))
}

/// Width in bits of a counter that went back by wrapping: before that, it was in the upper half of its range.
fn width(values: &[Option<u64>]) -> Option<u32> {
    let most = values.iter().flatten().max()?;
    let bits = [16, 32].into_iter().find(|bits| most >> bits == 0)?;
    let wraps = |pair: &[Option<u64>]| {
        pair[0].zip(pair[1]).is_some_and(|(before, after)| after < before && before >> (bits - 1) == 1)
    };
    values.windows(2).any(wraps).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[u64]) -> Vec<Vec<Change>> {
        let key = ("eth0".to_owned(), "IEEE_rx_fdxfc".to_owned());
        let one = |value: &u64| Snapshot(BTreeMap::from([(key.clone(), *value)]));
        changes(&values.iter().map(one).collect::<Vec<_>>())
    }

    fn rises(values: &[u64]) -> Vec<(u64, Option<u32>, bool)> {
        series(values).iter().flatten().map(|change| (change.rise, change.bits, change.reset)).collect()
    }

    #[test]
    fn counters_of_16_bits_are_known_by_their_wrapping() {
        // Pause frames of an i.MX6 before and after four runs.
        let got = rises(&[0x0d6c, 0x1ad0, 0xf544, 0x0310, 0xf482]);
        assert_eq!(got, [3428, 55924, 3532, 61810].map(|rise| (rise, Some(16), false)));
        // Once the width is known, a step back from the lower half is a wrap, too.
        assert_eq!(rises(&[0xf000, 0x7000, 0x6000])[1], (0xf000, Some(16), false));
    }

    #[test]
    fn wider_counters_wrap_too_and_a_reset_is_no_wrap() {
        assert_eq!(rises(&[0xffff_fff0, 0x10]), [(0x20, Some(32), false)]);
        assert_eq!(rises(&[70_000, 5]), [(5, None, true)]);
        assert_eq!(rises(&[100, 3]), [(3, None, true)]);
        assert_eq!(rises(&[1 << 40, (1 << 40) + 7]), [(7, None, false)]);
        assert_eq!(rises(&[9, 9, 10]), [(1, None, false)]);
    }

    #[test]
    fn a_counter_that_comes_or_goes_has_not_changed() {
        let none = Snapshot::default();
        let one = Snapshot(BTreeMap::from([(("eth0".to_owned(), "rx".to_owned()), 7)]));
        assert_eq!(changes(&[none.clone(), one.clone(), none]), [vec![], vec![]]);
        assert_eq!(changes(&[one]), Vec::<Vec<Change>>::new());
    }

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let text = "NIC statistics:\n     rx_queue_0_drops: 12\n     IEEE_rx_fdxfc: 65535\n     [0]: tx:full: 3\n     tx: n/a\n";
        let want = [("rx_queue_0_drops", 12), ("IEEE_rx_fdxfc", 65535), ("[0]: tx:full", 3)];
        assert_eq!(statistics(text).collect::<Vec<_>>(), want.map(|(name, n)| (name.to_owned(), n)));

        let text = "Inter-|   Receive  | Transmit\n face |bytes packets\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n eth01: 0 0 0 9\n";
        let got = net_dev(text, "eth0");
        let at = |name: &str| got[name];
        assert_eq!((at("rx_bytes"), at("rx_packets"), at("rx_errors"), at("rx_dropped")), (1, 2, 3, 4));
        assert_eq!((at("rx_fifo_errors"), at("rx_frame_errors")), (5, 6));
        assert_eq!((at("tx_bytes"), at("tx_packets")), (9, 10));
        assert_eq!((at("tx_errors"), at("tx_dropped"), at("tx_fifo_errors")), (11, 12, 13));
        assert_eq!((at("collisions"), at("tx_carrier_errors")), (14, 15));

        let line = |cpu: &str| format!("000000ff 0000000a 00000002 0 0 0 0 0 0 0 00000001 0 {cpu} 0 0\n");
        let got = softnet(&(line("00000001") + &line("00000003")));
        let at = |cpu: &str, name: &str| got[&(cpu.to_owned(), name.to_owned())];
        assert_eq!((at("cpu1", "processed"), at("cpu3", "dropped")), (255, 10));
        assert_eq!((at("cpu1", "time_squeeze"), at("cpu3", "flow_limit_count")), (2, 1));
        assert!(softnet("1 2 3\n4 5 6\n").contains_key(&("cpu1".to_owned(), "dropped".to_owned())));
    }

    #[test]
    fn trouble_is_recognised_by_the_name() {
        let of = |counter: &str| {
            let key = ("eth0".to_owned(), counter.to_owned());
            let one = |n| Snapshot(BTreeMap::from([(key.clone(), n)]));
            changes(&[one(1), one(2)])[0][0].trouble
        };
        for name in [
            "rx_dropped",
            "rx_missed_errors",
            "IEEE_rx_macerr",
            "IEEE_rx_fdxfc",
            "RX_Overrun",
            "time_squeeze",
        ] {
            assert!(of(name), "{name}");
        }
        for name in ["rx_packets", "tx_bytes", "processed", "rx_queue_0_xdp_redirect", "rx_queue_0_xdp_drops"]
        {
            assert!(!of(name), "{name}");
        }
    }
}
