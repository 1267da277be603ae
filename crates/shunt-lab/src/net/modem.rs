//! A wire without Ethernet: the router's end is a tun device. At the host's end, a thread adds Ethernet headers, and
//! removes them, so that the host is one like others.

use super::{NetNs, Tap, netns::ip_batch};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shunt_traffic::tap::TapDevice;
use shunt_wire::{Ethernet, Mac, encap};
use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    thread::{self, JoinHandle},
};

/// The thread between a tun device of the router and the host's interface. Dropping it ends the thread and removes the
/// tun device.
#[derive(Debug)]
pub(super) struct Modem {
    /// `None` after the drop.
    thread: Option<JoinHandle<()>>,
    /// The thread ends when its other end is closed.
    end: Option<UnixStream>,
}

/// What the thread has.
struct Line {
    tun: TapDevice,
    wire: Tap,
    end: UnixStream,
    host: Mac,
    router: Mac,
}

impl Modem {
    /// Creates the tun device `port` on the router, and the interface `nic` of the host, which is to send frames to the
    /// MAC `router`.
    pub(super) fn connect(
        router_ns: &NetNs,
        port: &str,
        host_ns: &NetNs,
        nic: &str,
        host: Mac,
        router: Mac,
    ) -> io::Result<Self> {
        let tun = router_ns.within(|| TapDevice::create_tun(port))?;
        let far = format!("{nic}-line");
        ip_batch(
            host_ns,
            &[
                format!("link add name {nic} address {host} type veth peer name {far} address {router}"),
                format!("link set {far} up"),
            ],
        )?;
        // The line carries finished packets.
        host_ns.try_run(&format!("ethtool -K {nic} tx off tso off gso off"))?;
        let wire = host_ns.within(|| Tap::here(&far))?;
        let (end, thread_end) = UnixStream::pair()?;
        let line = Line { tun, wire, end: thread_end, host, router };
        let thread = thread::Builder::new().name(format!("modem-{port}")).spawn(move || line.run())?;
        Ok(Self { thread: Some(thread), end: Some(end) })
    }
}

impl Drop for Modem {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Line {
    fn run(self) {
        let polled = |of: PollFd<'_>| of.any().unwrap_or(false);
        loop {
            let fd = |file| PollFd::new(file, PollFlags::POLLIN);
            let mut files = [fd(self.tun.as_fd()), fd(self.wire.as_fd()), fd(self.end.as_fd())];
            let woken = poll(&mut files, PollTimeout::NONE);
            let [tun, wire, end] = files;
            // The device goes with the router's namespace.
            let is_gone = tun.revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
            if woken.is_ok() && (polled(end) || is_gone) {
                return;
            }
            while let Ok(Some(packet)) = self.tun.next() {
                self.wire.offer(&self.with_header(&packet));
            }
            if polled(wire) {
                while let Some(frame) = self.wire.waiting() {
                    self.to_router(&frame.bytes);
                }
            }
        }
    }

    fn with_header(&self, packet: &[u8]) -> Vec<u8> {
        let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ethernet = Ethernet { destination: self.host, source: self.router, tags: Vec::new() };
        let mut frame = ethernet.header(if is_v6 { encap::IPV6 } else { encap::IPV4 });
        frame.extend(packet);
        frame
    }

    /// Hands a frame's packet to the router, if the frame is for the router and has IP in it. A router whose device is
    /// down takes none.
    fn to_router(&self, frame: &[u8]) {
        let Some((ethernet, kind)) = Ethernet::parse(frame) else { return };
        if ethernet.destination == self.router && matches!(kind, encap::IPV4 | encap::IPV6) {
            let _ = self.tun.receive(&frame[ethernet.bytes()..]);
        }
    }
}
