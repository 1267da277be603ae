//! Stands in for systemd: starts a daemon with the descriptors that it keeps, heeds the main process alone, and closes
//! the descriptors when the service stops.

use nix::{
    cmsg_space,
    fcntl::{FcntlArg, fcntl},
    sys::{
        signal::Signal,
        socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt::PassCred},
    },
};
use shunt_testkit::{NetNs, Process, Shunt, program, wait_for, wait_until};
use std::{
    fs::File,
    io::IoSliceMut,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::UnixDatagram,
    },
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// How long loading the programs may take.
const LOADING: Duration = Duration::from_secs(60);
/// Far above the descriptors that a process begins with.
const ASIDE: RawFd = 400;

const MARK: &str = "X_MARK=1";

/// What the daemons have said.
#[derive(Debug, Default)]
struct Heard {
    stored: Vec<(String, OwnedFd)>,
    main: i32,
    /// How many daemons were ready.
    ready: usize,
    /// How many marks of this process have been received.
    marks: usize,
}

/// The service manager, and the daemon that it has started, if any.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    heard: Arc<Mutex<Heard>>,
    netns: String,
    directory: PathBuf,
    instance: String,
    arguments: Vec<String>,
    daemon: Option<Process>,
}

impl ServiceManager {
    /// A service manager for the instance and the directory of these commands.
    #[track_caller]
    pub(crate) fn of(shunt: &Shunt, netns: &NetNs, arguments: &str) -> Self {
        let directory = shunt.directory().to_owned();
        let socket = UnixDatagram::bind(directory.join("notify")).unwrap();
        setsockopt(&socket, PassCred, &true).unwrap();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let shared = Arc::downgrade(&heard);
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        thread::spawn(move || {
            while let Some(heard) = shared.upgrade() {
                hear(&socket, &heard);
            }
        });
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        let (netns, instance) = (netns.name().to_owned(), shunt.instance().to_owned());
        Self { heard, netns, directory, instance, arguments, daemon: None }
    }

    /// Starts a daemon with what is stored, and these variables. Waits until it is ready.
    #[track_caller]
    pub(crate) fn start_with(&mut self, variables: &[(&str, &str)]) {
        let (stored, ready) = {
            let heard = self.heard.lock().unwrap();
            let aside =
                |fd: &OwnedFd| shunt_bpf::received(fcntl(fd, FcntlArg::F_DUPFD(ASIDE)).unwrap()).unwrap();
            let stored: Vec<_> = heard.stored.iter().map(|(name, fd)| (name.clone(), aside(fd))).collect();
            (stored, heard.ready)
        };
        let moves = stored
            .iter()
            .enumerate()
            .map(|(index, (_, fd))| format!("exec {}<&{fd} {fd}<&-;", index + 3, fd = fd.as_raw_fd()));
        let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
        let script = format!("{} export LISTEN_PID=$$; exec \"$@\"", moves.collect::<String>());
        let log = File::options().create(true).append(true).open(self.directory.join("log")).unwrap();
        let mut command = std::process::Command::new("ip");
        command
            .args(["netns", "exec", &self.netns, "bash", "-c", &script, "bash"])
            .arg(program("SHUNTD", "shuntd"))
            .args(["--instance", &self.instance])
            .args(&self.arguments)
            .env("SHUNT_RUNTIME_DIR", &self.directory)
            .env("NOTIFY_SOCKET", self.directory.join("notify"))
            .env("FDSTORE", "4096")
            .env("LISTEN_FDS", stored.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(log);
        let daemon = Process::start(command);
        self.heard.lock().unwrap().main = daemon.pid() as i32;
        drop(stored);
        self.daemon = Some(daemon);
        let is_ready = wait_for(LOADING, || {
            let ended = self.daemon.as_mut().and_then(Process::ended);
            assert_eq!(ended, None, "{}", self.log());
            (self.heard.lock().unwrap().ready > ready).then_some(())
        });
        assert!(is_ready.is_some(), "the daemon does not get ready: {}", self.log());
    }

    /// Sends a signal to the daemon that this has started, and waits for its end.
    #[track_caller]
    pub(crate) fn end_daemon(&mut self, signal: Signal) -> ExitStatus {
        let mut daemon = self.daemon.take().unwrap();
        daemon.signal(signal).unwrap();
        let ended = wait_for(LOADING, || daemon.ended());
        let ended = ended.unwrap_or_else(|| panic!("the daemon does not end: {}", self.log()));
        self.hear_all();
        ended
    }

    /// Waits until everything has been received that was said until now.
    #[track_caller]
    pub(crate) fn hear_all(&self) {
        let marks = self.heard.lock().unwrap().marks;
        let socket = UnixDatagram::unbound().unwrap();
        socket.send_to(MARK.as_bytes(), self.directory.join("notify")).unwrap();
        wait_until("all messages are received", || self.heard.lock().unwrap().marks > marks);
    }

    /// The process ID of the main process.
    pub(crate) fn main_pid(&self) -> i32 {
        self.heard.lock().unwrap().main
    }

    /// The service has stopped: closes all descriptors.
    pub(crate) fn release(&mut self) {
        self.heard.lock().unwrap().stored.clear();
    }

    /// The names of what is stored, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let mut names: Vec<String> = heard.stored.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The names of the links that are stored, sorted.
    pub(crate) fn links(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with("shunt-link-")).collect()
    }

    /// Waits until the links of these ports are stored, and nothing else is under way.
    #[track_caller]
    pub(crate) fn wait_for_links(&self, shunt: &Shunt) {
        wait_until("all links are stored", || {
            let status = shunt.status();
            let is_tcx = |port: &&shunt_api::PortStatus| port.attach == shunt_api::Attach::Tcx;
            let by_tcx = 2 * status.ports.iter().filter(is_tcx).count();
            let wanted = by_tcx + status.ports.iter().filter(|port| port.xdp_attached).count();
            self.links().len() == wanted && self.record().is_some_and(|text| text.contains("\"Usable\""))
        });
    }

    /// The record that a daemon has left.
    pub(crate) fn record(&self) -> Option<String> {
        self.record_file().map(|file| {
            let mut bytes = vec![0; 1 << 16];
            let length = std::os::unix::fs::FileExt::read_at(&file, &mut bytes, 24).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        })
    }

    /// The file with the record.
    pub(crate) fn record_file(&self) -> Option<File> {
        let heard = self.heard.lock().unwrap();
        let (_, fd) = heard.stored.iter().rev().find(|(name, _)| name.starts_with("shunt-record-"))?;
        Some(fd.try_clone().unwrap().into())
    }

    /// Lets a descriptor go, as a damaged store would.
    pub(crate) fn lose(&self, prefix: &str) {
        let mut heard = self.heard.lock().unwrap();
        let index = heard.stored.iter().position(|(name, _)| name.starts_with(prefix)).unwrap();
        heard.stored.remove(index);
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

/// Receives a message, if there is one, and does what it says.
fn hear(socket: &UnixDatagram, heard: &Mutex<Heard>) {
    let mut bytes = [0; 4096];
    let mut control = cmsg_space!([RawFd; 8], UnixCredentials);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let Ok(got) = recvmsg::<()>(socket.as_raw_fd(), &mut buffers, Some(&mut control), flags) else { return };
    let (mut fds, mut sender) = (Vec::new(), 0);
    for message in got.cmsgs().unwrap() {
        match message {
            ControlMessageOwned::ScmRights(raw) => {
                fds.extend(raw.into_iter().map(|fd| shunt_bpf::received(fd).unwrap()));
            }
            ControlMessageOwned::ScmCredentials(credentials) => sender = credentials.pid(),
            _ => {}
        }
    }
    let length = got.bytes;
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let mut heard = heard.lock().unwrap();
    heard.marks += usize::from(text == MARK);
    if sender != heard.main {
        return;
    }
    let name = value("FDNAME").unwrap_or("stored").to_owned();
    if value("FDSTORE") == Some("1") {
        assert_eq!(value("FDPOLL"), Some("0"), "{text}");
        heard.stored.extend(fds.into_iter().map(|fd| (name.clone(), fd)));
    } else if value("FDSTOREREMOVE") == Some("1") {
        heard.stored.retain(|(stored, _)| *stored != name);
    }
    heard.ready += usize::from(value("READY") == Some("1"));
    if let Some(pid) = value("MAINPID") {
        heard.main = pid.parse().unwrap();
    }
}
