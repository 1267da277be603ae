//! `shunt status --watch` with a daemon that goes away and comes back.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use shunt_api::Status;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};
use tempfile::TempDir;

/// Starts the command, whose runtime directory is `dir`.
fn watch(dir: &Path, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(words)
        .env("SHUNT_RUNTIME_DIR", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Answers one request with the state of a daemon with this process ID.
fn answer(listener: &UnixListener, pid: u32) {
    let body = serde_json::to_string(&Status { pid, ..Status::default() }).unwrap();
    let (mut client, _) = listener.accept().unwrap();
    let mut request = [0; 4096];
    assert!(client.read(&mut request).unwrap() > 0);
    write!(client, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

fn next_pid(lines: &mut std::io::Lines<BufReader<ChildStdout>>) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    status["pid"].as_u64().unwrap()
}

#[test]
fn a_watch_outlives_the_daemon_and_reports_its_absence_once() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("default.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut watch = watch(dir.path(), &["status", "--watch", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(watch.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        answer(&listener, 7);
        assert_eq!(next_pid(&mut lines), 7);
    }
    drop(listener);
    fs::remove_file(&socket).unwrap();
    let note = notes.next().unwrap().unwrap();
    assert_eq!(note, "shunt: not running; start it with `shunt up`; trying again each second");
    let listener = UnixListener::bind(&socket).unwrap();
    answer(&listener, 8);
    assert_eq!(next_pid(&mut lines), 8);
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(notes.next().is_none());
}

#[test]
fn a_watch_ends_without_a_message_when_its_reader_has_ended() {
    let dir = TempDir::new().unwrap();
    let listener = UnixListener::bind(dir.path().join("default.sock")).unwrap();
    let mut watch = watch(dir.path(), &["status", "--watch"]);
    answer(&listener, 7);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("pid 7"));
    drop(lines);
    answer(&listener, 7);
    let ended = watch.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_watch_without_a_daemon_fails() {
    let dir = TempDir::new().unwrap();
    let ended = watch(dir.path(), &["status", "--watch"]).wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(21));
    assert_eq!(ended.stderr, b"shunt: not running; start it with `shunt up`\n");
}
