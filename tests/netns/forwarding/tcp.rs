//! TCP between sockets, through a router with Shunt.

use shunt_api::{Engine, FlowState};
use shunt_testkit::{ALL_ENGINES, Shuntd, TcpEcho, Topology, punts, require_root, rulesets, sent_by};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(20);
const MEGABYTE: usize = 1 << 20;

/// Bytes without two equal parts.
fn data(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..bytes / 4).map(word).flat_map(u32::to_le_bytes).collect()
}

/// A home gateway with all offloads on, or all off.
fn gateway(offloads: bool) -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.offloads(offloads);
    lab
}

/// A connection to an echo service.
struct Call {
    stream: TcpStream,
}

impl Call {
    #[track_caller]
    fn open(lab: &Topology, server: SocketAddr) -> Self {
        let stream = lab.lan().ns.within(|| TcpStream::connect(server)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    /// Sends bytes and asserts that their echo is equal.
    #[track_caller]
    fn say(&mut self, text: &[u8]) {
        let mut writer = self.stream.try_clone().unwrap();
        let mut answer = vec![0; text.len()];
        // Write and read at once: an echo of much data blocks a client that only writes.
        thread::scope(|scope| {
            let written = scope.spawn(move || writer.write_all(text));
            self.stream.read_exact(&mut answer).unwrap();
            written.join().unwrap().unwrap();
        });
        assert!(answer == text, "the echo differs from the bytes sent");
    }

    /// Exchanges data until both directions are fast.
    #[track_caller]
    fn be_fast(&mut self, shuntd: &Shuntd) {
        let port = self.stream.local_addr().unwrap().port();
        shunt_testkit::wait_until("both directions are fast", || {
            self.say(b"fast?");
            let flows = shuntd.flows();
            let directions = flows.iter().filter(|c| c.orig.sport == port).flat_map(|c| &c.directions);
            directions.filter(|d| d.state == FlowState::Active && d.packets > 0).count() == 2
        });
    }
}

/// Echoes eight megabytes and asserts that they are equal, and that nearly all were fast. Returns the bytes that were
/// fast and slow.
#[track_caller]
pub(crate) fn arrives(lab: &Topology, shuntd: &Shuntd, server: SocketAddr) -> [u64; 2] {
    let _echo = TcpEcho::start(&lab.wan().ns, server);
    let mut call = Call::open(lab, server);
    call.be_fast(shuntd);
    let before = shuntd.status().bytes;
    call.say(&data(8 * MEGABYTE));
    let status = shuntd.status();
    let (fast, slow) = (status.bytes.fast - before.fast, status.bytes.slow - before.slow);
    assert!(fast > 15 * MEGABYTE as u64, "fast: {fast}, slow: {slow}: {status:#?}");
    [fast, slow]
}

#[track_caller]
fn data_is_whole(engine: Engine, offloads: bool) {
    if !require_root() {
        return;
    }
    let lab = gateway(offloads);
    let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
    arrives(&lab, &shuntd, lab.wan().at(80));
    arrives(&lab, &shuntd, lab.wan().at6(80));
    let status = shuntd.status();
    // XDP leaves frames with unfinished checksums, which were never on a wire, to tc.
    let by = if offloads { Engine::Tc } else { engine };
    assert!(sent_by(by, &status) > status.packets.fast / 2, "{status:#?}");
    shuntd.stop();
}

#[test]
fn data_by_tc_is_whole_with_all_offloads() {
    data_is_whole(Engine::Tc, true);
}

#[test]
fn data_by_tc_is_whole_without_offloads() {
    data_is_whole(Engine::Tc, false);
}

#[test]
fn data_by_xdp_is_whole_without_offloads() {
    data_is_whole(Engine::Xdp, false);
}

#[test]
fn data_with_unfinished_checksums_is_whole_under_xdp() {
    data_is_whole(Engine::Xdp, true);
}

#[test]
fn connections_that_end_leave_the_table_and_conntrack() {
    if !require_root() {
        return;
    }
    for engine in ALL_ENGINES {
        let lab = gateway(false);
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        let server = lab.wan().at(80);
        let echo = TcpEcho::start(&lab.wan().ns, server);
        for served in 1..=20 {
            let mut call = Call::open(&lab, server);
            call.be_fast(&shuntd);
            call.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(call.stream.read(&mut [0; 1]).unwrap(), 0, "the server closes, too");
            shunt_testkit::wait_until("the service has closed the connection", || echo.served() == served);
        }
        let status = shuntd.status();
        // SYN and FIN of each direction of each connection.
        assert!(punts(&status, "tcp-flags") >= 4 * 20, "{status:#?}");
        shuntd.wait_until("every connection has left the table", |s| s.flows.active == 0);
        let open = lab.router().run("conntrack -L -p tcp --state ESTABLISHED 2>/dev/null");
        assert_eq!(open, "", "conntrack has missed the end of a connection");
        shuntd.stop();
    }
}

/// A connection that is opened before Shunt is started goes on after Shunt was stopped.
#[test]
fn a_connection_outlives_shunt() {
    if !require_root() {
        return;
    }
    for engine in ALL_ENGINES {
        let lab = gateway(true);
        let server = lab.wan().at(80);
        let _echo = TcpEcho::start(&lab.wan().ns, server);
        let mut call = Call::open(&lab, server);
        call.say(b"before");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        call.be_fast(&shuntd);
        // Far beyond the last window that conntrack saw.
        call.say(&data(4 * MEGABYTE));
        shuntd.stop();
        call.say(b"after");
    }
}
