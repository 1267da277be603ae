//! One TCP stream between hosts with little CPU cost: the sender splices the same pages from a pipe, and the receiver
//! lets the kernel discard the data. Real hosts have CPUs of their own; these hosts share the router's CPU and must not
//! dominate the result.

use crate::rig::{iperf, pinning::pin};
use anyhow::Context;
use nix::{
    fcntl::{FcntlArg, SpliceFFlags, fcntl, splice, tee},
    sys::socket::{MsgFlags, recv},
    unistd::pipe,
};
use serde::Serialize;
use serde_json::Value;
use shunt_lab::iperf::Load;
use shunt_testkit::{Host, Topology};
use std::{
    fs::File,
    io::{self, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// TCP without pacing; every kernel has it.
pub const RENO: &str = "reno";
/// TCP that paces.
pub const BBR: &str = "bbr";

const PORT: u16 = 7100;
/// CPU of sender and receiver: packets sent to a veth are received on the sender's CPU.
const CPU: usize = 1;
/// Size of one call.
const BYTES: usize = 1 << 20;
/// Time for the window to open and for the fast path to learn the connection.
const WARM_UP: Duration = Duration::from_millis(300);

/// The counts of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Bytes received.
    pub bytes: u64,
    /// Duration in ns.
    pub elapsed_ns: u64,
}

impl Sample {
    /// Goodput in bit/s.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Runs one stream, as fast as possible.
pub fn measure(client: &Host, server: &Host, duration: Duration) -> anyhow::Result<Sample> {
    let to = server.at(PORT);
    let listener = server.ns.within(|| TcpListener::bind(to)).context("the receiver")?;
    let source = client.ns.within(|| TcpStream::connect(to)).context("the sender")?;
    let (sink, _) = listener.accept()?;
    let (received, running) = (AtomicU64::new(0), AtomicBool::new(true));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| swallow(&sink, &received));
        // The sender owns the stream. When the sender ends, the stream is closed and the receiver ends.
        let sender = scope.spawn(|| pour(source, &running));
        thread::sleep(WARM_UP);
        let (begun, before) = (Instant::now(), received.load(Ordering::Relaxed));
        thread::sleep(duration);
        let bytes = received.load(Ordering::Relaxed) - before;
        let elapsed_ns = begun.elapsed().as_nanos() as u64;
        running.store(false, Ordering::Relaxed);
        for end in [sender, receiver] {
            end.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(Sample { bytes, elapsed_ns })
    })
}

/// Sets the congestion control of the hosts' TCP. With [`BBR`], a sender that is ahead of its pace sets a timer, and
/// the faster the router, the more often it is. Timers are slow in virtual machines and load the router's CPUs, because
/// the hosts run there too. So benches use [`RENO`].
pub fn congestion_control(lab: &Topology, name: &str) -> io::Result<()> {
    lab.hosts().iter().try_for_each(|host| host.ns.try_sysctl("ipv4/tcp_congestion_control", name))
}

/// Tells both hosts the other's MAC in place of the router's, so that frames arrive without being rewritten.
pub fn join(lab: &Topology) -> anyhow::Result<()> {
    for (host, other) in [(lab.lan(), lab.wan()), (lab.wan(), lab.lan())] {
        let (gateway, mac, nic) = (host.gateway_v4, other.mac, host.nic);
        host.ns.try_run(&format!("ip neigh replace {gateway} lladdr {mac} dev {nic} nud permanent"))?;
    }
    Ok(())
}

/// Runs one iperf3 stream, and returns its goodput in bit/s and its figures.
pub fn iperf3(lab: &Topology, duration: Duration) -> anyhow::Result<(f64, Value)> {
    let arrived = iperf::run(lab.lan(), lab.wan(), false, Load::Tcp, 1, duration)?;
    Ok((arrived.bits_per_second, serde_json::to_value(arrived)?))
}

fn pour(to: TcpStream, running: &AtomicBool) -> anyhow::Result<()> {
    pin(0, CPU)?;
    let [(full, fill), (out, into)] = [pipe()?, pipe()?];
    for end in [&fill, &into] {
        fcntl(end, FcntlArg::F_SETPIPE_SZ(BYTES as i32))?;
    }
    File::from(fill).write_all(&vec![0; BYTES])?;
    while running.load(Ordering::Relaxed) {
        let mut bytes = tee(&full, &into, BYTES, SpliceFFlags::empty())?;
        while bytes > 0 {
            bytes -= splice(&out, None, &to, None, bytes, SpliceFFlags::empty())?;
        }
    }
    Ok(())
}

fn swallow(from: &TcpStream, received: &AtomicU64) -> anyhow::Result<()> {
    pin(0, CPU)?;
    // MSG_TRUNC discards the data; nothing is written to this buffer.
    let mut room = vec![0; BYTES];
    loop {
        match recv(from.as_raw_fd(), &mut room, MsgFlags::MSG_TRUNC)? {
            0 => return Ok(()),
            bytes => received.fetch_add(bytes as u64, Ordering::Relaxed),
        };
    }
}
