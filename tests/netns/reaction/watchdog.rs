//! Messages of the daemon to a service manager: READY, WATCHDOG and STOPPING.

use nix::sys::signal::Signal;
use shunt_testkit::{Shunt, require_root, rulesets, silent_router, wait_until};
use std::{fs, io::ErrorKind, os::unix::net::UnixDatagram, time::Duration};

/// Receives one message for the service manager; `None` if none comes in time.
fn message(manager: &UnixDatagram, within: Duration) -> Option<String> {
    let mut bytes = [0; 256];
    manager.set_read_timeout(Some(within)).unwrap();
    // A signal with a handler interrupts a receive with a timeout.
    let length = loop {
        match manager.recv(&mut bytes) {
            Ok(length) => break length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("the manager's socket: {error}"),
        }
    };
    Some(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
}

#[test]
fn the_daemon_notifies_the_service_manager_of_start_life_and_stop() {
    if !require_root() {
        return;
    }
    const PATIENCE: Duration = Duration::from_secs(60);
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    // Like systemd, set the process id of the program that is started.
    let starter = place.path().join("start.sh");
    fs::write(&starter, "WATCHDOG_PID=$$ WATCHDOG_USEC=1500000 exec \"$@\"\n").unwrap();
    let shunt = Shunt::on(lab.router())
        .variable("NOTIFY_SOCKET", &socket.to_string_lossy())
        .by(&format!("sh {}", starter.display()));
    let mut daemon = shunt.start("up --foreground");
    assert_eq!(message(&manager, PATIENCE).as_deref(), Some("READY=1"), "{}", daemon.err());
    shunt.done("status");
    for _ in 0..3 {
        let output = message(&manager, PATIENCE);
        let state = fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
        assert_eq!(output.as_deref(), Some("WATCHDOG=1"), "{}{state:?}{:?}", daemon.err(), daemon.ended());
    }
    daemon.signal(Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", daemon.pid());
    wait_until("the daemon is stopped", || fs::read_to_string(&stat).unwrap().contains(") T "));
    while message(&manager, Duration::from_millis(1)).is_some() {}
    assert_eq!(
        message(&manager, Duration::from_secs(2)),
        None,
        "the daemon hangs, but its watchdog does not"
    );
    daemon.signal(Signal::SIGCONT);
    assert_eq!(message(&manager, PATIENCE).as_deref(), Some("WATCHDOG=1"));
    daemon.signal(Signal::SIGTERM);
    let last = std::iter::from_fn(|| message(&manager, PATIENCE)).find(|output| output != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    wait_until("the daemon has ended", || daemon.ended() == Some(Some(0)));
}
