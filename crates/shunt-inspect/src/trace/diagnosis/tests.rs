use super::*;
use crate::trace::{
    abi::*,
    packet::{
        Verdict,
        tests::{FORWARD, LOCAL_IN, LOCAL_OUT, SLOW, hooked, record},
    },
    summary,
    threads::tests::{SERVER, name, received, sleep, softirq, switch, wake},
};
use nix::libc;

const MS: u64 = 1_000_000;
const THREAD: (u32, &str) = (SERVER, "server");

/// A request that a server starts to copy, has read, and answers at these times in microseconds; the answer leaves its
/// qdisc after `queued` us.
fn served(copied: u32, read: u32, answered: u32, queued: u32) -> [Packet; 2] {
    let us = 1000;
    let came = record(
        |record| record.out_ifindex = 0,
        &[
            (TRACE_DRIVER, 0),
            (TRACE_RECEIVE, 5 * us),
            (LOCAL_IN, 6 * us),
            (LOCAL_IN + 1, 7 * us),
            (TRACE_COPY, copied * us),
            (TRACE_READ, read * us),
        ],
    );
    let sent = record(
        |record| {
            record.began_ns += u64::from(answered * us);
            (record.flags, record.in_ifindex) = (TRACE_LOCAL_OUT, 0);
            (record.r#in.src_be, record.r#in.dst_be) = (record.r#in.dst_be, record.r#in.src_be);
            (record.r#in.sport_be, record.r#in.dport_be) = (record.r#in.dport_be, record.r#in.sport_be);
            record.qdisc[..3].copy_from_slice(b"tbf");
        },
        &[
            (LOCAL_OUT, 0),
            (TRACE_QUEUE, us),
            (TRACE_START, (1 + queued) * us),
            (TRACE_XMIT, (2 + queued) * us),
        ],
    );
    let mut packets = [came, sent].map(|bytes| Packet::from_record(&bytes, &hooked()).unwrap());
    for step in packets.iter_mut().flat_map(|packet| &mut packet.steps) {
        (step.id, step.thread) = (SERVER, name("server"));
    }
    packets
}

fn diagnosed(packets: &[Packet], events: Vec<TraceSwitch>) -> Diagnosis {
    diagnosed_with(packets, events, None)
}

/// `full_queue` is the only CPU whose queue was full.
fn diagnosed_with(packets: &[Packet], events: Vec<TraceSwitch>, full_queue: Option<u32>) -> Diagnosis {
    let (answered, single) = summary::answers(packets);
    let threads = Threads::new(events, &BTreeMap::from([(SERVER, 0)]));
    let reasons = [(6, "SOCKET_RCVBUFF"), (12, "NETFILTER_DROP"), (70, "CPU_BACKLOG")];
    let reasons = BTreeMap::from(reasons.map(|(number, name)| (number, name.to_owned())));
    let evidence = Evidence {
        single: &single,
        answered: &answered,
        round_trips: &summary::round_trips(packets, true),
        threads: &threads,
        reasons: &reasons,
        full_queue,
        firewall: None,
    };
    diagnose(&evidence, &|index| format!("p{index}"))
}

#[track_caller]
fn likely(packets: &[Packet], events: Vec<TraceSwitch>) -> Culprit {
    let found = diagnosed(packets, events);
    found.likely.clone().unwrap_or_else(|| panic!("no cause: {found:#?}")).culprit
}

fn server() -> String {
    "server".to_owned()
}

#[test]
fn nothing_wrong_names_nobody_and_says_what_took_longest() {
    let found = diagnosed(&served(50, 52, 80, 1), vec![switch(41_000, (0, "swapper/1"), THREAD)]);
    assert_eq!(found.likely, None);
    assert!(found.longest.is_some() && found.losses.is_empty());
    // Half of the time is not enough if it is short, and a long time is not if others are as long.
    let mut packets = served(50, 52, 10_000, 10_000).to_vec();
    packets.extend(served(50, 10_000, 10_010, 1));
    assert_eq!(diagnosed(&packets, Vec::new()).likely, None);
    assert_eq!(diagnosed(&[], Vec::new()).likely, None);
}

#[test]
fn time_about_which_nothing_is_known_blames_nobody() {
    let mut packets = served(50, 52, 20_000, 1).to_vec();
    packets.iter_mut().flat_map(|packet| &mut packet.steps).for_each(|step| step.id = 99);
    let found = diagnosed(&packets, Vec::new());
    assert!(found.likely.is_none() && found.unknown > 0.9, "{found:#?}");
}

#[test]
fn a_qdisc_that_holds_answers_is_named_with_its_device() {
    let queued = likely(&served(50, 52, 80, 20_000), Vec::new());
    assert_eq!(queued, Culprit::Qdisc { qdisc: "tbf".to_owned(), device: "p3".to_owned() });
}

#[test]
fn a_qdisc_of_a_router_is_named_by_its_kind() {
    let late =
        SLOW.map(|(stage, after)| (stage, if stage == TRACE_START { 20_000_000 } else { after.min(800) }));
    let bytes = record(|record| record.qdisc[..5].copy_from_slice(b"netem"), &late[..10]);
    let packet = Packet::from_record(&bytes, &hooked()).unwrap();
    let expected = Culprit::Qdisc { qdisc: "netem".to_owned(), device: "p3".to_owned() };
    assert_eq!(likely(&[packet], Vec::new()), expected);
}

#[test]
fn who_has_the_cpu_is_named_and_an_idle_one_is_not() {
    let hog = (20, "hog");
    let events = vec![
        sleep(0, THREAD, libc::SYS_recvfrom),
        wake(7000, (3, "client"), libc::SYS_sendto, THREAD),
        switch(15 * MS, hog, (30, "cron")),
        switch(16 * MS, (30, "cron"), hog),
        switch(20 * MS, hog, THREAD),
    ];
    let expected = Culprit::Cpu { thread: server(), holder: Some("hog".to_owned()) };
    assert_eq!(likely(&served(20_001, 20_002, 20_003, 1), events), expected);
}

#[test]
fn sleeping_between_reading_and_writing_is_told_from_a_lock() {
    let packets = served(50, 52, 20_000, 1);
    let slept =
        |call, waker| vec![sleep(60_000, THREAD, call), waker, switch(20 * MS, (0, "swapper/1"), THREAD)];
    let by = |waker: (u32, &str), call| wake(20 * MS - 1000, waker, call, THREAD);
    let timer = || by((0, "swapper/1"), -1);
    let nap = Culprit::Sleep { thread: server(), call: "clock_nanosleep".to_owned() };
    assert_eq!(likely(&packets, slept(libc::SYS_clock_nanosleep, timer())), nap);
    // Thread 11 is of the same process, thread 20 is not.
    let lock = Culprit::Lock { thread: server(), holder: "holder".to_owned() };
    assert_eq!(likely(&packets, slept(libc::SYS_futex, by((11, "holder"), libc::SYS_futex))), lock);
    let timed = Culprit::Sleep { thread: server(), call: "futex".to_owned() };
    assert_eq!(likely(&packets, slept(libc::SYS_futex, timer())), timed);
    let backend = Culprit::Blocked {
        thread: server(),
        call: "recvfrom".to_owned(),
        waker: Some("database".to_owned()),
    };
    assert_eq!(likely(&packets, slept(libc::SYS_recvfrom, by((20, "database"), libc::SYS_sendto))), backend);
}

#[test]
fn copying_in_the_receive_call_is_told_from_running_after_it() {
    let fault = vec![sleep(60_000, THREAD, libc::SYS_recvfrom), switch(20 * MS, (0, "swapper/1"), THREAD)];
    assert_eq!(likely(&served(50, 20_010, 20_020, 1), fault), Culprit::Copy { thread: server() });
    assert_eq!(likely(&served(50, 20_010, 20_020, 1), Vec::new()), Culprit::Copy { thread: server() });
    assert_eq!(likely(&served(50, 52, 20_000, 1), Vec::new()), Culprit::Program { thread: server() });
}

#[test]
fn a_cgroup_without_cpu_time_is_named() {
    let mut throttled = switch(60_000, THREAD, (20, "other"));
    throttled.flags |= TRACE_THROTTLED;
    throttled.cgroup[..4].copy_from_slice(b"tiny");
    let events = vec![throttled, switch(20 * MS, (20, "other"), THREAD)];
    let expected = Culprit::Throttled { thread: server(), cgroup: "tiny".to_owned() };
    assert_eq!(likely(&served(50, 52, 20_010, 1), events), expected);
}

#[test]
fn softirqs_are_named_whether_packets_or_threads_wait_for_them() {
    let busy = vec![softirq(10 * MS, 9 * MS), softirq(20 * MS, 9 * MS)];
    let running = [vec![switch(1, (0, "swapper/1"), THREAD)], busy].concat();
    let known = Culprit::Softirq { cpu: Some(1), work: Some(received()) };
    assert_eq!(likely(&served(50, 52, 20_000, 1), running), known);
    let late =
        [(TRACE_DRIVER, 0), (TRACE_RECEIVE, 20_000_000), (LOCAL_IN, 20_001_000), (TRACE_TCP, 20_002_000)];
    let packet = Packet::from_record(&record(|record| record.out_ifindex = 0, &late), &hooked()).unwrap();
    let unknown = Culprit::Softirq { cpu: Some(0), work: None };
    let packets = std::slice::from_ref(&packet);
    assert_eq!(likely(packets, Vec::new()), unknown);
    // What a CPU does is told only if it took most of the time.
    let at = |cpu, took_ns| TraceSwitch { cpu, ..softirq(packet.began_ns + 15 * MS, took_ns) };
    assert_eq!(likely(packets, vec![at(0, 5 * MS), at(1, 14 * MS)]), unknown);
    let known = Culprit::Softirq { cpu: Some(0), work: Some(received()) };
    assert_eq!(likely(packets, vec![at(0, 14 * MS)]), known);
}

#[test]
fn drops_are_named_first_if_they_are_many() {
    let drop = |reason, set: fn(&mut TraceRecord), at| {
        let events = [(TRACE_DRIVER, 0), (TRACE_RECEIVE, 100), (at, 200), (TRACE_FREED, 300)];
        let change = |record: &mut TraceRecord| {
            (record.end, record.reason, record.out_ifindex) = (TRACE_DROPPED, reason, 0);
            set(record);
        };
        Packet::from_record(&record(change, &events), &hooked()).unwrap()
    };
    let by_chain = |record: &mut TraceRecord| {
        record.verdict = TRACE_BY_CHAIN;
        record.table[..3].copy_from_slice(b"fw4");
        record.chain[..4].copy_from_slice(b"rate");
    };
    let rule = |chain: Option<&str>| Culprit::Rule {
        hook: "forward".to_owned(),
        chain: chain.map(str::to_owned),
        part: None,
    };
    assert_eq!(likely(&[drop(12, by_chain, FORWARD)], Vec::new()), rule(Some("fw4 rate")));
    assert_eq!(likely(&[drop(12, |_| (), FORWARD)], Vec::new()), rule(None));
    let conntrack = drop(12, |record| record.verdict = TRACE_BY_CONNTRACK, FORWARD);
    assert_eq!(conntrack.verdict, Some(Verdict::Conntrack));
    assert_eq!(likely(&[conntrack], Vec::new()), Culprit::Conntrack);
    let full = drop(6, |_| (), LOCAL_IN);
    let socket = Culprit::SocketBuffer { socket: "udp 198.51.100.2:53".to_owned() };
    assert_eq!(likely(std::slice::from_ref(&full), Vec::new()), socket);
    let by_table = |record: &mut TraceRecord| {
        record.verdict = TRACE_BY_TABLE;
        record.table[..6].copy_from_slice(b"filter");
    };
    let table = Culprit::Table { hook: "forward".to_owned(), table: "filter".to_owned() };
    assert_eq!(likely(&[drop(12, by_table, FORWARD)], Vec::new()), table);
    let queue = drop(70, |_| (), TRACE_DRIVER);
    assert_eq!(likely(std::slice::from_ref(&queue), Vec::new()), Culprit::Softirq { cpu: None, work: None });
    let found = diagnosed_with(&[queue], vec![softirq(15 * MS, 9 * MS)], Some(1));
    let known = Culprit::Softirq { cpu: Some(1), work: Some(received()) };
    assert_eq!(found.likely.unwrap().culprit, known);
    assert_eq!(likely(&[drop(99, |_| (), 0)], Vec::new()), Culprit::Drop { reason: "reason 99".to_owned() });
    // One lost packet in many is not why the others are slow; it is listed all the same.
    let mut packets: Vec<Packet> = (0..20).flat_map(|_| served(50, 52, 20_000, 1)).collect();
    packets.push(full);
    let found = diagnosed(&packets, Vec::new());
    assert_eq!(found.likely.unwrap().culprit, Culprit::Program { thread: server() });
    assert_eq!(found.losses.len(), 1);
}

#[test]
fn what_another_thread_sends_counts_from_when_it_was_woken() {
    let packets = served(50, 52, 20_000, 1);
    let mut handed = packets.clone();
    // The reader computes for 15 ms, then wakes the thread that answers.
    for step in &mut handed[0].steps {
        (step.id, step.thread) = (11, name("reader"));
    }
    handed[1].steps[0].stage = "tcp-out";
    let (answered, single) = summary::answers(&handed);
    let events =
        vec![sleep(0, THREAD, libc::SYS_futex), wake(15 * MS, (11, "reader"), libc::SYS_futex, THREAD)];
    let threads = Threads::new(events, &BTreeMap::from([(SERVER, 0), (11, 0)]));
    let evidence = Evidence {
        single: &single,
        answered: &answered,
        round_trips: &[],
        threads: &threads,
        reasons: &BTreeMap::new(),
        full_queue: None,
        firewall: None,
    };
    let found = diagnose(&evidence, &|index| index.to_string()).likely.unwrap();
    assert_eq!(found.culprit, Culprit::Program { thread: "reader".to_owned() });
}
