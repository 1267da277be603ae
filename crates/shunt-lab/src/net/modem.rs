//! A wire to a port without an Ethernet header: a tun device, a ppp device, or a tunnel of IP packets. At the host's
//! end, a thread adds Ethernet headers, and removes them, so that the host is one like others.

use super::{NetNs, Tap, Wire, ip_tunnel, netns::ip_batch, pppoe};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shunt_traffic::tap::TapDevice;
use shunt_wire::{Ethernet, Mac, encap};
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    thread::{self, JoinHandle},
};

const ETHERNET_MTU: u16 = 1500;
/// The number of each session of PPPoE.
const SESSION: u16 = 0x1234;

/// The thread between a port of the router and the host's interface. Dropping it ends the thread and removes the port.
#[derive(Debug)]
pub(super) struct Modem {
    /// `None` after the drop.
    thread: Option<JoinHandle<()>>,
    /// The thread ends when its other end is closed.
    end: Option<UnixStream>,
}

/// Where packets of the router come out.
enum Port {
    Tun(TapDevice),
    Ppp(pppoe::Session),
    Tunnel(ip_tunnel::FarEnd),
}

/// What the thread has.
struct Line {
    port: Port,
    wire: Tap,
    end: UnixStream,
    host: Mac,
    router: Mac,
}

impl Modem {
    /// Creates the device `port` on the router, and the interface `nic` of the host, which is to send frames to the MAC
    /// `router`.
    pub(super) fn connect(
        router_ns: &NetNs,
        port: &str,
        kind: Wire,
        host_ns: &NetNs,
        nic: &str,
        host: Mac,
        router: Mac,
    ) -> io::Result<Self> {
        let device = match kind {
            Wire::Pppoe(vlan) => Port::Ppp(pppoe::Session::begin(router_ns, port, host_ns, SESSION, vlan)?),
            Wire::IpTunnel(kind) => Port::Tunnel(ip_tunnel::FarEnd::begin(router_ns, port, host_ns, kind)?),
            Wire::Tun | Wire::Ethernet | Wire::Tunnel(_) => {
                Port::Tun(router_ns.within(|| TapDevice::create_tun(port))?)
            }
        };
        let mtu = if matches!(kind, Wire::Pppoe(_)) { pppoe::MTU } else { ETHERNET_MTU };
        let far = format!("{nic}-line");
        ip_batch(
            host_ns,
            &[
                format!(
                    "link add name {nic} address {host} mtu {mtu} type veth peer name {far} address {router}"
                ),
                format!("link set {far} up"),
            ],
        )?;
        // The line carries finished packets.
        host_ns.try_run(&format!("ethtool -K {nic} tx off tso off gso off"))?;
        let wire = host_ns.within(|| Tap::here(&far))?;
        let (end, thread_end) = UnixStream::pair()?;
        let line = Line { port: device, wire, end: thread_end, host, router };
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

impl Port {
    /// The next IP packet from the router.
    fn next(&self) -> Option<Vec<u8>> {
        match self {
            Self::Tun(device) => device.next().ok().flatten(),
            Self::Ppp(session) => session.next(),
            Self::Tunnel(far) => far.next(),
        }
    }

    /// Hands an IP packet to the router. If the device is down, it takes none.
    fn send(&self, packet: &[u8]) {
        match self {
            Self::Tun(device) => {
                let _ = device.receive(packet);
            }
            Self::Ppp(session) => session.send(packet),
            Self::Tunnel(far) => far.send(packet),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(device) => device.as_fd(),
            Self::Ppp(session) => session.wire.as_fd(),
            Self::Tunnel(far) => far.as_fd(),
        }
    }
}

impl Line {
    fn run(self) {
        let polled = |of: PollFd<'_>| of.any().unwrap_or(false);
        loop {
            let fd = |file| PollFd::new(file, PollFlags::POLLIN);
            let mut files = [fd(self.port.as_fd()), fd(self.wire.as_fd()), fd(self.end.as_fd())];
            let woken = poll(&mut files, PollTimeout::NONE);
            let [port, wire, end] = files;
            // The device goes with the router's namespace.
            let is_gone = port.revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
            if woken.is_ok() && (polled(end) || is_gone) {
                return;
            }
            while let Some(packet) = self.port.next() {
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

    /// Hands a frame's packet to the router, if the frame is for the router and has IP in it.
    fn to_router(&self, frame: &[u8]) {
        let Some((ethernet, kind)) = Ethernet::parse(frame) else { return };
        if ethernet.destination == self.router && matches!(kind, encap::IPV4 | encap::IPV6) {
            self.port.send(&frame[ethernet.bytes()..]);
        }
    }
}
