//! `tests/limit.py`, with which `make test` starts the test programs: it ends a test that hangs, and names it;
//! it runs a test that failed once more in CI, or if the test has bounds on the time.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

fn limited(minutes: &str, script: &str) -> Output {
    let limit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/limit.py");
    let limited = Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(limit)
        .args(["sh", "-c", script])
        .env("SHUNT_TEST_MINUTES", minutes)
        .output();
    limited.unwrap()
}

/// A program with the name of a test program, which prints what libtest prints for `script`'s tests.
fn test_program(directory: &Path, name: &str, script: &str) -> String {
    let path = directory.join(format!("{name}-0123456789abcdef"));
    fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("exec {}", path.display())
}

#[test]
fn a_test_that_hangs_is_named_and_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    // Prints what libtest prints; the last command hangs.
    let script = format!(
        "setsid sleep 300 & echo $! >{}; echo 'test a::quick ... ok'; \
         echo 'test a::slow has been running for over 60 seconds'; echo 'test a::slow ... ok'; \
         echo 'test a::hangs has been running for over 60 seconds'; \
         while :; do echo 'test a::quick ... ok'; sleep 0.1; done",
        pid.display()
    );
    let began = Instant::now();
    let ended = limited("1.02", &script);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(124), "{errors}");
    assert!(errors.contains("1.02 minutes (SHUNT_TEST_MINUTES): a::hangs\n"), "{errors}");
    assert!(began.elapsed() < Duration::from_secs(45));
    let child = format!("/proc/{}/stat", fs::read_to_string(pid).unwrap().trim());
    assert!(fs::read_to_string(child).map_or(true, |stat| stat.contains(") Z ")), "the child still runs");
}

#[test]
fn a_program_without_output_is_killed_too() {
    let ended = limited("0.02", "printf 'test a::alone ... '; exec sleep 300");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(124) && errors.contains("test a::alone ..."), "{errors}");
}

#[test]
fn a_program_that_ends_keeps_its_output_and_its_exit_code() {
    let ended = limited("1", "echo 'test a::b ... FAILED'; exit 101");
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(101), &b"test a::b ... FAILED\n"[..]));
    assert_eq!(limited("1", "kill -9 $$").status.code(), Some(137));
}

/// Fails in its first run with what libtest prints then; in the second, only `a::late` and `a::b` run.
const FAILS_ONCE: &str = r#"
    echo "$@" >>"$0.runs"
    test $(wc -l <"$0.runs") = 1 || exit "$SECOND"
    printf 'failures:\n\n---- a::b stdout ----\n    value,\n\nfailures:\n    a::b\n    a::late\n\ntest result: FAILED.\n'
    exit 101"#;

#[test]
fn a_failed_test_runs_once_more_only_if_asked_for_or_if_it_has_bounds_on_the_time() {
    let limit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/limit.py");
    for (name, retry, second, code, runs) in [
        ("daemon", "0", "0", 101, 1),
        ("daemon", "1", "0", 0, 2),
        ("daemon", "1", "101", 101, 2),
        ("reaction", "0", "0", 0, 2),
        ("reaction", "0", "101", 101, 2),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("for word; do test $word != --list || exit 0; done{FAILS_ONCE}");
        let program = test_program(directory.path(), name, &script);
        let program = program.strip_prefix("exec ").unwrap();
        let ended = Command::new(&limit)
            .arg(program)
            .env("SHUNT_RETRY", retry)
            .env("SECOND", second)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{errors}");
        assert_eq!(
            errors.contains("FLAKY: failed, and passed when run again: a::b, a::late\n"),
            code == 0 && name == "daemon",
            "{errors}"
        );
        let started = fs::read_to_string(format!("{program}.runs")).unwrap();
        assert_eq!(started.lines().count(), runs, "{started}");
        assert!(runs == 1 || started.ends_with("--test-threads=1 --exact a::b a::late\n"), "{started}");
    }
}
