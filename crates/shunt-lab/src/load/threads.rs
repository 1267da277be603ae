//! The kernel threads that poll a device, and the CPU time of threads.
//!
//! With `threaded` set, a device is polled by its own kernel threads and nowhere else. The run time of these threads is
//! the CPU time that the router spends on its packets, without any other work of the machine.

use crate::net::NetNs;
use nix::unistd::Pid;
use shunt_traffic::schedule;
use std::{collections::BTreeSet, fs, io};

/// Another namespace may get threads of a device of the same name at the same time: the threads are looked for this
/// often.
const ATTEMPTS: u32 = 3;

/// The polling threads of one device.
#[derive(Debug, Clone)]
pub struct PollThreads {
    ids: Vec<i32>,
}

/// The scheduler's account of some threads, summed up since their start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunTime {
    /// Time on a CPU, in ns.
    pub ran_ns: u64,
    /// Time spent ready and waiting for a CPU, in ns.
    pub waited_ns: u64,
    /// Number of times that the threads were put on a CPU.
    pub slices: u64,
}

impl PollThreads {
    /// Switches a device to polling threads. Attaching an XDP program may replace the threads: call this again
    /// afterwards.
    ///
    /// # Errors
    /// Fails if the device has no NAPI, which a veth has with GRO or an XDP program only, and in a PID namespace other
    /// than the machine's.
    pub fn start(netns: &NetNs, ifname: &str) -> io::Result<Self> {
        let sys = format!("/sys/class/net/{ifname}");
        let queues = netns.try_run(&format!("ls -d {sys}/queues/rx-*"))?.lines().count();
        let mut found = 0;
        for _ in 0..ATTEMPTS {
            netns.try_run(&format!("echo 0 > {sys}/threaded"))?;
            let before = ids_of(ifname)?;
            netns.try_run(&format!("echo 1 > {sys}/threaded"))?;
            let ids: Vec<i32> = ids_of(ifname)?.difference(&before).copied().collect();
            if !ids.is_empty() && ids.len() <= queues {
                return Ok(Self { ids });
            }
            found = ids.len();
        }
        if !sees_kernel_threads() {
            return Err(io::Error::other(
                "the kernel's threads are not seen from this PID namespace; use the machine's, in a container with \
                 --pid=host",
            ));
        }
        Err(io::Error::other(format!(
            "{ifname} has {queues} receive queues and {found} polling threads; it needs NAPI (GRO or an XDP program)"
        )))
    }

    /// Gives the threads priority over all ordinary threads, as softirqs have.
    ///
    /// # Errors
    /// Fails without CAP_SYS_NICE.
    pub fn go_first(&self) -> io::Result<()> {
        self.ids.iter().try_for_each(|id| schedule::go_until_waiting(Pid::from_raw(*id)))
    }

    /// The numbers of the threads.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// CPU time of the threads so far.
    ///
    /// # Errors
    /// Fails if a thread has ended.
    pub fn run_time(&self) -> io::Result<RunTime> {
        self.ids
            .iter()
            .try_fold(RunTime::default(), |sum, id| Ok(sum + RunTime::of_thread(&format!("/proc/{id}"))?))
    }
}

impl RunTime {
    /// CPU time of all threads of a process.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let mut sum = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            sum = sum + Self::of_thread(&entry?.path().to_string_lossy())?;
        }
        Ok(sum)
    }

    /// CPU time of the calling thread.
    ///
    /// # Errors
    /// Fails if /proc cannot be read.
    pub fn of_this_thread() -> io::Result<Self> {
        Self::of_thread("/proc/thread-self")
    }

    fn of_thread(directory: &str) -> io::Result<Self> {
        let path = format!("{directory}/schedstat");
        let wrong = |why: String| io::Error::other(format!("{path}: {why}"));
        let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [ran_ns, waited_ns, slices] => Ok(Self { ran_ns, waited_ns, slices }),
            _ => Err(wrong(format!("expected three numbers, found `{}`", text.trim()))),
        }
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
            slices: self.slices.saturating_sub(earlier.slices),
        }
    }
}

impl std::ops::Add for RunTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            ran_ns: self.ran_ns + other.ran_ns,
            waited_ns: self.waited_ns + other.waited_ns,
            slices: self.slices + other.slices,
        }
    }
}

/// Whether the first PID namespace is the one of this process, by the parent of all kernel threads, which is always
/// its second process.
fn sees_kernel_threads() -> bool {
    fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n")
}

fn ids_of(ifname: &str) -> io::Result<BTreeSet<i32>> {
    // The kernel names these threads napi/<device>-<napi id>, cut to 15 bytes.
    let prefix = format!("napi/{ifname}-");
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while /proc is read.
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        if name.starts_with(&prefix) {
            ids.insert(id);
        }
    }
    Ok(ids)
}
