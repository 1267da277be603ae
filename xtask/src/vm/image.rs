//! The initramfs of a guest: programs with their libraries, a kernel's modules, and the command to run.

use crate::{
    arch::{AMD64, Arch},
    debian::{self, Set},
    tool::tool,
};
use anyhow::{Context, ensure};
use cpio::newc::{Builder, ModeFileType, trailer};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufWriter, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Programs of a guest: everything that Shunt, its tests and scripts run.
const TOOLS: &str = "awk basename bash bridge cat chmod chrt conntrack cp cut date dd df dirname dmesg echo env ethtool \
    expr false find grep head hostname id ip ip6tables-legacy iperf3 iptables-legacy iptables-nft kill ln ls lsmod mkdir \
    mktemp modprobe mount mv nft nproc ps readlink rm sed seq setsid sh sha256sum sleep sort stat stty sync sysctl tail taskset tc \
    tcpdump timeout tr true umount uname wc xargs";
/// Programs that single tests need, copied if this machine has them.
const OPTIONAL: &str = "ipvsadm wg";
/// The packages of these programs, for guests of other architectures.
const PACKAGES: [&str; 20] = [
    "bash",
    "conntrack",
    "coreutils",
    "dash",
    "ethtool",
    "findutils",
    "grep",
    "hostname",
    "iperf3",
    "iproute2",
    "iptables",
    "kmod",
    "mawk",
    "mount",
    "nftables",
    "procps",
    "sed",
    "tcpdump",
    "util-linux",
    "netbase",
];
/// Programs whose usual name is a link that is made at installation.
const OTHER_NAMES: [(&str, &str); 1] = [("awk", "mawk")];
/// Directories of programs.
const PLACES: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
/// Files that the programs read.
const FILES: [&str; 7] = [
    "/etc/iproute2",
    "/etc/protocols",
    "/etc/services",
    "/etc/ethertypes",
    "/etc/nsswitch.conf",
    "/usr/share/iproute2",
    "/usr/lib/tc",
];
const DIRECTORIES: [&str; 7] = ["/dev", "/proc", "/sys", "/run", "/tmp", "/var", "/root"];

/// The content of the archive, by path in the guest.
#[derive(Debug)]
pub struct Image<'a> {
    arch: &'a Arch,
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug)]
enum Entry {
    Directory,
    File(PathBuf),
    Text(String, u32),
}

impl<'a> Image<'a> {
    /// An image with the tools of an architecture, a kernel's modules from `modules`, and `init` as the first process.
    pub fn new(arch: &'a Arch, modules: &Path, init: &str) -> anyhow::Result<Self> {
        let mut image = Self { arch, entries: BTreeMap::new() };
        let root = root(arch)?;
        let found: BTreeMap<&str, Option<PathBuf>> =
            TOOLS.split_whitespace().map(|name| (name, found(&root, name))).collect();
        let missing: Vec<&str> =
            found.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| *name).collect();
        ensure!(
            missing.is_empty(),
            "{} lacks programs that the guest needs: {}; `packaging/deps.sh --vm` installs them",
            root.display(),
            missing.join(", ")
        );
        let optional = OPTIONAL.split_whitespace().map(|name| (name, self::found(&root, name)));
        let tools = found.into_iter().chain(optional).filter_map(|(name, path)| Some((name, path?)));
        image.programs(tools.map(|(name, path)| {
            let to = Path::new("/").join(path.strip_prefix(&root).unwrap_or(&path)).with_file_name(name);
            (followed(&root, path), to)
        }))?;
        let xtables = format!("/usr/lib/{}/xtables", arch.tuple);
        for path in FILES.into_iter().chain([xtables.as_str()]) {
            let from = root.join(path.trim_start_matches('/'));
            if from.exists() {
                image.tree(&from, Path::new(path))?;
            }
        }
        if !is_this_machine(arch) {
            image.all_libraries(&root)?;
        }
        image.tree(modules, Path::new("/"))?;
        for directory in DIRECTORIES {
            image.put(Path::new(directory), Entry::Directory);
        }
        image.text("/init", init, 0o755);
        image.text(
            "/etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
            0o644,
        );
        image.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644);
        image.text("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0o644);
        Ok(image)
    }

    /// Adds a file with this content.
    pub fn text(&mut self, path: &str, content: &str, mode: u32) {
        self.put(Path::new(path), Entry::Text(content.to_owned(), mode));
    }

    /// Adds programs with the libraries of this machine that they load, as pairs of a path here and a path in the
    /// guest.
    pub fn programs(&mut self, programs: impl IntoIterator<Item = (PathBuf, PathBuf)>) -> anyhow::Result<()> {
        let mut here = Vec::new();
        for (from, to) in programs {
            here.push(from.to_string_lossy().into_owned());
            self.put(&to, Entry::File(from));
        }
        let here: Vec<&str> =
            here.iter().map(String::as_str).filter(|_| is_this_machine(self.arch)).collect();
        for library in libraries(&here)? {
            self.put(&library.clone(), Entry::File(library));
        }
        Ok(())
    }

    /// Adds a file that is no program.
    pub fn file(&mut self, from: PathBuf, to: &Path) {
        self.put(to, Entry::File(from));
    }

    /// Adds all libraries of another architecture, since only its own loader could tell which of them are needed.
    fn all_libraries(&mut self, root: &Path) -> anyhow::Result<()> {
        for directory in ["lib", "usr/lib"] {
            for above in [root.join(directory), root.join(directory).join(self.arch.tuple)] {
                let to = Path::new("/").join(above.strip_prefix(root)?);
                for entry in fs::read_dir(&above).into_iter().flatten().flatten() {
                    if entry.path().is_file() {
                        self.put(&to.join(entry.file_name()), Entry::File(entry.path()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds a file of this machine, or a directory with its content.
    pub fn tree(&mut self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let about = || from.display().to_string();
        if !from.metadata().with_context(about)?.is_dir() {
            self.put(to, Entry::File(from.to_owned()));
            return Ok(());
        }
        for entry in fs::read_dir(from).with_context(about)? {
            let entry = entry?;
            // Skip dangling links.
            if entry.path().exists() {
                self.tree(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Whether the guest has a program of this name.
    pub fn has_program(&self, name: &str) -> bool {
        let at = |place: &str| self.entries.contains_key(&Path::new(place).join(name));
        PLACES.iter().any(|place| at(place)) || self.entries.contains_key(Path::new(name))
    }

    fn put(&mut self, path: &Path, entry: Entry) {
        let path = usr_merged(path);
        for above in path.ancestors().skip(1).filter(|above| above.parent().is_some()) {
            self.entries.entry(above.to_owned()).or_insert(Entry::Directory);
        }
        self.entries.entry(path).or_insert(entry);
    }

    /// Writes the archive.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let file = fs::File::create(path).with_context(|| path.display().to_string())?;
        let mut archive = BufWriter::new(file);
        for link in ["bin", "sbin", "lib", "lib64"] {
            let target = format!("usr/{link}");
            let entry = Builder::new(link).mode(0o777).set_mode_file_type(ModeFileType::Symlink);
            let mut writer = entry.write(&mut archive, target.len() as u32);
            writer.write_all(target.as_bytes())?;
            writer.finish()?;
        }
        for (number, (path, entry)) in self.entries.iter().enumerate() {
            let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy();
            let new = Builder::new(&name).ino(number as u32 + 10).nlink(1);
            let (new, content) = match entry {
                Entry::Directory => (new.mode(0o755).set_mode_file_type(ModeFileType::Directory), Vec::new()),
                Entry::Text(text, mode) => {
                    (new.mode(*mode).set_mode_file_type(ModeFileType::Regular), text.as_bytes().to_vec())
                }
                Entry::File(from) => {
                    let about = || from.display().to_string();
                    let mode = from.metadata().with_context(about)?.permissions().mode() & 0o777;
                    let content = fs::read(from).with_context(about)?;
                    (new.mode(mode).set_mode_file_type(ModeFileType::Regular), content)
                }
            };
            let mut writer = new.write(&mut archive, u32::try_from(content.len())?);
            writer.write_all(&content)?;
            writer.finish()?;
        }
        trailer(&mut archive)?.flush()?;
        Ok(())
    }

    /// Approximate size of the archive.
    pub fn bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry {
            Entry::Directory => 0,
            Entry::Text(text, _) => text.len() as u64,
            Entry::File(path) => path.metadata().map_or(0, |found| found.len()),
        };
        self.entries.values().map(|entry| size(entry) + 256).sum()
    }
}

/// Since Debian 12, /bin, /sbin and /lib* are links into /usr; returns the path below /usr.
fn usr_merged(path: &Path) -> PathBuf {
    let old = ["/bin", "/sbin", "/lib", "/lib64"].iter().find(|old| path.starts_with(old));
    match (old, path.strip_prefix("/")) {
        (Some(_), Ok(rest)) => Path::new("/usr").join(rest),
        _ => path.to_owned(),
    }
}

/// Whether this machine runs programs of the architecture.
pub fn is_this_machine(arch: &Arch) -> bool {
    *arch == AMD64
}

/// Root directory of a guest's tools: that of this machine, or of unpacked packages for another architecture.
fn root(arch: &Arch) -> anyhow::Result<PathBuf> {
    if is_this_machine(arch) {
        return Ok(PathBuf::from("/"));
    }
    debian::unpacked(&Set { name: "tools", suite: debian::STABLE, arch, packages: &PACKAGES, closed: true })
}

fn found(root: &Path, name: &str) -> Option<PathBuf> {
    let own = env::var_os("PATH").filter(|_| root == Path::new("/"));
    let own = own.into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let places: Vec<PathBuf> =
        PLACES.iter().map(|place| root.join(place.trim_start_matches('/'))).chain(own).collect();
    let other = OTHER_NAMES.iter().find(|(usual, _)| *usual == name).map(|(_, other)| *other);
    let names = [Some(name), other].into_iter().flatten();
    let mut paths = names.flat_map(|name| places.iter().map(move |place| place.join(name)));
    paths.find(|path| followed(root, path.clone()).is_file())
}

/// Follows a link. An absolute target is relative to the root.
fn followed(root: &Path, path: PathBuf) -> PathBuf {
    match fs::read_link(&path) {
        Ok(target) if target.is_absolute() => root.join(target.strip_prefix("/").unwrap_or(&target)),
        _ => path,
    }
}

/// The libraries that these programs load, including the loader.
fn libraries(programs: &[&str]) -> anyhow::Result<BTreeSet<PathBuf>> {
    // ldd fails for scripts and static programs, which have none.
    let output = tool("sh", &[&["-c", "ldd \"$@\" 2>/dev/null; true", "ldd"], programs].concat())?;
    let absolute = output.lines().flat_map(str::split_whitespace).filter(|word| word.starts_with('/'));
    // A line that ends in a colon names the program to which the following lines belong.
    let libraries = absolute.filter(|word| !word.ends_with(':')).map(PathBuf::from);
    Ok(libraries.filter(|path| path.is_file()).collect())
}
