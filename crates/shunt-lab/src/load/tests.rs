use super::*;
use std::{
    sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Serialises tests with a soaker: two soakers on one CPU would wait for each other.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::black_box(0);
    }
}

#[test]
fn a_cpu_that_never_sleeps_reads_as_full_and_the_meter_yields_to_it() {
    let _alone = alone();
    let mut meter = Meter::start(Some(&[0])).unwrap();
    let begun = Arc::new(Barrier::new(2));
    let begins = begun.clone();
    let busy = thread::spawn(move || {
        soaker::pin(0).unwrap();
        begins.wait();
        // Spin before and after the reading, so that the load covers it.
        spin(Duration::from_millis(1500));
    });
    begun.wait();
    meter.read().unwrap();
    thread::sleep(Duration::from_millis(800));
    let load = meter.read().unwrap();
    busy.join().unwrap();
    let cpu = &load.cpus[0];
    assert!(cpu.load_percent > 98.5, "{cpu:?}");
    assert!(cpu.soaked_percent.is_none_or(|soaked| soaked < 1.5), "{cpu:?}");
    assert!((0.7..2.0).contains(&load.seconds), "{}", load.seconds);
}

#[test]
fn an_error_names_the_missing_cpu_and_the_allowed_ones() {
    let why = Meter::start(Some(&[4095])).unwrap_err().to_string();
    assert!(why.starts_with("CPU 4095 is not online or not allowed here (cpuset); allowed: 0"), "{why}");
}

#[test]
fn the_meter_leaves_no_thread_and_no_group_behind() {
    let _alone = alone();
    let meter = Meter::start(Some(&[0])).unwrap();
    let named = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
            .filter(|comm| comm.trim() == name)
            .count()
    };
    let group = meter._group.as_ref().map(|group| group.to_string());
    assert!(named("shunt-soak-0") > 0);
    meter.stop().unwrap();
    if let Some(group) = group {
        let path = group.strip_prefix("control group ").unwrap();
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
}
