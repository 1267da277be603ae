//! Captures on the router see all packets, as without Shunt.

use nix::{
    libc, setsockopt_impl, sockopt_impl,
    sys::{
        signal::Signal,
        socket::{self, AddressFamily, SockFlag, SockProtocol, SockType},
    },
};
use shunt_api::Status;
use shunt_testkit::{
    Crossing, ENGINES, NetNs, Process, Shuntd, Topology, epoch_moves, require_root, rulesets, silent_router,
    wait_for, wait_until,
};
use shunt_wire::Packet;
use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);
const PACKETS: usize = 200;
/// Enough packets to distinguish a flow that stays fast from one that is learned again.
const LESSONS: usize = 400;

/// tcpdump in a namespace, which writes to a file.
struct Capture {
    process: Process,
    file: PathBuf,
}

impl Capture {
    /// Starts tcpdump and waits until it listens.
    #[track_caller]
    fn start(ns: &NetNs, shuntd: &Shuntd, words: &str) -> Self {
        let file = shuntd.directory().join(format!("{}.pcap", words.replace(' ', "")));
        let output = file.with_extension("log");
        let mut command = ns.command("tcpdump");
        command.args(words.split_whitespace()).args(["-U", "-Z", "root", "-w"]).arg(&file);
        command.stdout(Stdio::null()).stderr(File::create(&output).unwrap());
        let process = Process::start(command);
        wait_until("tcpdump listens", || fs::read_to_string(&output).unwrap().contains("listening on"));
        Self { process, file }
    }

    /// Ends tcpdump once it has written `count` frames of the stream; returns these frames.
    #[track_caller]
    fn end(self, count: usize) -> Vec<Vec<u8>> {
        let seen = || stream_frames(frames(&fs::read(&self.file).unwrap()));
        // Frames in tcpdump's ring, which it reads once a second, are lost when it gets a signal.
        wait_for(PATIENCE, || (seen().len() >= count).then_some(()));
        self.process.signal(Signal::SIGINT).unwrap();
        self.process.finish();
        stream_frames(frames(&fs::read(&self.file).unwrap()))
    }
}

/// The complete frames of a pcap file, whose last frame may be incomplete.
fn frames(pcap: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = pcap.get(24..).unwrap_or_default();
    let mut found = Vec::new();
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_ne_bytes(length.try_into().unwrap()) as usize;
        let Some(frame) = rest.get(16..16 + length) else { break };
        found.push(frame.to_vec());
        rest = &rest[16 + length..];
    }
    found
}

struct Scene {
    lab: Topology,
    shuntd: Shuntd,
    there: Crossing,
    packet: Packet,
}

impl Scene {
    #[track_caller]
    fn new(engine: shunt_api::Engine, config: &str) -> Self {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start();
        let there = Crossing::between(lab.lan(), lab.wan());
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000));
        let scene = Self { lab, shuntd, there, packet };
        scene.teach();
        scene
    }

    #[track_caller]
    fn teach(&self) {
        self.there.teach(&self.shuntd, &self.packet.clone().payload("lesson"));
    }

    /// Sends a stream; returns each frame as it came in and as it left.
    #[track_caller]
    fn stream(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let packets = (0..PACKETS)
            .map(|n| self.packet.clone().payload(format!("in the stream {n:05}")).with_id(n as u16));
        packets.map(|packet| (packet.to_bytes(), self.there.pass(&packet).bytes)).unzip()
    }

    fn fast(&self) -> u64 {
        self.shuntd.status().packets.fast
    }
}

fn stream_frames(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.into_iter().filter(|frame| frame.windows(13).any(|window| window == b"in the stream")).collect()
}

fn is_captured(status: &Status, name: &str) -> bool {
    status.ports.iter().any(|port| port.name == name && port.captured)
}

/// Captures on each port in turn, with different options, see every packet. Afterwards the flow is fast again.
#[test]
fn a_capture_sees_every_packet_and_ends_without_a_trace() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let scene = Scene::new(engine, "");
        for words in ["-i r0", "-p -i r1", "-i r1 udp"] {
            let capture = Capture::start(scene.lab.router(), &scene.shuntd, words);
            let port = if words.contains("r0") { "r0" } else { "r1" };
            let status = scene.shuntd.wait_until("the daemon knows the capture", |s| is_captured(s, port));
            let before = scene.fast();
            let (came, left) = scene.stream();
            assert_eq!(scene.fast(), before, "{engine}: {words}");
            assert!(epoch_moves(&status, "capture") > 0);
            let other = if port == "r0" { "r1" } else { "r0" };
            assert!(!is_captured(&status, other), "{words}");
            let now = scene.shuntd.status();
            let named = if port == "r0" { &now.reasons } else { &now.refusals };
            let name = if port == "r0" { "capture" } else { "egress-capture" };
            assert!(named.contains_key(name), "{engine}: {words}: {now:#?}");
            let seen = capture.end(PACKETS);
            assert!(
                seen == if port == "r0" { came } else { left },
                "{engine}: {words}: {} frames",
                seen.len()
            );
            scene.shuntd.wait_until("the daemon knows that the capture has ended", |s| !is_captured(s, port));
            let (_, history) = scene.shuntd.request("GET", "/v1/history?for_s=600", "").unwrap();
            for told in [
                format!("cause: a capture of packets on a port ({port})"),
                format!("{port}: the capture of packets ended"),
            ] {
                assert!(history.contains(&told), "{engine}: {words}: {told}: {history}");
            }
            scene.teach();
        }
        scene.shuntd.stop();
    }
}

/// A capture on all devices has a link-layer header of libpcap, so each packet is found by its payload, twice.
#[test]
fn a_capture_on_all_devices_sees_every_packet_in_and_out() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let scene = Scene::new(engine, "");
        let capture = Capture::start(scene.lab.router(), &scene.shuntd, "-i any");
        scene.shuntd.wait_until("the daemon knows the capture", |s| s.ports.iter().all(|port| port.captured));
        let before = scene.fast();
        let (came, left) = scene.stream();
        assert_eq!(scene.fast(), before, "{engine}");
        let seen = capture.end(2 * PACKETS);
        assert_eq!(seen.len(), 2 * PACKETS);
        // The IP packets, each as it came in and then as it left.
        let required = came.iter().zip(&left).flat_map(|(came, left)| [&came[14..], &left[14..]]);
        for (seen, required) in seen.iter().zip(required) {
            assert!(seen.ends_with(required), "{engine}: {seen:02x?}, expected {required:02x?}");
        }
        scene.shuntd.wait_until("the daemon knows that the capture has ended", |s| {
            s.ports.iter().all(|port| !port.captured)
        });
        scene.teach();
        scene.shuntd.stop();
    }
}

#[test]
fn flows_stay_fast_with_ignore_captures() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let scene = Scene::new(engine, "captures = \"ignore\"\nreprove = \"30s\"");
        scene.shuntd.flush();
        scene.teach();
        let capture = Capture::start(scene.lab.router(), &scene.shuntd, "-i r1");
        let before = scene.fast();
        // Promiscuous mode changes the link, so the flow may have to be re-proved once.
        (0..LESSONS).for_each(|_| drop(scene.there.pass(&scene.packet.clone().payload("ignored"))));
        let fast = scene.fast() - before;
        assert!(fast > LESSONS as u64 - 20, "{engine}: only {fast} were fast: {:#?}", scene.shuntd.status());
        assert!(!is_captured(&scene.shuntd.status(), "r1"));
        capture.end(0);
        scene.shuntd.stop();
    }
}

sockopt_impl!(
    /// A classic BPF program that selects the packets for the socket.
    AttachFilter, SetOnly, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, libc::sock_fprog
);

/// A socket for all protocols with a filter, as dhclient and lldpd keep open while they run.
fn daemon_socket() -> OwnedFd {
    let socket =
        socket::socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll)
            .unwrap();
    let load = libc::sock_filter { code: 0x28, jt: 0, jf: 0, k: 12 };
    let lldp = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: 0x88cc };
    let give = |k| libc::sock_filter { code: 6, jt: 0, jf: 0, k };
    let mut program = [load, lldp, give(u32::MAX), give(0)];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    socket::setsockopt(&socket, AttachFilter, &program).unwrap();
    socket
}

#[test]
fn a_packet_socket_for_another_protocol_leaves_flows_fast() {
    if !require_root() {
        return;
    }
    let scene = Scene::new(ENGINES[0], "");
    // The socket is not bound to a device, so if it counts as a capture, it does on every port.
    let daemon = scene.lab.router().within(daemon_socket);
    let (before, since) = (scene.fast(), Instant::now());
    let mut sent = 0;
    // The daemon checks every half second.
    while sent < LESSONS || since.elapsed() < Duration::from_secs(2) {
        scene.there.pass(&scene.packet.clone().payload("beside"));
        sent += 1;
    }
    let now = scene.shuntd.status();
    assert!(!now.ports.iter().any(|port| port.captured) && epoch_moves(&now, "capture") == 0, "{now:#?}");
    assert!(now.packets.fast - before > sent as u64 - 20, "{now:#?}");
    drop(daemon);
    scene.shuntd.stop();
}
