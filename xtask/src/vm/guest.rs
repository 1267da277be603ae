//! A machine of QEMU's, without KVM: what it says, and how it ends.

use anyhow::{Context, bail, ensure};
use shunt_testkit::Process;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The package that has QEMU is named by packaging/deps.sh.
const QEMU: &str = "qemu-system-x86_64";
const MEMORY_MB: u32 = 2048;
/// How often is looked at what the guest has said.
const INTERVAL: Duration = Duration::from_millis(20);
/// So much of the console is shown when a guest has failed.
const LAST_LINES: usize = 30;

/// A guest that runs, in a directory where its serial ports are files.
#[derive(Debug)]
pub struct Guest {
    directory: PathBuf,
    timeout: Duration,
}

/// A port of which what is new is passed on.
struct Port<W> {
    file: File,
    to: W,
}

impl Guest {
    /// A guest whose files are in this directory, and that may take so long.
    pub fn new(directory: &Path, timeout: Duration) -> Self {
        Self { directory: directory.to_owned(), timeout }
    }

    /// Boots a kernel with this initramfs, passes on what the command says, and waits for the end; its exit code.
    pub fn run(&self, kernel: &Path, initramfs: &Path, stdout: &mut dyn Write) -> anyhow::Result<u8> {
        for name in ["console", "output", "errors", "code"] {
            File::create(self.file(name))?;
        }
        let mut output = Port::open(&self.file("output"), stdout)?;
        let mut errors = Port::open(&self.file("errors"), io::stderr())?;
        let since = Instant::now();
        let mut qemu = Process::start(self.command(kernel, initramfs)?);
        let status = loop {
            let status = qemu.ended();
            output.pass_on()?;
            errors.pass_on()?;
            if let Some(status) = status {
                break status;
            }
            if since.elapsed() >= self.timeout {
                bail!(
                    "no end after {:?}, which --timeout changes. The console's end:\n{}",
                    self.timeout,
                    end_of(&self.console())
                );
            }
            thread::sleep(INTERVAL);
        };
        let code = fs::read_to_string(self.file("code"))?;
        code.trim().parse().map_err(|_| self.failure(status))
    }

    fn command(&self, kernel: &Path, initramfs: &Path) -> anyhow::Result<Command> {
        demand_qemu()?;
        // Whatever ends this process, its guest ends with it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU]);
        command.args(["-M", "q35", "-cpu", "max", "-accel", "tcg", "-smp", "1"]);
        command.args(["-m", &MEMORY_MB.to_string(), "-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
        command.args([
            "-append",
            "console=ttyS0 quiet panic=-1 rdinit=/init nokaslr mitigations=off random.trust_cpu=on",
        ]);
        for name in ["console", "output", "errors", "code"] {
            command.arg("-serial").arg(format!("file:{}", self.file(name).display()));
        }
        command.stdout(Stdio::null()).stderr(File::create(self.file("qemu"))?);
        Ok(command)
    }

    /// Why there is no exit code.
    fn failure(&self, status: ExitStatus) -> anyhow::Error {
        let said = fs::read_to_string(self.file("qemu")).unwrap_or_default();
        if !status.success() {
            return anyhow::anyhow!("{QEMU}: {status}: {}", said.trim());
        }
        let console = self.console();
        let panic = console.lines().find(|line| line.contains("Kernel panic"));
        let what = panic.unwrap_or("the guest has ended without an exit code");
        anyhow::anyhow!("{what}. The console's end:\n{}", end_of(&console))
    }

    fn console(&self) -> String {
        let said = fs::read(self.file("console")).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// That QEMU is there.
pub fn demand_qemu() -> anyhow::Result<()> {
    let there = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
    ensure!(there.is_ok(), "{QEMU} is not there; `packaging/deps.sh --vm` installs it");
    Ok(())
}

fn end_of(console: &str) -> String {
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
