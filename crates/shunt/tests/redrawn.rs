//! `shunt status --watch` and `shunt top` with a stand-in for the daemon, which goes away and comes back.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{SlowTable, Status};
use std::{
    env, fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);

/// The program, in the directory above this test's.
fn shunt() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().with_file_name("shunt")
}

/// Starts the command, whose runtime directory is `dir`.
fn start(dir: &Path, words: &[&str]) -> Child {
    Command::new(shunt())
        .args(words)
        .env("SHUNT_RUNTIME_DIR", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("default.sock")
}

/// Answers one request, with the state of a daemon with this process ID or without flows.
fn answer(mut client: UnixStream, pid: u32) {
    let mut request = [0; 4096];
    let read = client.read(&mut request).unwrap();
    let request = String::from_utf8_lossy(&request[..read]);
    let body = match () {
        () if request.contains("/v1/flows") => "[]".to_owned(),
        () if request.contains("/v1/slow") => serde_json::to_string(&SlowTable::default()).unwrap(),
        () => serde_json::to_string(&Status { pid, ..Status::default() }).unwrap(),
    };
    // The command may have ended.
    let _ = write!(client, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
}

fn answer_next(listener: &UnixListener, pid: u32) {
    answer(listener.accept().unwrap().0, pid);
}

/// Answers all requests until the process ends.
fn serve(listener: UnixListener) {
    thread::spawn(move || listener.incoming().for_each(|client| answer(client.unwrap(), 7)));
}

fn next_pid(lines: &mut Lines<BufReader<ChildStdout>>) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    status["pid"].as_u64().unwrap()
}

#[test]
fn a_watch_outlives_the_daemon_and_reports_its_absence_once() {
    let dir = TempDir::new().unwrap();
    let listener = UnixListener::bind(socket(&dir)).unwrap();
    let mut watch = start(dir.path(), &["status", "--watch", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(watch.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        answer_next(&listener, 7);
        assert_eq!(next_pid(&mut lines), 7);
    }
    drop(listener);
    fs::remove_file(socket(&dir)).unwrap();
    let note = notes.next().unwrap().unwrap();
    assert_eq!(note, "shunt: not running; start it with `shunt up`; trying again each second");
    let listener = UnixListener::bind(socket(&dir)).unwrap();
    answer_next(&listener, 8);
    assert_eq!(next_pid(&mut lines), 8);
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(notes.next().is_none());
}

#[test]
fn a_command_ends_without_a_message_when_its_reader_has_ended() {
    let dir = TempDir::new().unwrap();
    let listener = UnixListener::bind(socket(&dir)).unwrap();
    let mut watch = start(dir.path(), &["status", "--watch"]);
    answer_next(&listener, 7);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "nothing can be fast: this instance has no port");
    assert!(lines.next().unwrap().unwrap().contains("pid 7"));
    drop(lines);
    answer_next(&listener, 7);
    let ended = watch.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));

    let mut top = start(dir.path(), &["top", "--once", "--interval", "100ms"]);
    drop(top.stdout.take());
    serve(listener);
    let ended = top.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

#[test]
fn without_a_daemon_they_fail() {
    let dir = TempDir::new().unwrap();
    for words in [&["status", "--watch"], &["top", "--once"]] {
        let ended = start(dir.path(), words).wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(21));
        assert_eq!(ended.stderr, b"shunt: not running; start it with `shunt up`\n");
    }
}

#[test]
fn top_needs_a_terminal_with_a_cursor() {
    let dir = TempDir::new().unwrap();
    let piped = start(dir.path(), &["top"]).wait_with_output().unwrap();
    let message = "shunt: standard output is not a terminal that can move its cursor (a pipe, a file, or TERM=dumb); \
                   print the state once with `shunt top --once`";
    assert_eq!(
        (piped.status.code(), String::from_utf8(piped.stderr).unwrap().trim_end()),
        (Some(2), message)
    );
    let mut dumb = OnTerminal::start(&dir, "dumb");
    assert!(dumb.wait_for(message) && !dumb.has("\x1b["), "{}", dumb.shown());
    assert_eq!(dumb.child.wait().unwrap().code(), Some(2));
}

/// `shunt top` on a terminal of 80 x 24 that `script` makes.
struct OnTerminal {
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    pid_file: PathBuf,
}

/// The sequences that bring back the former screen and the cursor.
const RESTORED: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

impl OnTerminal {
    fn start(dir: &TempDir, term: &str) -> Self {
        let pid_file = dir.path().join("pid");
        // Signals that the test's parent ignores (nohup) would be ignored here, too.
        let shell = format!(
            "stty rows 24 cols 80; echo $$ > {}; exec env --default-signal {} top --interval 100ms",
            pid_file.display(),
            shunt().display()
        );
        let mut child = Command::new("script")
            .args(["-qefc", &shell, "/dev/null"])
            .env("SHUNT_RUNTIME_DIR", dir.path())
            .env("TERM", term)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = shown.clone();
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut part) {
                kept.lock().unwrap().extend_from_slice(&part[..read]);
            }
        });
        Self { child, shown, pid_file }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn has(&self, text: &str) -> bool {
        self.shown().contains(text)
    }

    /// Waits until the terminal has shown this text.
    fn wait_for(&self, text: &str) -> bool {
        let until = Instant::now() + LIMIT;
        while !self.has(text) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        self.has(text)
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn forget(&self) {
        self.shown.lock().unwrap().clear();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(fs::read_to_string(&self.pid_file).unwrap().trim().parse().unwrap())
    }

    /// The exit code, if the terminal was restored.
    #[track_caller]
    fn ended(mut self) -> Option<i32> {
        for end in RESTORED {
            assert!(self.wait_for(end), "{}", self.shown());
        }
        self.child.wait().unwrap().code()
    }
}

#[test]
fn top_restores_the_terminal_whatever_ends_it() {
    let dir = TempDir::new().unwrap();
    serve(UnixListener::bind(socket(&dir)).unwrap());
    for end in [None, Some(Signal::SIGTERM), Some(Signal::SIGHUP), Some(Signal::SIGINT)] {
        let mut top = OnTerminal::start(&dir, "xterm");
        assert!(top.wait_for("packets/s"), "{}", top.shown());
        top.press("4");
        assert!(top.wait_for("meaning"), "{}", top.shown());
        match end {
            None => top.press("q"),
            Some(signal) => kill(top.pid(), signal).unwrap(),
        }
        assert_eq!(top.ended(), Some(0), "{end:?}");
    }
}

#[test]
fn top_waits_for_a_daemon_that_goes_away() {
    let dir = TempDir::new().unwrap();
    let listener = UnixListener::bind(socket(&dir)).unwrap();
    // The requests for the history and for hosts, which this daemon does not have, and the three of the first sample.
    let first = thread::spawn(move || (0..5).for_each(|_| answer_next(&listener, 6)));
    let mut top = OnTerminal::start(&dir, "xterm");
    first.join().unwrap();
    fs::remove_file(socket(&dir)).unwrap();
    assert!(
        top.wait_for("no answer: not running; start it with `shunt up`; trying again"),
        "{}",
        top.shown()
    );
    top.forget();
    serve(UnixListener::bind(socket(&dir)).unwrap());
    assert!(top.wait_for("shunt top"), "{}", top.shown());
    // Ctrl-C is a key in raw mode.
    top.press("\x03");
    assert_eq!(top.ended(), Some(0));
}
