//! Raw frames on an interface, through AF_PACKET.

use super::NetNs;
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    libc, setsockopt_impl, sockopt_impl,
    sys::{
        socket::{
            self, AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
            sockopt,
        },
        time::{TimeSpec, TimeVal, TimeValLike},
    },
};
use shunt_wire::{Packet, Tag, encap};
use std::{
    cell::RefCell,
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

sockopt_impl!(
    /// Requests `struct tpacket_auxdata` beside each frame.
    PacketAuxdata, SetOnly, libc::SOL_PACKET, libc::PACKET_AUXDATA, bool
);
sockopt_impl!(
    /// Ignores frames that are sent on the interface.
    PacketIgnoreOutgoing, SetOnly, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, bool
);
sockopt_impl!(
    /// Puts a `struct virtio_net_hdr` before each frame.
    PacketVnetHdr, SetOnly, libc::SOL_PACKET, libc::PACKET_VNET_HDR, bool
);

/// Size of `struct virtio_net_hdr`.
const VNET_HDR_BYTES: usize = 10;
/// Room for a GSO aggregate and its tags.
const FRAME_MAX: usize = 70_000;
/// Size of the socket's queues: a burst of a few thousand small frames. A frame that was sent may count until it has
/// left the qdisc of another device, so a smaller queue would block senders.
pub(super) const QUEUE_BYTES: usize = 8 << 20;

thread_local! {
    /// Receive buffer of the thread.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; FRAME_MAX]);
}

/// A raw socket on one interface: sends frames there and captures frames received there.
///
/// Capturing begins when the socket is opened, so open it before the traffic to capture.
#[derive(Debug)]
pub struct Tap {
    socket: OwnedFd,
    ifindex: usize,
    ifname: String,
}

/// A captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The frame as it was on the wire, tags included, without FCS.
    pub bytes: Vec<u8>,
    /// Whether its L4 checksum was left for a NIC to complete (CHECKSUM_PARTIAL).
    pub unfinished: bool,
    /// Whether the NIC says that its L4 checksum is correct.
    pub verified: bool,
    /// Whether its destination is another host's address: the NIC passed it on, and the stack ignores it.
    pub for_other: bool,
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Frame {
    /// The parsed frame; None if the frame is truncated or inconsistent.
    pub fn packet(&self) -> Option<Packet> {
        Packet::parse(&self.bytes).ok()
    }
}

impl Tap {
    /// Opens a raw socket on an interface of a namespace.
    ///
    /// # Panics
    /// Panics if the socket cannot be opened.
    #[track_caller]
    pub fn open(ns: &NetNs, ifname: &str) -> Self {
        let opened = ns.within(|| open(ifname));
        let (socket, ifindex) = opened.unwrap_or_else(|e| panic!("{}: {ifname}: {e}", ns.name()));
        Self { socket, ifindex, ifname: ifname.to_owned() }
    }

    /// Opens a raw socket on an interface of the caller's namespace.
    ///
    /// # Errors
    /// Fails if the socket cannot be opened.
    pub fn here(ifname: &str) -> io::Result<Self> {
        let (socket, ifindex) = open(ifname)?;
        Ok(Self { socket, ifindex, ifname: ifname.to_owned() })
    }

    /// Sends a packet.
    ///
    /// # Panics
    /// Panics if the interface does not accept the packet.
    #[track_caller]
    pub fn send(&self, packet: &Packet) {
        self.send_bytes(&packet.to_bytes());
    }

    /// Sends a frame without FCS.
    ///
    /// # Panics
    /// Panics if the interface does not accept the frame.
    #[track_caller]
    pub fn send_bytes(&self, frame: &[u8]) {
        let sent = loop {
            match socket::send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
                Err(Errno::EINTR | Errno::ENOBUFS) => {}
                other => break other,
            }
        };
        assert_eq!(sent, Ok(frame.len()), "sending on {}", self.ifname);
    }

    /// Sends a frame of which only the first bytes, at least 14, are contiguous. The rest of a frame larger than a page
    /// is in pages, as drivers pass frames up.
    ///
    /// # Panics
    /// Panics if the interface does not accept the frame.
    #[track_caller]
    pub fn send_in_pages(&self, frame: &[u8], first: u16) {
        let mut described = [0; VNET_HDR_BYTES].to_vec();
        described[2..4].copy_from_slice(&first.to_ne_bytes());
        described.extend(frame);
        let describe = |yes| {
            let set = socket::setsockopt(&self.socket, PacketVnetHdr, &yes);
            set.unwrap_or_else(|e| panic!("{}: {e}", self.ifname));
        };
        describe(true);
        self.send_bytes(&described);
        describe(false);
    }

    /// Sends a frame without FCS, and waits up to a second for room.
    ///
    /// # Errors
    /// The kernel's error: EMSGSIZE if the frame is longer than the MTU allows, ENETDOWN if the interface is down.
    pub fn try_send(&self, frame: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            match socket::send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS | Errno::EAGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a frame behind a `struct virtio_net_hdr`, which tells what is left to the NIC: the checksum, segments.
    ///
    /// # Errors
    /// The kernel's error: EINVAL if it does not accept the description.
    pub fn try_send_described(&self, description: [u8; VNET_HDR_BYTES], frame: &[u8]) -> io::Result<()> {
        socket::setsockopt(&self.socket, PacketVnetHdr, &true)?;
        let sent = self.try_send(&[&description[..], frame].concat());
        socket::setsockopt(&self.socket, PacketVnetHdr, &false)?;
        sent
    }

    /// The next frame, if one arrives within `timeout`.
    ///
    /// # Panics
    /// Panics if the socket fails.
    #[track_caller]
    pub fn next(&self, timeout: Duration) -> Option<Frame> {
        self.next_stamped(timeout).map(|(frame, _)| frame)
    }

    /// Makes the kernel record when frames arrive, from now on until this is dropped.
    ///
    /// # Panics
    /// Panics if the kernel refuses.
    #[track_caller]
    pub fn stamp(&self) {
        let set = socket::setsockopt(&self.socket, sockopt::ReceiveTimestampns, &true);
        set.unwrap_or_else(|e| panic!("{}: {e}", self.ifname));
    }

    /// The next frame, if one arrives within `timeout`, with its time of arrival by the wall clock. The time is zero
    /// unless [`Tap::stamp`] was called.
    ///
    /// # Panics
    /// Panics if the socket fails.
    #[track_caller]
    pub fn next_stamped(&self, timeout: Duration) -> Option<(Frame, Duration)> {
        let received = self.stamped_within(timeout);
        received.unwrap_or_else(|e| panic!("receiving on {}: {e}", self.ifname))
    }

    /// As [`Tap::next`].
    ///
    /// # Errors
    /// Fails if the socket fails, which happens once when the link goes down.
    pub fn receive_within(&self, timeout: Duration) -> io::Result<Option<Frame>> {
        Ok(self.stamped_within(timeout)?.map(|(frame, _)| frame))
    }

    fn stamped_within(&self, timeout: Duration) -> Result<Option<(Frame, Duration)>, Errno> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // A socket's timeout of zero means no timeout, and others last at least one tick of the kernel.
            let flags = if left.is_zero() { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
            let wait = TimeVal::microseconds(left.as_micros().max(1) as i64);
            socket::setsockopt(&self.socket, sockopt::ReceiveTimeout, &wait)?;
            match self.receive(flags) {
                Ok(Some(stamped)) => return Ok(Some(stamped)),
                Ok(None) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// The next frame, if one has arrived already.
    ///
    /// # Panics
    /// Panics if the socket fails.
    #[track_caller]
    pub fn waiting(&self) -> Option<Frame> {
        loop {
            match self.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(Some((frame, _))) => return Some(frame),
                Ok(None) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return None,
                Err(e) => panic!("receiving on {}: {e}", self.ifname),
            }
        }
    }

    /// Sends a frame that the interface may drop because it has no carrier or no room.
    ///
    /// # Panics
    /// Panics if the socket fails for another reason.
    #[track_caller]
    pub fn offer(&self, frame: &[u8]) {
        loop {
            match socket::send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
                Ok(_) | Err(Errno::ENOBUFS | Errno::ENETDOWN) => return,
                Err(Errno::EINTR) => {}
                Err(e) => panic!("offering {} bytes on {}: {e}", frame.len(), self.ifname),
            }
        }
    }

    /// The first frame within `timeout` for which `wanted` holds; other frames are dropped.
    #[track_caller]
    pub fn capture(&self, timeout: Duration, mut wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        let deadline = Instant::now() + timeout;
        loop {
            let frame = self.next(deadline.saturating_duration_since(Instant::now()))?;
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// The first packet within `timeout` for which `wanted` holds; everything else is dropped.
    #[track_caller]
    pub fn capture_packet(
        &self,
        timeout: Duration,
        mut wanted: impl FnMut(&Packet) -> bool,
    ) -> Option<Packet> {
        let mut found = None;
        self.capture(timeout, |frame| {
            found = frame.packet().filter(&mut wanted);
            found.is_some()
        });
        found
    }

    /// Up to `count` packets for which `wanted` holds; fewer if `timeout` expires first.
    #[track_caller]
    pub fn capture_packets(
        &self,
        count: usize,
        timeout: Duration,
        mut wanted: impl FnMut(&Packet) -> bool,
    ) -> Vec<Packet> {
        let deadline = Instant::now() + timeout;
        let mut packets = Vec::new();
        while packets.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.capture_packet(left, &mut wanted) {
                Some(packet) => packets.push(packet),
                None => break,
            }
        }
        packets
    }

    /// Drops all frames captured so far.
    #[track_caller]
    pub fn drain(&self) {
        while self.next(Duration::ZERO).is_some() {}
    }

    /// One frame; None if it belongs to another interface: until the socket is bound, it receives frames of all
    /// interfaces.
    fn receive(&self, flags: MsgFlags) -> Result<Option<(Frame, Duration)>, Errno> {
        ROOM.with_borrow_mut(|room| self.receive_into(room, flags))
    }

    fn receive_into(&self, room: &mut [u8], flags: MsgFlags) -> Result<Option<(Frame, Duration)>, Errno> {
        let mut control = nix::cmsg_space!([u8; size_of::<libc::tpacket_auxdata>()], TimeSpec);
        let mut buffers = [IoSliceMut::new(room)];
        let message =
            socket::recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut buffers, Some(&mut control), flags)?;
        let length = message.bytes;
        let ours = message.address.is_some_and(|address| address.ifindex() == self.ifindex);
        let for_other = message.address.is_some_and(|address| address.pkttype() == libc::PACKET_OTHERHOST);
        let (mut aux, mut arrived) = (None, Duration::ZERO);
        for message in message.cmsgs()? {
            match message {
                ControlMessageOwned::ScmTimestampns(time) => arrived = time.into(),
                other => aux = aux.or(Aux::parse(other)),
            }
        }
        let mut bytes = room[..length].to_vec();
        let aux = aux.unwrap_or_default();
        if let Some(tag) = aux.tag.filter(|_| bytes.len() >= encap::TAG_AT) {
            encap::push_tags(&mut bytes, &[tag]);
        }
        let Aux { unfinished, verified, .. } = aux;
        Ok(ours.then_some((Frame { bytes, unfinished, verified, for_other }, arrived)))
    }
}

/// The auxiliary data of a frame. The kernel removes the outermost tag from a frame before a socket receives it.
#[derive(Debug, Default)]
struct Aux {
    tag: Option<Tag>,
    unfinished: bool,
    verified: bool,
}

impl Aux {
    fn parse(message: ControlMessageOwned) -> Option<Self> {
        let ControlMessageOwned::Unknown(message) = message else { return None };
        let header = (message.cmsg_header.cmsg_level, message.cmsg_header.cmsg_type);
        if header != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            return None;
        }
        // Layout of struct tpacket_auxdata, in host byte order.
        let word = |at: usize| message.data_bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
        let status = u32::from_ne_bytes(message.data_bytes.get(..4)?.try_into().ok()?);
        let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { word(18)? } else { 0x8100 };
        let tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
        Some(Self {
            tag: if tagged { Some(Tag::from_words(tpid, word(16)?)) } else { None },
            unfinished: status & libc::TP_STATUS_CSUMNOTREADY != 0,
            verified: status & libc::TP_STATUS_CSUM_VALID != 0,
        })
    }
}

fn open(ifname: &str) -> Result<(OwnedFd, usize), Errno> {
    let address = link_address(ifname)?;
    let socket =
        socket::socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    socket::setsockopt(&socket, PacketAuxdata, &true)?;
    socket::setsockopt(&socket, PacketIgnoreOutgoing, &true)?;
    socket::setsockopt(&socket, sockopt::RcvBufForce, &QUEUE_BYTES)?;
    socket::setsockopt(&socket, sockopt::SndBufForce, &QUEUE_BYTES)?;
    socket::bind(socket.as_raw_fd(), &address)?;
    Ok((socket, address.ifindex()))
}

/// The address for binding a raw socket to a device of the caller's namespace.
pub(crate) fn link_address(ifname: &str) -> Result<LinkAddr, Errno> {
    // Only the kernel's own list has addresses of this family that can be bound to.
    getifaddrs()?
        .filter(|interface| interface.interface_name == ifname)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .ok_or(Errno::ENODEV)
}
