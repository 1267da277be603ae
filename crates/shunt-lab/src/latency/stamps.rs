//! Time stamps of sockets: when a packet passed the kernel and the NIC (SO_TIMESTAMPING).

use nix::sys::{
    socket::{
        ControlMessageOwned, MsgFlags, SetSockOpt, SockaddrStorage, TimestampingFlag, recvmsg, sockopt,
    },
    time::TimeSpec,
};
use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd,
    time::Duration,
};

/// From `linux/net_tstamp.h`: report both stamps of a sent packet.
const OPT_TX_SWHW: u32 = 1 << 14;
/// Bytes of control messages of one packet: three times, the sent packet's error, and room for others.
const CONTROL_BYTES: usize = 512;
/// A sent packet comes back with all its headers.
const HEADERS_BYTES: usize = 192;

/// When a packet passed, since each clock's own epoch; None if that clock did not stamp it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) kernel: Option<Duration>,
    pub(super) nic: Option<Duration>,
}

/// A packet that was received.
#[derive(Debug)]
pub(super) struct ReceivedPacket {
    pub(super) bytes: usize,
    /// Its sender; None on a connected socket.
    pub(super) from: Option<SocketAddr>,
    pub(super) stamps: Stamps,
}

/// Asks for all stamps of packets that the socket sends and receives.
pub(super) fn request(socket: &UdpSocket) -> io::Result<()> {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_RAW_HARDWARE
        | TimestampingFlag::SOF_TIMESTAMPING_TX_HARDWARE
        | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_RX_HARDWARE
        | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
        | TimestampingFlag::from_bits_retain(OPT_TX_SWHW);
    Ok(sockopt::Timestamping.set(socket, &flags)?)
}

/// Waits for a packet as long as the socket's timeout allows.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<ReceivedPacket> {
    read(socket, buffer, MsgFlags::empty())
}

/// The last `N` bytes of the packets that were sent, with their stamps, as far as they have come back. A packet that
/// two clocks stamped comes back twice.
pub(super) fn sent<const N: usize>(socket: &UdpSocket) -> io::Result<Vec<([u8; N], Stamps)>> {
    let mut all = Vec::new();
    loop {
        let mut buffer = [0; HEADERS_BYTES];
        match read(socket, &mut buffer, MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT) {
            Ok(packet) => {
                let content = &buffer[..packet.bytes.min(buffer.len())];
                // An ICMP error is in this queue, too, and has no stamps.
                if let Some(tail) = content.last_chunk::<N>().filter(|_| packet.stamps != Stamps::default()) {
                    all.push((*tail, packet.stamps));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

fn read(socket: &UdpSocket, buffer: &mut [u8], flags: MsgFlags) -> io::Result<ReceivedPacket> {
    let mut control = vec![0; CONTROL_BYTES];
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let mut stamps = Stamps::default();
    for one in message.cmsgs()? {
        if let ControlMessageOwned::ScmTimestampsns(times) = one {
            stamps.kernel = stamps.kernel.or(time(times.system));
            stamps.nic = stamps.nic.or(time(times.hw_raw));
        }
    }
    let from = message.address.and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4(SocketAddrV4::from(*v4)));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6(SocketAddrV6::from(*v6))))
    });
    Ok(ReceivedPacket { bytes: message.bytes, from, stamps })
}

/// The kernel leaves a time that it does not have at zero.
fn time(time: TimeSpec) -> Option<Duration> {
    let time = Duration::new(time.tv_sec().try_into().ok()?, time.tv_nsec().try_into().ok()?);
    (!time.is_zero()).then_some(time)
}

/// The round trip by one clock at each end: from the packet's departure to the arrival of its answer, without the time
/// for which the far end had it. Each difference is of one clock, so the clocks need not agree. None if a stamp is
/// missing, or a clock was set meanwhile.
pub(super) fn round_trip(near: [Option<Duration>; 2], far: [Option<Duration>; 2]) -> Option<Duration> {
    let between = |[first, second]: [Option<Duration>; 2]| second?.checked_sub(first?);
    between(near)?.checked_sub(between(far)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn the_time_at_the_far_end_does_not_count_and_clocks_need_not_agree() {
        // 70 us in each direction, 900 us at the far end, whose clock is years ahead.
        let years = Duration::from_secs(100_000_000);
        let near = [Some(5 * US), Some(1045 * US)];
        let far = [Some(years), Some(years + 900 * US)];
        assert_eq!(round_trip(near, far), Some(140 * US));
        assert_eq!(round_trip([None, near[1]], far), None);
        assert_eq!(round_trip(near, [far[0], None]), None);
        assert_eq!(round_trip(near, [far[1], far[0]]), None, "the far clock was set back");
        assert_eq!(round_trip(near, [far[0], Some(years + 2000 * US)]), None, "the far clock was set");
    }

    #[test]
    fn the_kernel_stamps_what_it_sends_and_receives() {
        let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for socket in [&a, &b] {
            request(socket).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        a.connect(b.local_addr().unwrap()).unwrap();
        // The kernel begins to stamp what it receives a moment later, by a thread of its own.
        let begin = Instant::now();
        loop {
            a.send(b"first").unwrap();
            if receive(&b, &mut [0; 64]).unwrap().stamps.kernel.is_some() {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "the kernel stamps nothing");
        }
        sent::<8>(&a).unwrap();
        a.send(b"before it and the last 8").unwrap();
        let mut buffer = [0; 64];
        let got = receive(&b, &mut buffer).unwrap();
        assert_eq!((got.bytes, got.from), (24, Some(a.local_addr().unwrap())));
        let arrived = got.stamps.kernel.unwrap();
        assert_eq!(got.stamps.nic, None, "the loopback has no clock");
        let back = sent::<8>(&a).unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(&back[0].0, b"e last 8");
        assert!(back[0].1.kernel.unwrap() <= arrived, "{back:?}, {arrived:?}");
        assert!(sent::<8>(&a).unwrap().is_empty());
    }
}
