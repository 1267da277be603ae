//! The socket itself: one per instance, the owner's only.

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
};
use shunt_api::{Failure, FailureCode, Instance};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net,
        },
    },
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
};

/// Takes the instance's socket, and with it the instance: refused if a daemon answers there, whether it is well or not. A
/// socket that a crash left is replaced. To be called within the runtime.
pub fn bind(instance: &Instance) -> Result<UnixListener, Failure> {
    let path = instance.socket_path();
    match bind_at(&path) {
        Ok(Some(listener)) => Ok(listener),
        Ok(None) => Err(Failure::new(
            FailureCode::AlreadyRunning,
            format!(
                "instance `{instance}` runs already; stop it with `shunt down --instance {instance}`, or choose another \
                 name with --instance"
            ),
        )),
        Err(error) => {
            let code = match error.kind() {
                ErrorKind::PermissionDenied => FailureCode::NotRoot,
                _ => FailureCode::Internal,
            };
            Err(Failure::new(code, format!("{}: {error}", path.display())))
        }
    }
}

/// Removes the instance's socket. Only for the one who bound it.
pub fn unbind(instance: &Instance) {
    let path = instance.socket_path();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("{}: cannot be removed: {error}", path.display());
        }
        _ => {}
    }
}

/// None if a daemon has it.
pub(super) fn bind_at(path: &Path) -> io::Result<Option<UnixListener>> {
    make_dir(path.parent().unwrap_or(Path::new("/")))?;
    let lock_path = path.with_extension("lock");
    let lock = hold(&lock_path)?;
    let listener = match has_listener(path) {
        Ok(true) => Ok(None),
        Ok(false) => replace(path).map(Some),
        Err(error) => Err(error),
    };
    fs::remove_file(&lock_path)?;
    drop(lock);
    listener
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

fn replace(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = open()?;
    // Before it has a name, so that nobody else can connect to it even for a moment.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind_socket(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::new(64)?)?;
    UnixListener::from_std(net::UnixListener::from(socket))
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

/// A client's stream on which nothing is written before a request was understood: hyper's own refusals have no body, and
/// one with a body is written instead.
pub(super) struct Unasked {
    stream: UnixStream,
    asked: Arc<AtomicBool>,
}

impl Unasked {
    pub(super) fn new(stream: UnixStream, asked: Arc<AtomicBool>) -> Self {
        Self { stream, asked }
    }

    pub(super) fn into_inner(self) -> UnixStream {
        self.stream
    }

    fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl AsyncRead for Unasked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Unasked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.asked() { Pin::new(&mut self.stream).poll_write(cx, buf) } else { Poll::Ready(Ok(buf.len())) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.asked() { Pin::new(&mut self.stream).poll_shutdown(cx) } else { Poll::Ready(Ok(())) }
    }
}
