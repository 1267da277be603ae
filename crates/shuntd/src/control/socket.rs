//! Opens and removes the listening sockets: the control socket, one per instance, for its owner and optionally for a
//! group that may read, and the TCP sockets of the metrics and of the web page.

use super::admission::PageAccess;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::{
        socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind as bind_socket, connect, socket},
        stat::{Mode, fchmod},
    },
    unistd::{Gid, Group, chown},
};
use shunt_api::{Config, Failure, FailureCode, Instance, RUNTIME_DIR_VARIABLE, cannot_write};
use shunt_http::Hosts;
use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net,
        },
    },
    path::{Path, PathBuf},
};

/// Connections that the kernel queues until the server accepts them. Beyond that a non-blocking connect() fails with
/// EAGAIN.
const BACKLOG: i32 = 1024;
/// What a client should do that called the daemon by a wrong name.
const WRONG_HOST: &str = "use its address or localhost, or add the name to `hosts` in the configuration";

/// The listening sockets.
#[derive(Debug)]
pub struct Listeners {
    pub(super) control: net::UnixListener,
    pub(super) metrics: Option<TcpListener>,
    pub(super) page: Option<(TcpListener, PageAccess)>,
    /// The directory of reports that the page offers; empty for none.
    pub(super) reports: PathBuf,
    /// The names by which clients may call the daemon.
    pub(super) hosts: Hosts,
}

impl Listeners {
    /// Opens only a control socket, at this path, for tests and fuzzing. Reports are in `reports`, in the same
    /// directory.
    ///
    /// # Errors
    /// If a daemon has the socket, or it cannot be bound.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self {
            control: bind_at(path, None)?.ok_or(ErrorKind::AddrInUse)?,
            metrics: None,
            page: None,
            reports: path.with_file_name("reports"),
            hosts: Hosts::new([], ""),
        })
    }
}

impl Listeners {
    /// Further descriptors of the sockets: of the control socket, of the metrics if there are some, and of the page if
    /// there is one.
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated.
    pub(crate) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let metrics = self.metrics.as_ref().map(AsFd::as_fd);
        let page = self.page.as_ref().map(|(page, _)| page.as_fd());
        let all = [Some(self.control.as_fd()), metrics, page].into_iter().flatten();
        all.map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// Whether there are sockets for metrics and for the page.
    pub(crate) fn on_tcp(&self) -> (bool, bool) {
        (self.metrics.is_some(), self.page.is_some())
    }

    /// Takes over the sockets of another daemon, which are the first descriptors. Returns the other descriptors; `None`
    /// if there are too few.
    ///
    /// # Errors
    /// If the page's token cannot be read.
    pub(crate) fn adopt(
        config: &Config,
        handles: Vec<OwnedFd>,
        metrics: bool,
        page: bool,
    ) -> Result<Option<(Self, Vec<OwnedFd>)>, Failure> {
        if handles.len() < 1 + usize::from(metrics) + usize::from(page) {
            return Ok(None);
        }
        let mut handles = handles.into_iter();
        let Some(control) = handles.next() else { return Ok(None) };
        let metrics = handles.by_ref().take(metrics.into()).next().map(TcpListener::from);
        let page = match handles.by_ref().take(page.into()).next() {
            Some(page) => Some((TcpListener::from(page), PageAccess::from_config(config)?)),
            None => None,
        };
        let listeners = Self {
            control: net::UnixListener::from(control),
            metrics,
            page,
            reports: (&config.page_reports).into(),
            hosts: Hosts::new(config.hosts.iter().cloned(), WRONG_HOST),
        };
        Ok(Some((listeners, handles.collect())))
    }

    /// Makes this process the one that clients of the control socket see at its other end.
    ///
    /// # Errors
    /// If the descriptor is not that of a listening socket.
    pub(crate) fn claim(&self) -> io::Result<()> {
        // The kernel takes the credentials that connect() copies from the last listen().
        rustix::net::listen(&self.control, BACKLOG)?;
        Ok(())
    }
}

/// Opens the configured sockets: all of them or, after an error, none.
///
/// # Errors
/// When the instance is running already, `read_group` does not exist, an address is in use, or the page's token cannot
/// be read.
pub fn bind(instance: &Instance, config: &Config) -> Result<Listeners, Failure> {
    let readers = group(&config.read_group)?;
    let control = bind_control(instance, readers)?;
    bind_tcp(config)
        .map(|(metrics, page)| Listeners {
            control,
            metrics,
            page,
            reports: (&config.page_reports).into(),
            hosts: hosts_of(config),
        })
        .inspect_err(|_| unbind(instance))
}

/// What a reload changes about the TCP sockets.
#[derive(Debug)]
pub(crate) struct NewListeners {
    /// The new listener, or `Some(None)` to serve no metrics any more; `None` if the address stays.
    pub(super) metrics: Option<Option<TcpListener>>,
    /// The same for the page.
    pub(super) page: Option<Option<TcpListener>>,
    pub(super) access: Option<PageAccess>,
    pub(super) hosts: Hosts,
    pub(super) reports: PathBuf,
}

impl NewListeners {
    /// Further descriptors of the new sockets: of the metrics and of the page, as far as they change.
    ///
    /// # Errors
    /// If the process has too many.
    pub(crate) fn descriptors(&self) -> io::Result<[Option<Option<OwnedFd>>; 2]> {
        let again = |socket: &Option<TcpListener>| {
            socket.as_ref().map(|socket| socket.as_fd().try_clone_to_owned()).transpose()
        };
        let [metrics, page] = [&self.metrics, &self.page].map(|new| new.as_ref().map(again).transpose());
        Ok([metrics?, page?])
    }

    /// Opens the sockets whose addresses differ, and reads the token of the page.
    ///
    /// # Errors
    /// When an address is in use, or the token cannot be read.
    pub(crate) fn bind(old: &Config, new: &Config) -> Result<Self, Failure> {
        let bind = |key: &str, old: Option<SocketAddr>, new: Option<SocketAddr>| {
            let changed = old != new;
            let listener = new.filter(|_| changed).map(|address| bind_address(key, address)).transpose()?;
            Ok::<_, Failure>(changed.then_some(listener))
        };
        Ok(Self {
            access: new.page.map(|_| PageAccess::from_config(new)).transpose()?,
            metrics: bind("metrics", old.metrics, new.metrics)?,
            page: bind("page", old.page, new.page)?,
            hosts: hosts_of(new),
            reports: (&new.page_reports).into(),
        })
    }
}

fn hosts_of(config: &Config) -> Hosts {
    Hosts::new(config.hosts.iter().cloned(), WRONG_HOST)
}

/// Lets the members of another group read from the control socket, or nobody but its owner.
///
/// # Errors
/// If the socket's file cannot be changed. Then only its owner may connect.
pub(crate) fn let_read(instance: &Instance, readers: Option<Gid>) -> Result<(), Failure> {
    let path = instance.socket_path(&runtime_dir());
    let change = || {
        // Nobody else may connect while the group changes.
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if let Some(group) = readers {
            chown(&path, None, Some(group))?;
            fs::set_permissions(&path, Permissions::from_mode(0o660))?;
        }
        Ok(())
    };
    change().map_err(|error: io::Error| socket_failure(&path, &error))
}

type TcpListeners = (Option<TcpListener>, Option<(TcpListener, PageAccess)>);

fn bind_tcp(config: &Config) -> Result<TcpListeners, Failure> {
    let metrics = config.metrics.map(|address| bind_address("metrics", address)).transpose()?;
    let Some(address) = config.page else { return Ok((metrics, None)) };
    let access = PageAccess::from_config(config)?;
    Ok((metrics, Some((bind_address("page", address)?, access))))
}

/// The group with this name or number; `None` for an empty name.
///
/// # Errors
/// If there is no such group.
pub(crate) fn group(name: &str) -> Result<Option<Gid>, Failure> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = match name.parse() {
        Ok(number) => Group::from_gid(Gid::from_raw(number)).map(|_| Some(Gid::from_raw(number))),
        Err(_) => Group::from_name(name).map(|group| group.map(|group| group.gid)),
    };
    match found {
        Ok(Some(gid)) => Ok(Some(gid)),
        Ok(None) => Err(Failure::new(
            FailureCode::GroupMissing,
            format!(
                "read_group: there is no group `{name}`; create it with `groupadd {name}`, or configure another group"
            ),
        )),
        Err(errno) => Err(Failure::new(FailureCode::GroupMissing, format!("read_group: `{name}`: {errno}"))),
    }
}

/// Binds the address that the configuration has for `key`.
fn bind_address(key: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::new(
            FailureCode::AddressInUse,
            format!("{key}: {address} is in use by another program; choose another address"),
        ),
        _ => Failure::new(FailureCode::BadConfig, format!("{key}: {address}: {error}")),
    })
}

/// The directory of control sockets and logs, as `SHUNT_RUNTIME_DIR` says.
fn runtime_dir() -> PathBuf {
    shunt_api::runtime_dir(env::var_os(RUNTIME_DIR_VARIABLE))
}

/// Binds the instance's socket, and thereby claims the instance. Fails if another daemon has the socket, even one that
/// hangs. A socket that a crash left behind is replaced.
fn bind_control(instance: &Instance, readers: Option<Gid>) -> Result<net::UnixListener, Failure> {
    let path = instance.socket_path(&runtime_dir());
    match bind_at(&path, readers) {
        Ok(Some(listener)) => Ok(listener),
        Ok(None) => Err(running_already(instance)),
        Err(error) => Err(socket_failure(&path, &error)),
    }
}

fn running_already(instance: &Instance) -> Failure {
    let named =
        if *instance == Instance::default() { String::new() } else { format!(" --instance {instance}") };
    Failure::new(
        FailureCode::AlreadyRunning,
        format!(
            "instance `{instance}` is running already; `shunt reload{named}` applies its configuration file, `shunt \
             restart{named}` starts the installed version; for other options, stop it with `shunt down{named}`, or choose \
             another name with --instance"
        ),
    )
}

/// Fails as [`bind`] would. Creates no file, and keeps no socket.
pub(crate) fn check(instance: &Instance, config: &Config) -> Result<(), Failure> {
    group(&config.read_group)?;
    let path = instance.socket_path(&runtime_dir());
    match has_listener(&path) {
        Ok(false) => bind_tcp(config).map(drop),
        Ok(true) => Err(running_already(instance)),
        Err(error) => Err(socket_failure(&path, &error)),
    }
}

fn socket_failure(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::PermissionDenied => FailureCode::NotRoot,
        _ => FailureCode::Internal,
    };
    Failure::new(code, format!("{}: {}", path.display(), cannot_write(path, error)))
}

/// Removes the socket that a killed daemon has left behind. Fails if a daemon has the socket.
pub fn clean_up(instance: &Instance) -> Result<(), Failure> {
    let path = instance.socket_path(&runtime_dir());
    if !path.parent().is_some_and(Path::is_dir) {
        return Ok(());
    }
    match if_dead(&path, || remove(&path)) {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(Failure::new(
            FailureCode::AlreadyRunning,
            format!("instance `{instance}` is running; stop it with `shunt down --instance {instance}`"),
        )),
        Err(error) => Err(socket_failure(&path, &error)),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the instance's socket. Only the daemon that bound the socket may call this.
pub fn unbind(instance: &Instance) {
    let path = instance.socket_path(&runtime_dir());
    if let Err(error) = remove(&path) {
        tracing::warn!("cannot remove {}: {error}", path.display());
    }
}

/// Binds a socket at `path`; `None` if a daemon has the socket at that path.
pub(super) fn bind_at(path: &Path, readers: Option<Gid>) -> io::Result<Option<net::UnixListener>> {
    make_dir(path.parent().unwrap_or(Path::new("/")))?;
    if_dead(path, || replace(path, readers))
}

/// Calls `act` unless a daemon has the socket; no other daemon can take the socket meanwhile. `None` if a daemon has
/// it.
fn if_dead<T>(path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
    let lock_path = path.with_extension("lock");
    let lock = acquire_lock(&lock_path)?;
    let done = match has_listener(path) {
        Ok(true) => Ok(None),
        Ok(false) => act().map(Some),
        Err(error) => Err(error),
    };
    fs::remove_file(&lock_path)?;
    drop(lock);
    done
}

fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).create(dir)?;
    // Regardless of the umask: tools of other users may look for the socket; the mode of the socket itself refuses
    // them.
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// Acquires the lock that is held while the socket is examined and replaced, so that two daemons cannot both find the
/// socket dead. Only the owner can open the lock file, and never waits for anything else while holding the lock.
fn acquire_lock(path: &Path) -> io::Result<Flock<File>> {
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
        // If the former holder has removed the file, another daemon may have created and locked a new one.
        if lock.metadata()?.nlink() > 0 {
            return Ok(lock);
        }
    }
}

fn has_listener(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(io::Error::other("the file is not a socket; remove it")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    // The socket is non-blocking: if a daemon hangs and its backlog is full, connect() fails with EAGAIN.
    match connect(open()?.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn replace(path: &Path, readers: Option<Gid>) -> io::Result<net::UnixListener> {
    remove(path)?;
    let socket = open()?;
    // Before the socket has a name, so that no other user can connect even for a moment.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind_socket(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    if let Some(group) = readers {
        chown(path, None, Some(group))?;
        fs::set_permissions(path, Permissions::from_mode(0o660))?;
    }
    // nix takes no more than SOMAXCONN, which is 128 in musl's headers; the kernel has a limit of its own.
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(net::UnixListener::from(socket))
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}
