//! UDP and TCP echo services, and exchanges with them.

use crate::NetNs;
use nix::sys::{
    socket::{setsockopt, sockopt},
    time::{TimeVal, TimeValLike},
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often a service checks whether it must end.
const TICK: Duration = Duration::from_millis(20);

/// A UDP echo service in a namespace. Dropping this ends it.
#[derive(Debug)]
pub struct UdpEcho {
    service: Service,
}

/// A TCP echo service in a namespace, which serves one connection after the other. Dropping this ends it.
#[derive(Debug)]
pub struct TcpEcho {
    service: Service,
}

impl UdpEcho {
    /// Listens on `address`.
    ///
    /// # Panics
    /// When the address cannot be listened on.
    #[track_caller]
    pub fn start(ns: &NetNs, address: SocketAddr) -> Self {
        let socket = opened(ns, address, || UdpSocket::bind(address));
        let timeout = socket.set_read_timeout(Some(TICK));
        timeout.unwrap_or_else(|e| panic!("{address}: {e}"));
        let service = Service::start(move |state| {
            let mut buffer = vec![0; 65_536];
            while state.runs() {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    // Counted before it is sent: a test that has the answer may read the count.
                    state.answered.fetch_add(1, Ordering::Relaxed);
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        Self { service }
    }

    /// Number of datagrams answered.
    pub fn answered(&self) -> u64 {
        self.service.state.answered.load(Ordering::Relaxed)
    }
}

impl TcpEcho {
    /// Listens on `address`.
    ///
    /// # Panics
    /// When the address cannot be listened on.
    #[track_caller]
    pub fn start(ns: &NetNs, address: SocketAddr) -> Self {
        let listener = opened(ns, address, || TcpListener::bind(address));
        // accept() obeys the receive timeout, too.
        let tick = TimeVal::microseconds(TICK.as_micros() as i64);
        let timeout = setsockopt(&listener, sockopt::ReceiveTimeout, &tick);
        timeout.unwrap_or_else(|e| panic!("{address}: {e}"));
        let service = Service::start(move |state| {
            while state.runs() {
                if let Ok((stream, _)) = listener.accept() {
                    // A peer may close the connection at any time.
                    let _ = serve(stream, state);
                }
            }
        });
        Self { service }
    }

    /// Number of connections served.
    pub fn served(&self) -> u64 {
        self.service.state.answered.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, state: &State) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 65_536];
    while state.runs() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => stream.write_all(&buffer[..length])?,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    state.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sends a datagram from `from` (port 0: any port) and returns the answer.
///
/// # Errors
/// If no answer comes within `timeout`, or an ICMP error comes instead.
pub fn udp_exchange(
    ns: &NetNs,
    from: SocketAddr,
    to: SocketAddr,
    data: &[u8],
    timeout: Duration,
) -> io::Result<Vec<u8>> {
    let socket = ns.within(|| UdpSocket::bind(from))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.send(data)?;
    let mut answer = vec![0; 65_536];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

/// Connects, sends, closes the sending half and returns what the other end sends until it closes.
///
/// # Errors
/// If the connection is refused, breaks, or is silent for `timeout`.
pub fn tcp_exchange(ns: &NetNs, to: SocketAddr, data: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = ns.within(|| TcpStream::connect_timeout(&to, timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut reader = stream.try_clone()?;
    // Write and read at once: a peer that echoes much data would block a sender that does not read.
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            stream.write_all(data)?;
            stream.shutdown(std::net::Shutdown::Write)
        });
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer)?;
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(answer)
    })
}

#[track_caller]
fn opened<T: Send>(ns: &NetNs, address: SocketAddr, open: impl FnOnce() -> io::Result<T> + Send) -> T {
    ns.within(open).unwrap_or_else(|e| panic!("{}: {address}: {e}", ns.name()))
}

#[derive(Debug)]
struct State {
    running: AtomicBool,
    answered: AtomicU64,
}

impl State {
    fn runs(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Service {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    fn start(work: impl FnOnce(&State) + Send + 'static) -> Self {
        let state = Arc::new(State { running: AtomicBool::new(true), answered: AtomicU64::new(0) });
        let theirs = Arc::clone(&state);
        let thread = Some(thread::spawn(move || work(&theirs)));
        Self { state, thread }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.state.running.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}
