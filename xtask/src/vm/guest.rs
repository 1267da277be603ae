//! A QEMU guest without KVM: its output, and its exit code.

use super::{
    machine::{Machine, Serial},
    package::Unpacked,
};
use anyhow::{Context, bail};
use shunt_testkit::{NetNs, Process};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// One nanosecond per instruction, and no waiting while the guest is idle.
pub const COUNTING: [&str; 2] = ["-icount", "shift=0,sleep=off"];
/// How often the guest's output is read.
const INTERVAL: Duration = Duration::from_millis(20);
/// Number of lines of the console that are shown if a guest fails.
const LAST_LINES: usize = 30;

/// A guest whose serial ports are files in a directory.
#[derive(Debug)]
pub struct Guest {
    machine: &'static Machine,
    /// The program of QEMU and its first arguments.
    qemu: Vec<String>,
    directory: PathBuf,
    timeout: Duration,
    count: bool,
    nics: Option<String>,
}

/// Number of wires between NICs.
const WIRES: u32 = 2;
/// Pairs of queues of a NIC with several, and CPUs of its guest: virtio_net uses a pair for each CPU, and one more for
/// each while an XDP program is attached.
const QUEUES: u32 = 4;
const CPUS: u32 = 2;
/// What the model of a NIC with several queues contains.
const MULTIQUEUE: &str = "mq=on";

/// Several of this model need a PCIe root port each: on one bus, the virtual functions of one take the addresses of
/// another.
const NEEDS_ROOT_PORT: &str = "igb";

/// A file whose new content is copied to a writer.
struct Port<W> {
    file: File,
    to: W,
}

impl Guest {
    /// Prepares a guest with its files in this directory and a time limit. With `count`, the guest's clock counts its
    /// instructions. `nics` is the QEMU model of the NICs at both ends of each wire.
    pub fn new(
        (machine, qemu): (&'static Machine, Vec<String>),
        directory: &Path,
        timeout: Duration,
        count: bool,
        nics: Option<&str>,
    ) -> Self {
        Self { machine, qemu, directory: directory.to_owned(), timeout, count, nics: nics.map(str::to_owned) }
    }

    /// Boots a kernel with this initramfs, copies the output of the command, and returns its exit code.
    pub fn run(&self, kernel: &Unpacked, initramfs: &Path, stdout: &mut dyn Write) -> anyhow::Result<u8> {
        for name in ["console", "output", "errors", "code"] {
            File::create(self.file(name))?;
        }
        let mut output = Port::open(&self.file("output"), stdout)?;
        let mut errors = Port::open(&self.file("errors"), io::stderr())?;
        let since = Instant::now();
        let taps = self.taps()?;
        let mut qemu = Process::start(self.command(kernel, initramfs, taps.as_ref())?);
        let status = loop {
            let status = qemu.ended();
            if status.is_some() && matches!(self.machine.serial, Serial::Shared(_)) {
                self.separate()?;
            }
            output.pass_on()?;
            errors.pass_on()?;
            if let Some(status) = status {
                break status;
            }
            if since.elapsed() >= self.timeout {
                bail!(
                    "the guest did not end within {:?} (--timeout). Last lines of the console:\n{}",
                    self.timeout,
                    last_lines(&self.console())
                );
            }
            thread::sleep(INTERVAL);
        };
        let code = fs::read_to_string(self.file("code"))?;
        code.trim().parse().map_err(|_| self.failure(status))
    }

    /// A namespace with a bridge for each wire and a TAP device for each end, if the NICs have several queues: QEMU's
    /// own hubs have one queue.
    fn taps(&self) -> anyhow::Result<Option<NetNs>> {
        if !self.nics.as_ref().is_some_and(|model| model.contains(MULTIQUEUE)) {
            return Ok(None);
        }
        let ns = NetNs::try_new("wires")?;
        ns.try_sysctl("ipv6/conf/default/disable_ipv6", 1)?;
        for wire in 0..WIRES {
            ns.try_run(&format!("ip link add wire{wire} mtu 9216 up type bridge mcast_snooping 0"))?;
            for end in 0..2 {
                let tap = tap(wire, end);
                ns.try_run(&format!(
                    "ip tuntap add {tap} mode tap multi_queue && ip link set {tap} mtu 9216 master wire{wire} up"
                ))?;
            }
        }
        Ok(Some(ns))
    }

    fn command(&self, kernel: &Unpacked, initramfs: &Path, taps: Option<&NetNs>) -> anyhow::Result<Command> {
        let Machine { arguments, kernel: line, device_tree, serial, .. } = self.machine;
        // QEMU must end with this process, however that ends.
        let mut command = match taps {
            Some(ns) => ns.command("setpriv"),
            None => Command::new("setpriv"),
        };
        command.args(["--pdeathsig", "KILL"]).args(&self.qemu);
        command.args(["-accel", "tcg", "-nodefaults", "-display", "none", "-no-reboot"]);
        if self.count {
            command.args(COUNTING);
        }
        command.args(arguments.split_whitespace());
        if taps.is_some() {
            command.args(["-smp", &CPUS.to_string()]);
        }
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
        if let Some(name) = device_tree {
            command.arg("-dtb").arg(kernel.device_trees.join(name));
        }
        for (wire, end) in (0..WIRES).flat_map(|wire| [(wire, 0), (wire, 1)]) {
            let Some(model) = &self.nics else { break };
            // Linux's tulip takes an address that begins with 02:00 for one with swapped bytes.
            let mac = format!("02:10:00:00:0{}:0{}", wire + 1, end + 1);
            let end_of_wire = match taps {
                Some(_) => {
                    let tap = tap(wire, end);
                    format!("tap,ifname={tap},script=no,downscript=no,queues={QUEUES},id=nic{wire}{end}")
                }
                None => format!("hubport,hubid={wire},id=nic{wire}{end}"),
            };
            command.args(["-netdev", &end_of_wire]);
            let mut device = format!("{model},netdev=nic{wire}{end},mac={mac}");
            if model.starts_with(NEEDS_ROOT_PORT) {
                let port = format!("root{wire}{end}");
                let chassis = 1 + 2 * wire + end;
                command
                    .args(["-device", &format!("pcie-root-port,id={port},chassis={chassis},slot={chassis}")]);
                device += &format!(",bus={port}");
            }
            command.args(["-device", &device]);
        }
        command.args(["-append", &format!("quiet panic=-1 rdinit=/init {line}")]);
        let ports = ["console", "output", "errors", "code"].map(|name| self.file(name));
        command.args(serial.arguments(ports.each_ref().map(PathBuf::as_path)));
        command.stdout(Stdio::null()).stderr(File::create(self.file("qemu"))?);
        Ok(command)
    }

    /// The error if there is no exit code.
    fn failure(&self, status: ExitStatus) -> anyhow::Error {
        let errors = fs::read_to_string(self.file("qemu")).unwrap_or_default();
        if !status.success() {
            return anyhow::anyhow!("{}: {status}: {}", self.machine.qemu, errors.trim());
        }
        let console = self.console();
        let panic = console.lines().find(|line| line.contains("Kernel panic"));
        let what = panic.unwrap_or("the guest ended without an exit code");
        anyhow::anyhow!("{what}. Last lines of the console:\n{}", last_lines(&console))
    }

    /// Separates the output of guests with one serial port, where init.sh marks each line.
    fn separate(&self) -> anyhow::Result<()> {
        let console = self.console();
        for name in ["output", "errors", "code"] {
            let marked = |line| str::strip_prefix(line, name)?.strip_prefix(':');
            let lines: String = console.lines().filter_map(marked).map(|line| format!("{line}\n")).collect();
            fs::write(self.file(name), lines)?;
        }
        Ok(())
    }

    fn console(&self) -> String {
        let console = fs::read(self.file("console")).unwrap_or_default();
        String::from_utf8_lossy(&console).into_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The name of the TAP device at this end of a wire.
fn tap(wire: u32, end: u32) -> String {
    format!("tap{wire}{end}")
}

fn last_lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

impl<W: Write> Port<W> {
    fn open(path: &Path, to: W) -> anyhow::Result<Self> {
        Ok(Self { file: File::open(path).with_context(|| path.display().to_string())?, to })
    }

    fn pass_on(&mut self) -> io::Result<()> {
        io::copy(&mut self.file, &mut self.to)?;
        self.to.flush()
    }
}
