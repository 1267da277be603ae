//! Takes addresses of register blocks from the device tree, and finds the blocks that must not be accessed.

use super::Definitions;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A device tree as the kernel exports it: a directory for each node, a file for each property.
#[derive(Debug, Clone)]
pub struct DeviceTree {
    root: PathBuf,
    sysfs: PathBuf,
}

/// A device of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Physical address of its first registers.
    pub address: u64,
    /// Its path in the tree.
    pub node: String,
    /// Why the registers must not be accessed; None if they may be.
    pub off: Option<String>,
}

/// Limit of nesting that no real tree reaches.
const DEPTH_MAX: usize = 24;

impl DeviceTree {
    /// The tree of this machine; None if it has none.
    pub fn of_this_machine() -> Option<Self> {
        let root = PathBuf::from("/proc/device-tree");
        root.join("compatible").exists().then(|| Self { root, sysfs: PathBuf::from("/sys") })
    }

    /// A tree in other directories.
    pub fn at(root: impl Into<PathBuf>, sysfs: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), sysfs: sysfs.into() }
    }

    /// The values of the root's `compatible`: the board first, then the SoC.
    pub fn compatible_of_root(&self) -> Vec<String> {
        strings(&self.root.join("compatible"))
    }

    /// The devices that are compatible with one of these, by address.
    pub fn devices(&self, compatible: &[String]) -> Vec<Device> {
        let mut found = Vec::new();
        let mut path = vec![self.root.clone()];
        self.search(&mut path, compatible, &mut found);
        found.sort_by_key(|device| device.address);
        found
    }

    fn search(&self, path: &mut Vec<PathBuf>, compatible: &[String], found: &mut Vec<Device>) {
        let Some(node) = path.last().cloned() else { return };
        if path.len() > 1
            && strings(&node.join("compatible")).iter().any(|one| compatible.contains(one))
            && let Some(address) = address(path)
        {
            let name = node.strip_prefix(&self.root).unwrap_or(&node);
            let node_name = format!("/{}", name.display());
            found.push(Device { address, off: self.off(&node, address), node: node_name });
        }
        if path.len() >= DEPTH_MAX {
            return;
        }
        for entry in fs::read_dir(&node).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                path.push(entry.path());
                self.search(path, compatible, found);
                path.pop();
            }
        }
    }

    fn off(&self, node: &Path, address: u64) -> Option<String> {
        let status = strings(&node.join("status")).into_iter().next();
        if let Some(status) = status.filter(|status| status != "okay" && status != "ok") {
            return Some(format!("its node in the device tree has status \"{status}\""));
        }
        let devices = fs::read_dir(self.sysfs.join("bus/platform/devices")).into_iter().flatten().flatten();
        let start = format!("{address:x}.");
        let device =
            devices.into_iter().find(|entry| entry.file_name().to_string_lossy().starts_with(&start))?;
        let state = fs::read_to_string(device.path().join("power/runtime_status")).ok()?;
        (state.trim() == "suspended").then(|| {
            "its device is suspended, so its clocks are off; set the port up first (ip link set PORT up)"
                .to_owned()
        })
    }
}

impl Definitions {
    /// Takes the addresses of blocks from the device tree. Returns the blocks that must not be accessed, with the
    /// reason.
    ///
    /// A block whose address is in the tree keeps it. Others take the remaining addresses of their kind in rising
    /// order.
    pub fn locate(&mut self, tree: &DeviceTree) -> Vec<(String, String)> {
        let mut off = Vec::new();
        let mut kinds: Vec<Vec<String>> =
            self.blocks.values().map(|block| block.compatible.clone()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds.iter().filter(|kind| !kind.is_empty()) {
            let devices = tree.devices(kind);
            let taken: Vec<u64> = self.blocks.values().map(|block| block.base).collect();
            let mut free = devices.iter().filter(|device| !taken.contains(&device.address));
            for (name, block) in self.blocks.iter_mut().filter(|(_, block)| block.compatible == *kind) {
                let own = devices.iter().find(|device| device.address == block.base).or_else(|| free.next());
                let Some(device) = own else { continue };
                block.base = device.address;
                off.extend(device.off.clone().map(|why| (name.clone(), why)));
            }
        }
        off
    }
}

fn strings(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.split('\0').filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

/// A property of cells of 32 bits.
fn cells(node: &Path, property: &str) -> Option<Vec<u32>> {
    let bytes = fs::read(node.join(property)).ok()?;
    let chunks = bytes.chunks_exact(4);
    Some(chunks.map(|cell| u32::from_be_bytes([cell[0], cell[1], cell[2], cell[3]])).collect())
}

/// A number of one or two cells; larger ones keep the lower 64 bits, as for PCI, whose first cell is a kind.
fn number(cells: &[u32]) -> u64 {
    cells.iter().fold(0, |all, cell| all << 32 | u64::from(*cell))
}

fn count(node: &Path, property: &str, usual: usize) -> usize {
    let cells = cells(node, property).and_then(|cells| cells.first().copied());
    cells.map_or(usual, |cells| cells as usize).min(4)
}

/// The physical address of a node: its `reg`, translated by the `ranges` of every bus above.
fn address(path: &[PathBuf]) -> Option<u64> {
    let (node, above) = path.split_last()?;
    let parent = above.last()?;
    let address_cells = count(parent, "#address-cells", 2);
    let mut at = number(cells(node, "reg")?.get(..address_cells)?);
    for (n, bus) in above.iter().enumerate().skip(1).rev() {
        let ranges = cells(bus, "ranges")?;
        let child = count(bus, "#address-cells", 2);
        let size = count(bus, "#size-cells", 1);
        let parent = count(&above[n - 1], "#address-cells", 2);
        if ranges.is_empty() || child + parent + size == 0 {
            continue;
        }
        let mut entries = ranges.chunks_exact(child + parent + size);
        at = entries.find_map(|entry| {
            let (from, to) = (number(&entry[..child]), number(&entry[child..child + parent]));
            let length = number(&entry[child + parent..]);
            let distance = at.checked_sub(from).filter(|distance| *distance < length)?;
            to.checked_add(distance)
        })?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::{super::builtin, *};

    /// A node: its path, its texts, and its properties of cells.
    type Node<'n> = (&'n str, &'n [(&'n str, &'n str)], &'n [(&'n str, &'n [u32])]);

    /// Writes properties: text gets a zero byte, numbers become cells.
    fn tree(nodes: &[Node]) -> (tempfile::TempDir, DeviceTree) {
        let dir = tempfile::tempdir().unwrap();
        for (node, texts, numbers) in nodes {
            let path = dir.path().join("tree").join(node);
            fs::create_dir_all(&path).unwrap();
            for (name, text) in *texts {
                fs::write(path.join(name), format!("{}\0", text.replace(' ', "\0"))).unwrap();
            }
            for (name, cells) in *numbers {
                fs::write(
                    path.join(name),
                    cells.iter().flat_map(|cell| cell.to_be_bytes()).collect::<Vec<_>>(),
                )
                .unwrap();
            }
        }
        let tree = DeviceTree::at(dir.path().join("tree"), dir.path().join("sys"));
        (dir, tree)
    }

    #[test]
    fn addresses_are_translated_through_every_bus() {
        let one: &[(&str, &[u32])] =
            &[("#address-cells", &[1]), ("#size-cells", &[1]), ("ranges", &[0, 0x0210_0000, 0x10_0000])];
        let (_dir, tree) = tree(&[
            (
                "",
                &[("compatible", "fsl,imx6q-sabrelite fsl,imx6q")],
                &[("#address-cells", &[1]), ("#size-cells", &[1])],
            ),
            ("soc", &[], &[("#address-cells", &[1]), ("#size-cells", &[1]), ("ranges", &[])]),
            ("soc/bus@2100000", &[], one),
            (
                "soc/bus@2100000/ethernet@88000",
                &[("compatible", "fsl,imx6q-fec")],
                &[("reg", &[0x88000, 0x4000])],
            ),
            ("soc/lost/ethernet@1", &[("compatible", "fsl,imx6q-fec")], &[("reg", &[1, 1])]),
        ]);
        let mut all = builtin("imx6q").unwrap();
        all.blocks.get_mut("ENET").unwrap().base = 7;
        assert_eq!(all.locate(&tree), []);
        assert_eq!(all.blocks["ENET"].base, 0x0218_8000);
        assert_eq!(super::super::soc_of_machine(&tree).as_deref(), Some("imx6q"));
    }

    #[test]
    fn disabled_and_suspended_devices_are_not_touched() {
        let mac = |status| [("compatible", "fsl,imx7d-fec"), ("status", status)];
        let (dir, tree) = tree(&[
            ("", &[], &[("#address-cells", &[1])]),
            ("soc", &[], &[("#address-cells", &[1]), ("ranges", &[])]),
            ("soc/a", &mac("okay"), &[("reg", &[0x30be_0000, 1])]),
            ("soc/b", &mac("disabled"), &[("reg", &[0x30bf_0000, 1])]),
        ]);
        let power = dir.path().join("sys/bus/platform/devices/30be0000.ethernet/power");
        fs::create_dir_all(&power).unwrap();
        let off = |state: &str| {
            fs::write(power.join("runtime_status"), state).unwrap();
            builtin("imx7d").unwrap().locate(&tree)
        };
        let names = |off: Vec<(String, String)>| off.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(off("active\n")), ["ENET2"]);
        let suspended = off("suspended\n");
        assert!(suspended[0].1.contains("clocks are off"), "{suspended:?}");
        assert_eq!(names(suspended), ["ENET1", "ENET2"]);
    }
}
