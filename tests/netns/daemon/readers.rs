//! Clients who may only read cost the daemon little memory and time, however many they are and whatever they ask, and
//! they do not take the owner's places.

use nix::sys::signal::Signal;
use shunt_api::{Explanation, LongestStep};
use shunt_testkit::{
    NetNs, Process, Shuntd, Stop, Topology, require_root, rulesets, silent_router, wait_for, wait_until,
};
use std::{
    fmt::Write as _,
    fs::{self, Permissions},
    io::Write as _,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The group `daemon`, which may read, and a user without rights.
const GROUP: &str = "1";
const NOBODY: &str = "65534";
/// Readers of each path.
const READERS: usize = 8;
const ENTRIES: usize = 120_000;
/// Clients of root that send most of a large body, and then nothing.
const SENDERS: usize = 30;
const BODY_BYTES: usize = 3_900_000;
/// The most that the daemon may need, besides its program.
const MEMORY_MAX_KIB: u64 = 32 * 1024;
/// The bound for a step is 5 ms; an unoptimised daemon needs more.
const STEP_CPU_MAX_S: f64 = 0.025;
/// CPU time of the event loop's thread for all readers, as a share of the time. An unoptimised daemon needs more.
const LOOP_SHARE_MAX: f64 = 0.15;
const STORM: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(180);
const SOON: Duration = Duration::from_secs(20);

fn daemon_with_readers(lab: &Topology) -> Shuntd {
    let shuntd = Shuntd::on(lab.router()).config(&format!("read_group = \"{GROUP}\"")).start();
    fs::set_permissions(shuntd.directory(), Permissions::from_mode(0o755)).unwrap();
    shuntd
}

fn curl(shuntd: &Shuntd, mut command: Command, arguments: &[&str], path: &str) -> Command {
    command.args(["--silent", "--no-buffer", "--max-time", "170", "--unix-socket"]).arg(shuntd.socket());
    command.args(arguments).arg(format!("http://localhost{path}")).stdin(Stdio::null());
    command
}

/// curl, as a user who may only read.
fn as_reader(shuntd: &Shuntd, arguments: &[&str], path: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", GROUP, "--clear-groups", "curl"]);
    curl(shuntd, command, arguments, path)
}

/// curl, as root.
fn as_owner(shuntd: &Shuntd, arguments: &[&str], path: &str) -> Command {
    curl(shuntd, Command::new("curl"), arguments, path)
}

/// Fills conntrack's table of a namespace. Returns the number of entries.
fn fill_conntrack(router: &NetNs, shuntd: &Shuntd) -> usize {
    let most = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").unwrap();
    let entries = ENTRIES.min(most.trim().parse::<usize>().unwrap() - 1000);
    let mut lines = String::new();
    for n in 0..entries {
        let [_, a, b, c] = (n as u32).to_be_bytes();
        writeln!(
            lines,
            "-A -p udp -s 10.{a}.{b}.{c} -d 192.0.2.2 --sport 4000 --dport 53 -t 3600 -u SEEN_REPLY,ASSURED"
        )
        .unwrap();
    }
    let file = shuntd.directory().join("entries");
    fs::write(&file, lines).unwrap();
    router.run(&format!("conntrack -R {}", file.display()));
    entries
}

fn status_kibibytes(shuntd: &Shuntd, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", shuntd.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU time of the thread that runs the event loop.
fn loop_time(shuntd: &Shuntd) -> Duration {
    let text = fs::read_to_string(format!("/proc/{0}/task/{0}/schedstat", shuntd.pid())).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Reads a path again and again, and counts complete answers.
fn read_on(shuntd: &Shuntd, path: &str, ended: &Stop, complete: &AtomicU64) {
    while !ended.is_set() {
        let mut command = as_reader(shuntd, &["--output", "/dev/null", "-w", "%{http_code}\n"], path);
        command.stdout(Stdio::piped());
        let mut client = Process::start(command);
        while client.ended().is_none() && !ended.is_set() {
            thread::sleep(Duration::from_millis(20));
        }
        if client.ended().is_none() {
            client.signal(Signal::SIGTERM).unwrap();
        }
        let (_, text) = client.finish();
        complete.fetch_add(text.lines().filter(|line| *line == "200").count() as u64, Ordering::Relaxed);
    }
}

/// Begins large requests again and again, and never ends one.
fn send_unfinished(shuntd: &Shuntd, ended: &Stop) {
    let mut request = format!(
        "POST /v1/static HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
    )
    .into_bytes();
    request.resize(request.len() + BODY_BYTES - 1, b'[');
    while !ended.is_set() {
        let clients = (0..SENDERS).filter_map(|_| {
            let mut client = UnixStream::connect(shuntd.socket()).ok()?;
            client.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
            // Most clients wait for their turn.
            let _ = client.write_all(&request);
            Some(client)
        });
        let _open: Vec<UnixStream> = clients.collect();
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn many_readers_of_a_large_table_cost_little_memory_and_time() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon_with_readers(&lab);
    let entries = fill_conntrack(lab.router(), &shuntd);
    let alone = as_reader(&shuntd, &[], "/v1/conntrack").output().unwrap();
    let text = String::from_utf8(alone.stdout).unwrap();
    assert!(alone.status.success(), "{}", alone.status);
    assert_eq!(text.matches("\"protocol\":17").count(), entries);
    drop(text);
    let why = as_reader(&shuntd, &[], "/v1/why").output().unwrap();
    let why: Explanation = serde_json::from_slice(&why.stdout).unwrap();
    assert_eq!(why.connections.len() + why.more as usize, entries);
    // curl repeats a request for each number of the fragment, which is not sent.
    let (ended, paths) = (Stop::default(), ["/v1/conntrack", "/v1/why", "/v1/status#[1-50]"]);
    let complete = paths.map(|_| AtomicU64::new(0));
    let (started, used) = (Instant::now(), loop_time(&shuntd));
    thread::scope(|scope| {
        let _end = ended.on_drop();
        scope.spawn(|| send_unfinished(&shuntd, &ended));
        for (path, complete) in paths.iter().zip(&complete) {
            for _ in 0..READERS {
                scope.spawn(|| read_on(&shuntd, path, &ended, complete));
            }
        }
        thread::sleep(STORM);
        let enough = wait_for(PATIENCE, || {
            let [conntrack, why, status] =
                complete.each_ref().map(|complete| complete.load(Ordering::Relaxed));
            (conntrack + why > 0 && status > 0).then_some(())
        });
        assert!(enough.is_some(), "complete answers: {complete:?}");
    });
    let share = (loop_time(&shuntd) - used).as_secs_f64() / started.elapsed().as_secs_f64();
    // The pages of the program's file are many more in an unoptimised daemon, and are no memory that it keeps from
    // others.
    let most = status_kibibytes(&shuntd, "VmHWM") - status_kibibytes(&shuntd, "RssFile");
    let LongestStep { name, cpu_seconds, .. } = shuntd.status().longest_step.unwrap();
    eprintln!(
        "{entries} entries; complete answers {complete:?}; {most} KiB at most; the event loop used {:.1} % of a CPU; longest step {name}, {:.1} ms",
        share * 100.0,
        cpu_seconds * 1e3
    );
    assert!(most <= MEMORY_MAX_KIB, "the daemon needed {most} KiB");
    assert!(share < LOOP_SHARE_MAX, "the event loop used {:.1} % of a CPU", share * 100.0);
    // Interrupts and a hypervisor add to the time of a step, but seldom to that of many.
    assert!(name != "client" || cpu_seconds < STEP_CPU_MAX_S, "{name} took {cpu_seconds} s of CPU time");
    assert!(!shuntd.log().contains("normal priority"), "{}", shuntd.log());
    shuntd.stop();
}

/// A client that watches, and the files for the head and the body of its answer.
struct Watcher {
    client: Process,
    head: PathBuf,
    body: PathBuf,
}

impl Watcher {
    fn start(shuntd: &Shuntd, name: &str, curl_as: fn(&Shuntd, &[&str], &str) -> Command) -> Self {
        let [head, body] = ["head", "body"].map(|part| shuntd.directory().join(format!("{name}-{part}")));
        for file in [&head, &body] {
            fs::write(file, "").unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
        }
        let arguments = ["--dump-header", head.to_str().unwrap(), "--output", body.to_str().unwrap()];
        let client = Process::start(curl_as(shuntd, &arguments, "/v1/watch"));
        Self { client, head, body }
    }

    /// The code of the answer.
    #[track_caller]
    fn code(&self) -> String {
        let code =
            wait_for(SOON, || fs::read_to_string(&self.head).unwrap().split(' ').nth(1).map(str::to_owned));
        code.expect("no answer")
    }

    fn has(&self, text: &str) -> bool {
        fs::read_to_string(&self.body).unwrap().contains(text)
    }
}

#[test]
fn readers_who_watch_do_not_keep_the_owner_out() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = daemon_with_readers(&lab);
    let mut watching: Vec<Watcher> =
        (0..READERS).map(|n| Watcher::start(&shuntd, &format!("reader{n}"), as_reader)).collect();
    assert!(watching.iter().all(|watcher| watcher.code() == "200"));
    let refused = Watcher::start(&shuntd, "refused", as_reader);
    assert_eq!(refused.code(), "500");
    wait_until("the refusal is complete", || refused.has("other clients are watching"));
    watching.push(Watcher::start(&shuntd, "owner", as_owner));
    assert_eq!(watching[READERS].code(), "200", "the owner cannot watch");
    lab.router().run("ip rule add from 198.51.100.9 lookup main");
    wait_until("all see what happens", || watching.iter().all(|watcher| watcher.has("\"event\":\"epoch\"")));
    assert!(watching.iter_mut().all(|watcher| watcher.client.ended().is_none()), "a client was ended");
    drop(watching);
    shuntd.stop();
}
