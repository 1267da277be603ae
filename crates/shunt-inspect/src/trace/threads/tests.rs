use super::*;

pub(crate) const SERVER: u32 = 10;

pub(crate) fn name(text: &str) -> Thread {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    Thread(name)
}

fn event(at_ns: u64, kind: u32, from: (u32, &str), to: (u32, &str)) -> TraceSwitch {
    TraceSwitch {
        at_ns,
        kind,
        from: from.0,
        to: to.0,
        from_process: from.0 / 10,
        to_process: to.0 / 10,
        call: -1,
        cpu: 1,
        from_comm: name(from.1).0,
        to_comm: name(to.1).0,
        ..TraceSwitch::default()
    }
}

pub(crate) fn switch(at_ns: u64, from: (u32, &str), to: (u32, &str)) -> TraceSwitch {
    TraceSwitch { flags: TRACE_RUNNABLE, ..event(at_ns, TRACE_SWITCH, from, to) }
}

pub(crate) fn sleep(at_ns: u64, from: (u32, &str), call: i64) -> TraceSwitch {
    TraceSwitch { call: call as i32, ..event(at_ns, TRACE_SWITCH, from, (0, "swapper/1")) }
}

pub(crate) fn wake(at_ns: u64, from: (u32, &str), call: i64, to: (u32, &str)) -> TraceSwitch {
    TraceSwitch { call: call as i32, ..event(at_ns, TRACE_WAKE, from, to) }
}

pub(crate) fn softirq(at_ns: u64, took_ns: u64) -> TraceSwitch {
    let mut event = event(at_ns, TRACE_SOFTIRQ, (0, "swapper/1"), (0, "swapper/1"));
    event.device[..4].copy_from_slice(b"eth9");
    TraceSwitch { took_ns, vector: 3, ..event }
}

/// What [`softirq`] did.
pub(crate) fn received() -> SoftirqWork {
    SoftirqWork { vector: "NET_RX".to_owned(), device: Some("eth9".to_owned()), foreign: false }
}

fn threads(events: Vec<TraceSwitch>) -> Threads {
    Threads::new(events, &BTreeMap::from([(SERVER, 0)]))
}

#[test]
fn the_time_of_a_wait_belongs_to_those_who_had_the_cpu() {
    let server = (SERVER, "server");
    let all = threads(vec![
        sleep(100, server, 0),
        wake(1000, (3, "swapper/0"), -1, server),
        switch(1400, (20, "hog"), (30, "cron")),
        switch(1500, (30, "cron"), (20, "hog")),
        switch(2000, (20, "hog"), server),
    ]);
    let waited = all.between(SERVER, 1000, 2500);
    let expected = [
        (Doing::Running, 500),
        (Doing::Waiting { holder: Some(name("cron")) }, 100),
        (Doing::Waiting { holder: Some(name("hog")) }, 900),
    ];
    assert_eq!(waited, expected);
    let slept = all.between(SERVER, 0, 1000);
    assert_eq!(slept[0], (Doing::Running, 100));
    assert!(matches!(slept[1], (Doing::Sleeping { call: 0, waker: Some(Waker { id: 3, .. }) }, 900)));
}

#[test]
fn softirqs_take_their_time_from_who_had_the_cpu() {
    let server = (SERVER, "server");
    let all = threads(vec![switch(100, (5, "ksoftirqd/1"), server), softirq(700, 300)]);
    let softirq = |work| Doing::Softirq { cpu: 1, work };
    let expected = [(Doing::Running, 600), (softirq(None), 100), (softirq(Some(received())), 300)];
    assert_eq!(all.between(SERVER, 0, 1000), expected);
}

#[test]
fn a_throttled_thread_waits_for_its_cgroup_and_not_for_the_cpu() {
    let server = (SERVER, "server");
    let mut throttled = switch(100, server, (20, "hog"));
    throttled.flags |= TRACE_THROTTLED;
    throttled.cgroup[..4].copy_from_slice(b"slow");
    let all = threads(vec![throttled, switch(900, (20, "hog"), server)]);
    let expected = [(Doing::Running, 200), (Doing::Throttled { cgroup: "slow".to_owned() }, 800)];
    assert_eq!(all.between(SERVER, 0, 1000), expected);
}

#[test]
fn the_time_before_a_thread_was_followed_is_unknown() {
    let all = Threads::new(Vec::new(), &BTreeMap::from([(SERVER, 400)]));
    assert_eq!(all.between(SERVER, 0, 1000), [(Doing::Running, 600), (Doing::Unknown, 400)]);
    assert_eq!(all.between(99, 0, 1000), [(Doing::Unknown, 1000)]);
}
