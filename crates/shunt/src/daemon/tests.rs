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
fn the_last_message_of_the_daemon_is_the_failure() {
    let output = "12:00 INFO eth0: attached\nshuntd: eth7: no such device\n12:01 INFO eth0: detached\n\n";
    let failure = exit_failure(exited(13), output, "shuntd");
    assert_eq!(failure, Failure::new(FailureCode::PortMissing, "eth7: no such device"));
}

#[test]
fn without_a_message_the_exit_status_is_the_failure() {
    assert_eq!(
        exit_failure(exited(70), "", "shuntd"),
        Failure::new(FailureCode::Internal, "shuntd ended with exit code 70")
    );
    assert_eq!(exit_failure(ended(9), "", "shuntd").message, "shuntd was ended by signal 9");
    // 127 is not one of our exit codes; the dynamic loader uses it.
    let failure = exit_failure(exited(127), "libelf.so.1: cannot open\n", "shuntd");
    assert_eq!(failure.code, FailureCode::Internal);
    assert_eq!(failure.message, "shuntd ended with exit code 127: libelf.so.1: cannot open");
    assert_eq!(exit_failure(exited(0), "", "shuntd").code, FailureCode::Internal);
}

#[test]
fn tail_reads_from_the_start_of_this_daemon_and_a_bounded_part_only() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("x.log");
    fs::write(&log, "shuntd: old message\nshuntd: new message\n").unwrap();
    assert_eq!(tail(&log, 20).unwrap(), "shuntd: new message\n");
    let long = "x".repeat(2 * LOG_TAIL_BYTES as usize) + "\nshuntd: the end\n";
    fs::write(&log, &long).unwrap();
    let read = tail(&log, 0).unwrap();
    assert!(read.len() as u64 == LOG_TAIL_BYTES && read.ends_with("\nshuntd: the end\n"));
}

#[test]
fn a_program_beside_shunt_is_preferred_to_one_in_path() {
    let (beside, path) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let find = || Program::find_in([beside.path().to_path_buf(), path.path().to_path_buf()].into_iter());
    assert!(find().unwrap_err().message.contains("install both together"));
    symlink("/bin/sh", path.path().join(NAME)).unwrap();
    assert_eq!(find().unwrap().0, path.path().join(NAME));
    // A file that is not executable is skipped.
    fs::write(beside.path().join(NAME), "").unwrap();
    assert_eq!(find().unwrap().0, path.path().join(NAME));
    fs::remove_file(beside.path().join(NAME)).unwrap();
    symlink("/bin/sh", beside.path().join(NAME)).unwrap();
    assert_eq!(find().unwrap().0, beside.path().join(NAME));
}

#[test]
fn a_zombie_counts_as_gone() {
    assert!(!is_gone(std::process::id()));
    let mut child = Command::new("true").spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(wait_gone(child.id(), Duration::from_secs(20))));
    assert!(child.wait().unwrap().success());
    assert!(is_gone(child.id()));
}

#[test]
fn a_process_that_keeps_running_can_be_killed() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(!runtime.block_on(wait_gone(child.id(), Duration::ZERO)));
    kill_process(child.id());
    assert!(runtime.block_on(wait_gone(child.id(), Duration::from_secs(20))));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}
