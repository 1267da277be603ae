//! The CPU load of a router of our own: the time of the threads that poll its ports, and of the processes in its
//! namespace.
//!
//! The meter of the whole machine cannot tell the router from the generator, which polls its CPU.

use super::{
    Load, LoadError,
    threads::{PollThreads, RunTime},
};
use crate::{Conditions, net::NetNs};
use std::{
    io,
    thread::available_parallelism,
    time::{Duration, Instant},
};

/// The router's threads and processes.
#[derive(Debug)]
pub(crate) struct RouterLoad {
    ports: Vec<PollThreads>,
    processes: Vec<u32>,
    conditions: Conditions,
}

/// The router's CPU time at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouterMark {
    at: Instant,
    ran: RunTime,
}

impl RouterLoad {
    /// Has the devices of the router and its hosts polled by threads, so that the work of each is told apart. Call it
    /// when the engine is attached.
    pub(crate) fn start(router: &NetNs, ports: &[&str], hosts: &[(&NetNs, &str)]) -> io::Result<Self> {
        let start = |ns: &NetNs, device: &str| {
            let threads = PollThreads::start(ns, device)?;
            threads.go_first().map(|()| threads)
        };
        for (host, nic) in hosts {
            start(host, nic)?;
        }
        let ports = ports.iter().map(|port| start(router, port)).collect::<io::Result<_>>()?;
        let pids = router.try_run(&format!("ip netns pids {}", router.name()))?;
        let processes = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
        // The shell that listed them has ended.
        let processes = processes.filter(|pid| RunTime::of_process(*pid).is_ok()).collect();
        Ok(Self { ports, processes, conditions: Conditions::of_this_machine() })
    }

    pub(crate) fn mark(&self) -> Result<RouterMark, LoadError> {
        let failed = |source| LoadError::System { what: "the CPU time of the router".to_owned(), source };
        let ports = self.ports.iter().map(PollThreads::run_time);
        let all = ports.chain(self.processes.iter().map(|pid| RunTime::of_process(*pid)));
        let ran = all.into_iter().try_fold(RunTime::default(), |sum, one| one.map(|one| sum + one));
        Ok(RouterMark { at: Instant::now(), ran: ran.map_err(failed)? })
    }

    pub(crate) fn since(&self, then: RouterMark) -> Result<Load, LoadError> {
        let now = self.mark()?;
        let took = now.at.duration_since(then.at);
        Ok(load(now.ran.since(then.ran), took, self.conditions.clone()))
    }
}

/// The load of this CPU time within a time, as a share of all CPUs.
fn load(ran: RunTime, took: Duration, conditions: Conditions) -> Load {
    let cpus = available_parallelism().map_or(1, usize::from);
    let of_one_core = ran.ran_ns as f64 / took.as_nanos().max(1) as f64 * 100.0;
    Load {
        seconds: took.as_secs_f64(),
        load_percent: of_one_core / cpus as f64,
        core_percent: Some(of_one_core),
        cpus: Vec::new(),
        doubts: Vec::new(),
        conditions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::time::{ClockId, clock_gettime};

    fn own_cpu_ns() -> u64 {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    }

    #[test]
    fn the_run_time_of_a_busy_loop_is_the_time_that_it_took() {
        // The loop counts its own CPU time, so that other work of the machine does not matter.
        const BUSY_NS: u64 = 60_000_000;
        let (before, began) = (RunTime::of_this_thread().unwrap(), own_cpu_ns());
        while own_cpu_ns() - began < BUSY_NS {}
        let (ran, took) = (RunTime::of_this_thread().unwrap().since(before), own_cpu_ns() - began);
        let apart = ran.ran_ns.abs_diff(took);
        assert!(apart < BUSY_NS / 10, "{ran:?}, by the thread's clock {took} ns");
    }

    #[test]
    fn half_a_core_is_half_of_one_and_less_of_all() {
        let ran = RunTime { ran_ns: 500_000_000, ..RunTime::default() };
        let half = load(ran, Duration::from_secs(1), Conditions::default());
        let cpus = available_parallelism().map_or(1, usize::from) as f64;
        assert_eq!((half.core_percent, half.load_percent), (Some(50.0), 50.0 / cpus));
    }
}
