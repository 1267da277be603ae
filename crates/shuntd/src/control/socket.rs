//! The socket itself: one per instance, the owner's only, or of a group that may read. And that of the metrics.

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::{
        socket::{
            AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind as bind_socket, connect, listen,
            socket,
        },
        stat::{Mode, fchmod},
    },
    unistd::{Gid, Group, chown},
};
use shunt_api::{Config, Failure, FailureCode, Instance};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net,
        },
    },
    path::Path,
};

/// Clients that the server has not come to yet. Who finds no room does not wait, where it was told not to.
const BACKLOG: i32 = 1024;

/// Where clients come in.
#[derive(Debug)]
pub struct Listeners {
    pub(super) control: net::UnixListener,
    pub(super) metrics: Option<TcpListener>,
}

/// Opens what the configuration says, or nothing.
///
/// # Errors
/// When the instance runs already, the reading group does not exist, or the address of the metrics is taken.
pub fn bind(instance: &Instance, config: &Config) -> Result<Listeners, Failure> {
    let readers = group(&config.read_group)?;
    let control = bind_control(instance, readers)?;
    let metrics = config.metrics.map(bind_metrics).transpose();
    metrics.map(|metrics| Listeners { control, metrics }).inspect_err(|_| unbind(instance))
}

/// The group of a name or number; none of an empty name.
fn group(name: &str) -> Result<Option<Gid>, Failure> {
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
                "read_group: there is no group `{name}`; create it with `groupadd {name}`, or name another one"
            ),
        )),
        Err(errno) => Err(Failure::new(FailureCode::GroupMissing, format!("read_group: `{name}`: {errno}"))),
    }
}

fn bind_metrics(address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::new(
            FailureCode::AddressInUse,
            format!("metrics: {address}: another program listens there; choose another address"),
        ),
        _ => Failure::new(FailureCode::BadConfig, format!("metrics: {address}: {error}")),
    })
}

/// Takes the instance's socket, and with it the instance: refused if a daemon answers there, whether it is well or not. A
/// socket that a crash left is replaced.
fn bind_control(instance: &Instance, readers: Option<Gid>) -> Result<net::UnixListener, Failure> {
    let path = instance.socket_path();
    match bind_at(&path, readers) {
        Ok(Some(listener)) => Ok(listener),
        Ok(None) => Err(Failure::new(
            FailureCode::AlreadyRunning,
            format!(
                "instance `{instance}` runs already; stop it with `shunt down --instance {instance}`, or choose another \
                 name with --instance"
            ),
        )),
        Err(error) => Err(unusable(&path, &error)),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::PermissionDenied => FailureCode::NotRoot,
        _ => FailureCode::Internal,
    };
    Failure::new(code, format!("{}: {error}", path.display()))
}

/// Removes the socket that a killed daemon has left: refused if one answers there.
pub fn clean_up(instance: &Instance) -> Result<(), Failure> {
    let path = instance.socket_path();
    if !path.parent().is_some_and(Path::is_dir) {
        return Ok(());
    }
    match if_dead(&path, || remove(&path)) {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(Failure::new(
            FailureCode::AlreadyRunning,
            format!("instance `{instance}` runs; stop it with `shunt down --instance {instance}`"),
        )),
        Err(error) => Err(unusable(&path, &error)),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the instance's socket. Only for the one who bound it.
pub fn unbind(instance: &Instance) {
    let path = instance.socket_path();
    if let Err(error) = remove(&path) {
        tracing::warn!("{}: cannot be removed: {error}", path.display());
    }
}

/// None if a daemon has it.
pub(super) fn bind_at(path: &Path, readers: Option<Gid>) -> io::Result<Option<net::UnixListener>> {
    make_dir(path.parent().unwrap_or(Path::new("/")))?;
    if_dead(path, || replace(path, readers))
}

/// What is to be done with the socket unless a daemon has it, while no other one can take it.
fn if_dead<T>(path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
    let lock_path = path.with_extension("lock");
    let lock = hold(&lock_path)?;
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
    // Whatever the umask: other users' tools may look for the socket, and are then refused by its own mode.
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// Held while the socket is looked at and replaced, so that two daemons cannot both find it dead. Only its owner can open
/// it, and the owner never waits while it is held.
fn hold(path: &Path) -> io::Result<Flock<File>> {
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
        // Its former holder has removed the file in the meantime: another one may be locked by now.
        if lock.metadata()?.nlink() > 0 {
            return Ok(lock);
        }
    }
}

fn has_listener(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(io::Error::other("it is in the way and not a socket; remove it")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    // Without waiting: a daemon that hangs and whose backlog is full is there nevertheless, and says EAGAIN.
    match connect(open()?.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn replace(path: &Path, readers: Option<Gid>) -> io::Result<net::UnixListener> {
    remove(path)?;
    let socket = open()?;
    // Before it has a name, so that nobody else can connect to it even for a moment.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind_socket(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    if let Some(group) = readers {
        chown(path, None, Some(group))?;
        fs::set_permissions(path, Permissions::from_mode(0o660))?;
    }
    listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(net::UnixListener::from(socket))
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}
