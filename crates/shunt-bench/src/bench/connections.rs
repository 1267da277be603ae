//! New TCP connections: their cost for the router and its daemon.

use crate::rig::{path::Open, router_rig};
use serde::Serialize;
use shunt_lab::load::RunTime;
use shunt_testkit::{Host, Topology};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Number of clients that connect at the same time.
const CLIENTS: usize = 4;
/// The server's ports. With the client's ephemeral ports they give more tuples than a run uses.
const PORTS: std::ops::Range<u16> = 7000..7004;

/// The counts of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Connections that were opened, used for one byte each way, and closed.
    pub connections: u64,
    /// Connections that failed.
    pub failures: u64,
    /// Duration in ns.
    pub elapsed_ns: u64,
    /// CPU time of the router's polling threads.
    pub router: RunTime,
    /// CPU time of shuntd.
    pub daemon: RunTime,
}

impl Sample {
    /// Connections per second.
    pub fn per_second(&self) -> f64 {
        self.connections as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Connections per second of CPU time of the router and its daemon.
    pub fn per_cpu_second(&self) -> f64 {
        self.connections as f64 * 1e9 / (self.router.ran_ns + self.daemon.ran_ns).max(1) as f64
    }
}

/// Runs four clients that open connections as fast as they can.
pub fn measure(lab: &Topology, open: &Open<'_>, duration: Duration) -> anyhow::Result<Sample> {
    let daemon = open.daemon()?;
    let (router, _hosts) = router_rig::threads(lab, router_rig::Placement::TwoCpus)?;
    let run_time = || -> anyhow::Result<(RunTime, RunTime)> {
        let router = router.iter().try_fold(RunTime::default(), |sum, t| anyhow::Ok(sum + t.run_time()?))?;
        Ok((router, daemon.map_or(Ok(RunTime::default()), RunTime::of_process)?))
    };
    let (connections, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let running = AtomicBool::new(true);
    let listeners: Vec<TcpListener> = PORTS.map(|port| listen(lab.wan(), port)).collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        for listener in &listeners {
            scope.spawn(|| serve(listener, &running));
        }
        for client in 0..CLIENTS {
            let to = lab.wan().at(PORTS.start + (client % PORTS.len()) as u16);
            let (connections, failures, running) = (&connections, &failures, &running);
            scope.spawn(move || {
                lab.lan().ns.enter();
                while running.load(Ordering::Relaxed) {
                    let counter = if exchange(to).is_ok() { connections } else { failures };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        let counts = || (connections.load(Ordering::Relaxed), failures.load(Ordering::Relaxed));
        let sampled = run_time().and_then(|before| {
            let counted = counts();
            thread::sleep(duration);
            let (after, now) = (run_time()?, counts());
            Ok(Sample {
                connections: now.0 - counted.0,
                failures: now.1 - counted.1,
                elapsed_ns: start.elapsed().as_nanos() as u64,
                router: after.0.since(before.0),
                daemon: after.1.since(before.1),
            })
        });
        running.store(false, Ordering::Relaxed);
        // Connect once more, so that accept() returns.
        lab.wan().ns.within(|| PORTS.for_each(|port| drop(TcpStream::connect(lab.wan().at(port)))));
        sampled
    })
}

fn listen(host: &Host, port: u16) -> std::io::Result<TcpListener> {
    host.ns.within(|| TcpListener::bind(host.at(port)))
}

/// The server closes first, so that the client's ports are free again at once.
fn serve(listener: &TcpListener, running: &AtomicBool) {
    while running.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else { continue };
        let mut byte = [0];
        if running.load(Ordering::Relaxed) && stream.read_exact(&mut byte).is_ok() {
            let _ = stream.write_all(&byte);
        }
    }
}

fn exchange(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(&[1])?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.len() == 1 { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}
