//! The engine's process: started by the daemon, which talks to it through standard input.

use crate::{
    confine::confine,
    protocol::{self, Order, PORTS_PER_REPORT, Report, Waiting},
    worker::{Started, Worker, now_ns},
};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sched::{CpuSet, sched_setaffinity},
    sys::{
        signal::{SigHandler, Signal, signal},
        time::TimeSpec,
    },
    unistd::Pid,
};
use shunt_bpf::{EngineSide, Size};
use std::{
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::Duration,
};

/// Time between two heartbeats, and two looks at the control socket.
const BEAT_NS: u64 = 20_000_000;
/// Time between two reports of counters.
const REPORT_NS: u64 = 200_000_000;
/// How long the engine looks for packets before it sleeps, if it adapts.
const SPIN_NS: u64 = 50_000;
/// How long an engine that stops sends what it has.
const DRAIN_NS: u64 = 300_000_000;
/// How long it waits for more packets then: those that XDP was about to give to it.
const QUIET_NS: u64 = 20_000_000;

/// Runs the engine until the daemon stops it or is gone.
pub fn run() -> ExitCode {
    let socket = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => socket,
        Err(error) => {
            // Unlike eprintln!, does not panic if standard error cannot be written.
            let _ = writeln!(io::stderr(), "shuntd: the external engine has no control socket: {error}");
            return ExitCode::FAILURE;
        }
    };
    match serve(&socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the daemon is gone, nobody needs to know.
            let _ = protocol::send(socket.as_fd(), &Report::Failed(error.to_string()), &[]);
            ExitCode::FAILURE
        }
    }
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    leave_stopping_to_the_daemon()?;
    let Some((Order::Start { core, waiting, max_flows, ports, zero_copy, qos, copy_vlan }, handles)) =
        protocol::receive(socket)?
    else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    if let Some(core) = core {
        pin(core).map_err(|error| io::Error::other(format!("core {core}: {error}")))?;
    }
    // The hash's seed is in the control block.
    let size = Size { max_flows, seed: 0 };
    let side = EngineSide::open(handles, size).map_err(io::Error::other)?;
    let Started { mut worker, served, failed, zero_copy, refused } =
        Worker::start(side, size, &ports, zero_copy)?;
    confine().map_err(|error| io::Error::other(format!("cannot drop its privileges: {error}")))?;
    let mut wrong = worker.set_qos(&qos);
    wrong.extend(worker.copy_vlan(copy_vlan)?);
    worker.open_queues()?;
    protocol::send(socket.as_fd(), &Report::Ready { served, failed, zero_copy, refused }, &[])?;
    let (mut beat_ns, mut report_ns, mut idle_since) = (0, 0, None);
    loop {
        let busy = worker.turn();
        let now = now_ns();
        if now >= beat_ns {
            worker.beat()?;
            worker.count();
            worker.finish_qos();
            beat_ns = now + BEAT_NS;
            match next_order(socket)? {
                Some(Order::Qos(qos)) => wrong = worker.set_qos(&qos),
                Some(Order::Start { .. }) | None => {}
                Some(Order::Stop) => break,
            }
            let trouble = worker.take_trouble().map(|error| format!("cannot pass packets to Linux: {error}"));
            for warning in wrong.drain(..).chain(trouble) {
                report(socket, &Report::Warning(warning))?;
            }
        }
        if now >= report_ns {
            report_ns = now + REPORT_NS;
            for some in worker.qos_counters().chunks(PORTS_PER_REPORT) {
                report(socket, &Report::Counters(some.to_vec()))?;
            }
        }
        if busy {
            idle_since = None;
        } else if waiting != Waiting::Polls {
            let since = *idle_since.get_or_insert(now);
            if waiting == Waiting::Sleeps || now - since > SPIN_NS {
                sleep(&worker, socket, beat_ns.saturating_sub(now));
            }
        }
    }
    drain(&mut worker);
    Ok(())
}

/// Sends what has been received. XDP gives no more packets to the engine.
fn drain(worker: &mut Worker) {
    worker.close_queues();
    let begun = now_ns();
    let mut quiet_since = begun;
    while now_ns() - begun < DRAIN_NS {
        if worker.turn() || worker.next_send_ns().is_some() {
            quiet_since = now_ns();
        } else if now_ns() - quiet_since > QUIET_NS {
            break;
        }
    }
    worker.count();
}

/// A daemon that does not read its reports misses some.
fn report(socket: &OwnedFd, report: &Report) -> io::Result<()> {
    match protocol::send(socket.as_fd(), report, &[]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        sent => sent,
    }
}

/// The next message, if there is one. A daemon that is gone stops the engine.
fn next_order(socket: &OwnedFd) -> io::Result<Option<Order>> {
    match protocol::receive(socket) {
        Ok(Some((order, _))) => Ok(Some(order)),
        Ok(None) => Ok(Some(Order::Stop)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sleeps until a packet comes, a queue may send, the daemon says something, or the time is over.
fn sleep(worker: &Worker, socket: &OwnedFd, most_ns: u64) {
    let until_send = worker.next_send_ns().map_or(u64::MAX, |at| at.saturating_sub(now_ns()));
    let time = Duration::from_nanos(most_ns.min(until_send));
    if time.is_zero() {
        return;
    }
    let wait = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut fds: Vec<_> = worker.fds().chain([socket.as_fd()]).map(wait).collect();
    // An interrupted wait is only shorter.
    let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None);
}

/// A terminal and a service manager signal all processes of a group. The daemon then stops the engine, which sends what
/// it has.
fn leave_stopping_to_the_daemon() -> nix::Result<()> {
    for which in [Signal::SIGTERM, Signal::SIGINT] {
        // SAFETY: no handler is installed.
        unsafe { signal(which, SigHandler::SigIgn)? };
    }
    Ok(())
}

fn pin(core: u32) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(core as usize)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}
