//! The command as a process. A script stands in for the daemon; it only starts and ends.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod tree;

use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::Pid,
};
use shunt_lab::net::reset_ignored_signals_in_children;
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::symlink, net::UnixListener},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use tree::{package, shunt};

/// A directory with the command, the stand-in for the daemon, and a runtime directory.
struct Sandbox {
    dir: TempDir,
}

/// The outcome of a command.
struct Ran {
    code: i32,
    out: String,
    err: String,
    /// The arguments of the daemon; none if it was not started.
    args: Option<String>,
}

impl Sandbox {
    fn new() -> Self {
        // Use the file system of the build, so that the command can be linked. A copy could still be open for writing
        // in a child of another thread, and could then not be executed.
        let dir = TempDir::new_in(shunt().parent().unwrap()).unwrap();
        fs::hard_link(shunt(), dir.path().join("shunt")).unwrap();
        symlink(package().join("tests/stand-in/shuntd"), dir.path().join("shuntd")).unwrap();
        Self { dir }
    }

    fn run(&self, line: &str, says: &str, exits: u8) -> Ran {
        self.run_loading(line, says, exits, 0)
    }

    fn run_loading(&self, line: &str, says: &str, exits: u8, seconds: u32) -> Ran {
        let kept = self.dir.path().join("kept");
        let Output { status, stdout, stderr } = Command::new(self.dir.path().join("shunt"))
            .args(line.split_whitespace())
            .env("SHUNT_RUNTIME_DIR", self.dir.path().join("run"))
            .env("STAND_IN_KEEPS", &kept)
            .env("STAND_IN_SAYS", says)
            .env("STAND_IN_EXITS", exits.to_string())
            .env("STAND_IN_LOADS", seconds.to_string())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let args = fs::read_to_string(&kept).ok().map(|args| args.trim_end().to_owned());
        Ran { code: status.code().unwrap(), out: text(stdout), err: text(stderr), args }
    }
}

#[test]
fn a_failure_of_the_daemon_becomes_the_failure_of_up() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run("up --port eth7 --engine xdp --instance lab", "shuntd: eth7: no such device", 13);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (13, "", "shunt: eth7: no such device\n"));
    assert_eq!(ran.args.unwrap(), "--instance lab --engine xdp --port eth7");
    let log = sandbox.dir.path().join("run/lab.log");
    assert!(!log.exists(), "the message was shown");
    // Messages of an earlier daemon are ignored.
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(&log, "shuntd: eth7: no such device\n").unwrap();
    let ran = sandbox.run("up --instance lab --json", "shuntd: no BTF", 11);
    let body = "{\"error\":{\"code\":\"no-btf\",\"message\":\"no BTF\"}}\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (11, "", body));
}

#[test]
fn up_waits_for_a_slow_daemon_and_reports_its_failure() {
    let sandbox = Sandbox::new();
    // Longer than the timeout of two requests.
    let ran = sandbox.run_loading("up", "shuntd: the verifier refused it", 12, 54);
    let pid = ran.err.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty()).unwrap();
    let log = sandbox.dir.path().join("run/default.log");
    let err = format!(
        "shuntd (pid {pid}) is still starting; its log: {}\nshunt: the verifier refused it\n",
        log.display()
    );
    assert_eq!((ran.code, ran.out.as_str(), ran.err), (12, "", err));
}

#[test]
fn in_the_foreground_the_daemon_replaces_the_command() {
    let ran = Sandbox::new().run("up --foreground --port eth0", "shuntd: hello", 33);
    assert_eq!((ran.code, ran.err.as_str()), (33, "shuntd: hello\n"));
    assert_eq!(ran.args.unwrap(), "--instance default --port eth0");
}

#[test]
fn down_without_a_daemon_cleans_up_after_a_crash() {
    let sandbox = Sandbox::new();
    // The log that it has left says that it ran.
    fs::create_dir_all(sandbox.dir.path().join("run")).unwrap();
    fs::write(sandbox.dir.path().join("run/lab.log"), "").unwrap();
    let ran = sandbox.run("down --instance lab", "", 0);
    assert_eq!((ran.code, ran.out.as_str()), (0, "not running, nothing left in the kernel\n"));
    assert_eq!(ran.args.unwrap(), "--cleanup --instance lab");
    let ran = sandbox.run("down --instance lob", "", 0);
    assert_eq!((ran.code, ran.out.as_str()), (21, ""));
    assert_eq!(
        ran.err,
        "shunt: instance `lob` has never run on this machine: check its name; no instance runs here\n"
    );
    let ran = sandbox.run("down --json", "", 0);
    let body: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(body, serde_json::json!({"was_running": false, "killed": false, "pid": null}));
    let ran = sandbox.run("down", "shuntd: it needs root", 10);
    assert_eq!((ran.code, ran.err.as_str()), (10, "shunt: it needs root\n"));
}

#[test]
fn without_a_daemon_every_command_reports_how_to_start_it() {
    let sandbox = Sandbox::new();
    for line in ["status", "flows", "flush", "flow list", "flow del --all"] {
        let ran = sandbox.run(line, "", 0);
        assert_eq!(ran.code, 21, "{line}");
        assert_eq!(ran.err, "shunt: not running; start it with `shunt up`\n");
        assert_eq!((ran.out.as_str(), ran.args), ("", None));
    }
    let ran = sandbox.run("status --instance lab", "", 0);
    assert_eq!(ran.err, "shunt: instance `lab` is not running; start it with `shunt up --instance lab`\n");
    let ran = sandbox.run("status --json", "", 0);
    let body: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((ran.code, &body["error"]["code"]), (21, &"not-running".into()));
    let ran = sandbox.run("status -v", "", 0);
    assert!(ran.err.contains("\n  because No such file"), "{}", ran.err);
}

#[test]
fn without_a_command_the_next_ones_are_named() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run("", "", 0);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.args.as_deref(), Some("--list-ports"));
    assert!(ran.out.starts_with("not running\n  shunt probe "), "{}", ran.out);
    assert!(ran.out.contains("  start on all ports that forwarding uses"), "{}", ran.out);
    let ran = sandbox.run("--instance lab --json", "", 0);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let body: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(body, serde_json::json!({"state": "stopped", "instance": "lab", "ports": []}));
}

#[test]
fn a_dry_run_and_a_probe_ask_the_daemon_and_fail_with_its_message() {
    let sandbox = Sandbox::new();
    for (line, args) in [
        ("up --dry-run --port eth7 --instance lab", "--dry-run --instance lab --port eth7"),
        ("probe --engine tc", "--probe --instance default --engine tc"),
    ] {
        let ran = sandbox.run(line, "shuntd: eth7: no such device", 13);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (13, "", "shunt: eth7: no such device\n"));
        assert_eq!(ran.args.as_deref(), Some(args));
        assert!(!sandbox.dir.path().join("run").exists(), "{line} leaves a log");
        let ran = sandbox.run(line, "", 0);
        assert!(ran.code == 70 && ran.err.contains("of different versions"), "{line}: {}", ran.err);
    }
}

#[test]
fn a_wrong_answer_of_the_daemon_is_reported_with_the_instance() {
    let sandbox = Sandbox::new();
    let run = sandbox.dir.path().join("run");
    fs::create_dir(&run).unwrap();
    let listener = UnixListener::bind(run.join("default.sock")).unwrap();
    let daemon = thread::spawn(move || {
        for answer in [
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
            "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        ] {
            let (mut client, _) = listener.accept().unwrap();
            // Read the request first: closing a socket with unread data would cut off the answer.
            let mut request = [0; 4096];
            assert!(client.read(&mut request).unwrap() > 0);
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    for why in ["it closed the connection", "unexpected answer", "unexpected answer"] {
        let ran = sandbox.run("status", "", 0);
        assert_eq!(ran.code, 70, "{}", ran.err);
        assert!(
            ran.err.starts_with(&format!("shunt: the daemon of instance `default`: {why}")),
            "{}",
            ran.err
        );
    }
    daemon.join().unwrap();
}

#[test]
fn load_prints_one_line_of_json_per_interval_until_a_signal() {
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let mut load = load("--interval 100ms --json");
        let mut lines = BufReader::new(load.stdout.take().unwrap()).lines();
        // The intervals end at fixed times: one that ends late makes the next one shorter.
        let mut seconds = 0.0;
        for _ in 0..2 {
            let value: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            seconds += value["seconds"].as_f64().unwrap();
            let cpu = &value["cpus"][0];
            assert!((0.0..=100.0).contains(&cpu["load_percent"].as_f64().unwrap()), "{value}");
            assert!(cpu["taken_percent"].is_number() && value["conditions"]["kernel"].is_string(), "{value}");
        }
        assert!((0.19..10.0).contains(&seconds), "{seconds}");
        assert_eq!(ended_by(signal, load), Some(0), "{signal}");
    }
}

#[test]
fn load_with_a_count_exits_with_the_code_of_the_signal_that_interrupts_it() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut load = load("--interval 100ms --count 1000 --json");
        let mut lines = BufReader::new(load.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with('{'));
        assert_eq!(ended_by(signal, load), Some(code), "{signal}");
    }
}

#[test]
fn a_self_test_that_is_interrupted_leaves_nothing_behind() {
    let mut test = load("--self-test");
    // The thread of the meter is the third.
    let tasks = format!("/proc/{}/task", test.id());
    while fs::read_dir(&tasks).unwrap().count() < 3 {
        assert_eq!(test.try_wait().unwrap(), None);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ended_by(Signal::SIGTERM, test), Some(143));
}

fn load(words: &str) -> Child {
    reset_ignored_signals_in_children();
    Command::new(shunt())
        .args(["load", "--cpu", "0"])
        .args(words.split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs some of these tests again in a process that ignores signals, as `nohup` and background jobs of a script do.
#[test]
fn load_ends_on_signals_that_its_parent_ignores() {
    let tests = ["load_prints_one_line", "load_with_a_count", "a_self_test_that_is_interrupted"];
    let ended = Command::new("sh")
        .args(["-c", "trap '' HUP INT QUIT; exec timeout -k 5 120 \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(tests)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && output.contains(" 3 passed"), "{}: {output}", ended.status);
}

#[test]
fn load_ends_on_signals_that_its_parent_blocks() {
    let blocked = SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]);
    blocked.thread_block().unwrap();
    let started = load("--interval 100ms --count 1000 --json");
    blocked.thread_unblock().unwrap();
    let mut load = started;
    let mut lines = BufReader::new(load.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with('{'));
    assert_eq!(ended_by(Signal::SIGTERM, load), Some(143));
}

/// Sends the signal and returns the exit code. Fails if a control group is left behind.
fn ended_by(signal: Signal, mut load: Child) -> Option<i32> {
    let pid = load.id();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    let ended = load.wait().unwrap();
    let groups = fs::read_dir("/sys/fs/cgroup/cpu").into_iter().flatten().flatten();
    let ours = format!("shunt-load-{pid}-");
    let left: Vec<_> =
        groups.filter(|group| group.file_name().to_string_lossy().starts_with(&ours)).collect();
    assert!(left.is_empty(), "{left:?}");
    ended.code()
}

#[test]
fn a_full_standard_error_does_not_change_the_exit_code() {
    let ended = Command::new(shunt())
        .args(["line", "--frame", "64", "--json"])
        .stdout(Stdio::null())
        .stderr(fs::File::create("/dev/full").unwrap())
        .status();
    assert_eq!(ended.unwrap().code(), Some(0));
}

#[test]
fn usage_errors_exit_with_2_and_wrong_files_with_18() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run("upp", "", 0).code, 2);
    assert_eq!(sandbox.run("status --instance A", "", 0).code, 2);
    for line in ["line --frame 63", "line --mtu 20", "line --speed 0", "load --cpu 4095"] {
        let ran = sandbox.run(line, "", 0);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}: {}", ran.err);
    }
    for line in ["flow load none", "report none", "compare none none"] {
        let ran = sandbox.run(line, "", 0);
        assert_eq!((ran.code, ran.out.as_str()), (18, ""), "{line}: {}", ran.err);
    }
}

#[test]
fn output_of_a_pipe_fits_columns_if_that_is_a_width() {
    let longest = |columns: Option<&str>| {
        let mut line = Command::new(shunt());
        line.args(["line", "--speed", "1G"]).env_remove("COLUMNS");
        let out = line.envs(columns.map(|columns| ("COLUMNS", columns))).output().unwrap().stdout;
        String::from_utf8(out).unwrap().lines().map(str::len).max().unwrap()
    };
    let whole = longest(None);
    assert!(whole > 80, "{whole}");
    assert!(longest(Some("80")) <= 80 && longest(Some("50")) <= 50);
    for wrong in ["", "0", "wide", "-1"] {
        assert_eq!(longest(Some(wrong)), whole, "{wrong}");
    }
}

#[test]
fn the_manual_pages_are_written_into_a_directory() {
    let sandbox = Sandbox::new();
    let pages = sandbox.dir.path();
    assert_eq!(sandbox.run(&format!("man {}", pages.display()), "", 0).code, 0);
    for name in ["shunt.1", "shunt-up.1", "shunt-flows.1", "shunt-flow-add.1", "shuntd.8", "shunt.toml.5"] {
        assert!(pages.join(name).exists(), "{name}");
    }
}

#[test]
fn a_shell_completes_commands_and_options() {
    let script = Sandbox::new().run("completions bash", "", 0).out;
    let complete = |words: &str, last: &str| {
        let before = words.split(' ').next_back().unwrap();
        let ask = format!(
            "{script}\nCOMP_WORDS=({words} {last}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _clap_complete_shunt shunt '{last}' {before}; echo ${{COMPREPLY[@]}}"
        );
        let directory = shunt().parent().unwrap().to_owned();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
        let answer = Command::new("bash").args(["--norc", "-c", &ask]).env("PATH", path).output().unwrap();
        String::from_utf8(answer.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("shunt", "st"), "status");
    assert_eq!(complete("shunt up", "--eng"), "--engine");
    assert_eq!(complete("shunt up --engine", "x"), "xdp");
    // What the machine has: every network namespace has a loopback device.
    for before in [
        "up --port",
        "link",
        "doctor",
        "trace",
        "check",
        "check lo --peer",
        "flow add --in-port",
        "lab agent --lend",
    ] {
        let devices = complete(&format!("shunt {before}"), "l");
        assert!(devices.split(' ').any(|device| device == "lo"), "{before}: {devices}");
    }
    // What comes with Shunt.
    assert_eq!(complete("shunt reg list --soc", "imx6q"), "imx6q imx6qp");
    assert_eq!(complete("shunt bench sweep --reg-soc", "at32"), "at32ap7000");
    assert!(complete("shunt check lo --only", "link").starts_with("link"));
    let sandbox = Sandbox::new();
    let here = sandbox.dir.path().join("imx-case.toml");
    fs::write(&here, "").unwrap();
    for before in
        ["model run", "model explain", "model fit results.json --case", "doctor --model", "model cases"]
    {
        let cases = complete(&format!("shunt {before}"), "imx6");
        assert!(cases.split(' ').any(|case| case == "imx6"), "{before}: {cases}");
    }
    // Files, also where the name of a case may stand.
    let typed = here.with_file_name("imx-").display().to_string();
    for before in [
        "model run",
        "doctor --model",
        "doctor --recorded",
        "report",
        "flow load",
        "up --config",
        "reg list --defs",
        "compare",
    ] {
        assert_eq!(complete(&format!("shunt {before}"), &typed), here.display().to_string(), "{before}");
    }
}
