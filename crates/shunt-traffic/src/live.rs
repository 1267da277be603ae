//! Runs a program on live frames: one call into the kernel that offers it frame after frame.

use crate::{Error, missing};
use libbpf_rs::Object;
use nix::sys::{
    pthread::{pthread_kill, pthread_self},
    signal::Signal,
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Frames to offer in one call into the kernel: enough for minutes.
const OFFERED_MAX: u32 = i32::MAX as u32;
/// How often to check whether a call is over.
const LOOK_EACH: Duration = Duration::from_millis(1);
/// The signal that interrupts a call. Its default action is to be ignored.
const WAKE: Signal = Signal::SIGURG;

/// A program, and the frames that it is offered.
pub(crate) struct LiveFrames<'f> {
    program: OwnedFd,
    /// The bytes of each frame.
    frame: &'f [u8],
    /// Number of frames that the kernel builds before it passes them on and lets other threads run.
    batch: u32,
}

impl<'f> LiveFrames<'f> {
    /// Frames for the only program of an object.
    pub(crate) fn of(object: &Object, frame: &'f [u8], batch: u32) -> Result<Self, Error> {
        let program = object.progs().next().ok_or_else(|| missing("the program"))?;
        let program = program
            .as_fd()
            .try_clone_to_owned()
            .map_err(|cause| Error { doing: "duplicating a descriptor".to_owned(), cause: cause.into() })?;
        Ok(Self { program, frame, batch })
    }

    /// Offers frames until `over` is true, which is checked once per millisecond.
    ///
    /// This is a single call into the kernel, since each call ends with an RCU grace period, which takes tens of
    /// milliseconds and in which nothing is sent. A signal to this thread ends the call.
    pub(crate) fn offer(&self, over: impl Fn() -> Result<bool, Error> + Sync) -> Result<(), Error> {
        handle_wake_signal()?;
        let (sender, ended) = (pthread_self(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Repeat the signal: one that arrives before the call has begun is lost.
                while !ended.load(Ordering::Acquire) {
                    if over().unwrap_or(true) {
                        // Cannot fail: the sender waits for this thread.
                        let _ = pthread_kill(sender, WAKE);
                    }
                    thread::sleep(LOOK_EACH);
                }
            });
            let offered = loop {
                match over() {
                    Ok(true) => break Ok(()),
                    Err(e) => break Err(e),
                    Ok(false) => {}
                }
                if let Err(e) = self.turn(OFFERED_MAX) {
                    break Err(e);
                }
            };
            ended.store(true, Ordering::Release);
            offered
        })
    }

    /// Offers this many frames. A signal ends the call early.
    pub(crate) fn turn(&self, frames: u32) -> Result<(), Error> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            repeat: frames as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: self.batch,
            ..Default::default()
        };
        // SAFETY: the descriptor is open as long as `program` exists, `data_in` has `data_size_in` bytes, there is no
        // output, and libbpf reads at most `sz` bytes of the options.
        let err = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        if err == 0 || err == -nix::libc::EINTR {
            return Ok(());
        }
        let cause = io::Error::from_raw_os_error(-err);
        Err(Error {
            doing: format!("sending live frames of {} bytes", self.frame.len()),
            cause: cause.into(),
        })
    }
}

/// Installs a handler for the signal that does nothing, so that the signal interrupts a call into the kernel.
fn handle_wake_signal() -> Result<(), Error> {
    static HANDLED: OnceLock<io::Result<()>> = OnceLock::new();
    let handled = HANDLED.get_or_init(|| {
        signal_hook::flag::register(WAKE as i32, Arc::new(AtomicBool::new(false))).map(|_| ())
    });
    handled
        .as_ref()
        .map_err(|e| Error { doing: format!("handling {WAKE}"), cause: io::Error::from(e.kind()).into() })?;
    Ok(())
}
