//! One TCP stream between hosts that cost little: the sender's bytes are pages that a pipe holds, and the receiver has the kernel throw them
//! away. A router's hosts have CPUs of their own; these share the router's one, and are not what is to be measured.

use crate::napi::pin;
use anyhow::Context;
use nix::{
    fcntl::{FcntlArg, SpliceFFlags, fcntl, splice, tee},
    sys::socket::{MsgFlags, recv},
    unistd::pipe,
};
use serde::Serialize;
use shunt_testkit::Host;
use std::{
    fs::File,
    io::Write,
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const PORT: u16 = 7100;
/// Of all: what a veth is sent goes up on the sender's CPU.
const CPU: usize = 1;
/// Of one call.
const BYTES: usize = 1 << 20;
/// For the window to open, and for the fast path to have learned.
const WARM_UP: Duration = Duration::from_millis(300);

/// What was seen in one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// That arrived.
    pub bytes: u64,
    /// How long it took.
    pub elapsed_ns: u64,
}

impl Sample {
    /// Goodput.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.elapsed_ns.max(1) as f64
    }
}

/// One run, as fast as it goes.
pub fn measure(client: &Host, server: &Host, duration: Duration) -> anyhow::Result<Sample> {
    let to = server.at(PORT);
    let listener = server.ns.within(|| TcpListener::bind(to)).context("the receiver")?;
    let source = client.ns.within(|| TcpStream::connect(to)).context("the sender")?;
    let (sink, _) = listener.accept()?;
    let (received, running) = (AtomicU64::new(0), AtomicBool::new(true));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| swallow(&sink, &received));
        // It owns the stream, which ends with it, and with that the receiver.
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
    // Nothing is written there.
    let mut room = vec![0; BYTES];
    loop {
        match recv(from.as_raw_fd(), &mut room, MsgFlags::MSG_TRUNC)? {
            0 => return Ok(()),
            bytes => received.fetch_add(bytes as u64, Ordering::Relaxed),
        };
    }
}
