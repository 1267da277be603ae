//! Services that answer with what they were told, and the questions to them.

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

/// How long a service takes to notice that it shall end.
const TICK: Duration = Duration::from_millis(20);

/// A UDP echo service in a namespace, until it is dropped.
#[derive(Debug)]
pub struct UdpEcho {
    service: Service,
}

/// A TCP echo service in a namespace, until it is dropped. It serves one connection after the other.
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
                    // Counted first: whoever has the answer may ask for the count.
                    state.answered.fetch_add(1, Ordering::Relaxed);
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        Self { service }
    }

    /// How many datagrams it has answered.
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
        // accept() keeps to the receive timeout too.
        let tick = TimeVal::microseconds(TICK.as_micros() as i64);
        let timeout = setsockopt(&listener, sockopt::ReceiveTimeout, &tick);
        timeout.unwrap_or_else(|e| panic!("{address}: {e}"));
        let service = Service::start(move |state| {
            while state.runs() {
                if let Ok((stream, _)) = listener.accept() {
                    // A peer that goes away in the middle is its own business.
                    let _ = serve(stream, state);
                }
            }
        });
        Self { service }
    }

    /// How many connections it has served.
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

/// Sends a datagram from `from` (port 0: any) and waits for the answer.
///
/// # Errors
/// When there is no answer within `timeout`, or an ICMP error comes in its place.
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

/// Connects, sends, closes its half and reads until the other side closes.
///
/// # Errors
/// When the connection is refused, breaks, or is silent for `timeout`.
pub fn tcp_exchange(ns: &NetNs, to: SocketAddr, data: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = ns.within(|| TcpStream::connect_timeout(&to, timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut reader = stream.try_clone()?;
    // Both at once: an echo of much data blocks who only writes.
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
            // A service that panicked has said so.
            let _ = thread.join();
        }
    }
}
