//! Real TCP between real sockets.

use crate::{ENGINES, reason, sent_by};
use shunt_api::{Engine, FlowState};
use shunt_testkit::{Shuntd, TcpEcho, Topology, require_root, rulesets};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(20);
const MEGABYTE: usize = 1 << 20;

/// Bytes that no part of is like another.
fn data(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..bytes / 4).map(word).flat_map(u32::to_le_bytes).collect()
}

/// A home gateway with all offloads on, or off.
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

    /// Says something and hears it come back as it was.
    #[track_caller]
    fn say(&mut self, text: &[u8]) {
        let mut writer = self.stream.try_clone().unwrap();
        let mut answer = vec![0; text.len()];
        // Both at once: an echo of much data blocks who only writes.
        thread::scope(|scope| {
            let written = scope.spawn(move || writer.write_all(text));
            self.stream.read_exact(&mut answer).unwrap();
            written.join().unwrap().unwrap();
        });
        assert!(answer == text, "what came back is not what was sent");
    }

    /// Talks until both directions are fast.
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

/// Eight megabytes there and back arrive as they were, nearly all of them by the fast path.
#[track_caller]
fn arrives(lab: &Topology, shuntd: &Shuntd, server: SocketAddr) {
    let _echo = TcpEcho::start(&lab.wan().ns, server);
    let mut call = Call::open(lab, server);
    call.be_fast(shuntd);
    let before = shuntd.status().bytes;
    call.say(&data(8 * MEGABYTE));
    let status = shuntd.status();
    let (fast, slow) = (status.bytes.fast - before.fast, status.bytes.slow - before.slow);
    assert!(fast > 15 * MEGABYTE as u64, "fast: {fast}, slow: {slow}: {status:#?}");
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
    // Frames with unfinished checksums never were on a wire; XDP leaves them to tc.
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
    for engine in ENGINES {
        let lab = gateway(false);
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        let server = lab.wan().at(80);
        let echo = TcpEcho::start(&lab.wan().ns, server);
        for served in 1..=20 {
            let mut call = Call::open(&lab, server);
            call.be_fast(&shuntd);
            call.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(call.stream.read(&mut [0; 1]).unwrap(), 0, "the other side ends too");
            shunt_testkit::wait_until("it is served", || echo.served() == served);
        }
        let status = shuntd.status();
        // SYN and FIN of each direction of each connection.
        assert!(reason(&status, "tcp-flags") >= 4 * 20, "{status:#?}");
        shuntd.wait_until("every connection has left the table", |s| s.flows.active == 0);
        let open = lab.router().run("conntrack -L -p tcp --state ESTABLISHED 2>/dev/null");
        assert_eq!(open, "", "conntrack has missed an end");
        shuntd.stop();
    }
}

/// A connection that is opened before Shunt comes and goes on after it has gone.
#[test]
fn a_connection_outlives_shunt() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = gateway(true);
        let server = lab.wan().at(80);
        let _echo = TcpEcho::start(&lab.wan().ns, server);
        let mut call = Call::open(&lab, server);
        call.say(b"before");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        call.be_fast(&shuntd);
        // Far beyond the window that conntrack has last seen.
        call.say(&data(4 * MEGABYTE));
        shuntd.stop();
        call.say(b"after");
    }
}
