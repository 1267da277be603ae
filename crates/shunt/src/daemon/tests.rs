use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

fn ended(raw: i32) -> ExitStatus {
    ExitStatus::from_raw(raw)
}

fn exited(code: i32) -> ExitStatus {
    ended(code << 8)
}

#[test]
fn the_daemons_last_words_are_passed_on() {
    let said = "12:00 INFO eth0: attached\nshuntd: eth7: no such device\n12:01 INFO eth0: detached\n\n";
    let failure = failure_of(exited(13), said, "shuntd");
    assert_eq!(failure, Failure::new(FailureCode::PortMissing, "eth7: no such device"));
}

#[test]
fn a_daemon_that_said_nothing_is_described() {
    assert_eq!(
        failure_of(exited(70), "", "shuntd"),
        Failure::new(FailureCode::Internal, "shuntd ended with exit code 70")
    );
    assert_eq!(failure_of(ended(9), "", "shuntd").message, "shuntd was ended by signal 9");
    // An exit code of nobody's, as from the loader of shared libraries.
    let failure = failure_of(exited(127), "libelf.so.1: cannot open\n", "shuntd");
    assert_eq!(failure.code, FailureCode::Internal);
    assert_eq!(failure.message, "shuntd ended with exit code 127: libelf.so.1: cannot open");
    assert_eq!(failure_of(exited(0), "", "shuntd").code, FailureCode::Internal);
}

#[test]
fn only_this_daemons_lines_are_read() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("x.log");
    fs::write(&log, "shuntd: of yesterday\nshuntd: of today\n").unwrap();
    assert_eq!(tail(&log, 21).unwrap(), "shuntd: of today\n");
    let long = "x".repeat(2 * LOG_TAIL_BYTES as usize) + "\nshuntd: the end\n";
    fs::write(&log, &long).unwrap();
    let read = tail(&log, 0).unwrap();
    assert!(read.len() as u64 == LOG_TAIL_BYTES && read.ends_with("\nshuntd: the end\n"));
}

#[test]
fn the_program_beside_goes_before_the_one_in_path() {
    let (beside, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let find = || Program::find_in([beside.path().to_path_buf(), path.path().to_path_buf()].into_iter());
    assert!(find().unwrap_err().message.contains("install both"));
    symlink("/bin/sh", path.path().join(NAME)).unwrap();
    assert_eq!(find().unwrap().0, path.path().join(NAME));
    // What cannot be run is passed over.
    fs::write(beside.path().join(NAME), "").unwrap();
    assert_eq!(find().unwrap().0, path.path().join(NAME));
    fs::remove_file(beside.path().join(NAME)).unwrap();
    symlink("/bin/sh", beside.path().join(NAME)).unwrap();
    assert_eq!(find().unwrap().0, beside.path().join(NAME));
}

#[test]
fn a_process_is_gone_when_only_its_exit_code_is_left() {
    assert!(!is_gone(std::process::id()));
    let mut child = Command::new("true").spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(wait_gone(child.id(), Duration::from_secs(20))));
    assert!(child.wait().unwrap().success());
    assert!(is_gone(child.id()));
}

#[test]
fn one_that_stays_is_ended_by_force() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(!runtime.block_on(wait_gone(child.id(), Duration::ZERO)));
    force_end(child.id());
    assert!(runtime.block_on(wait_gone(child.id(), Duration::from_secs(20))));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}
