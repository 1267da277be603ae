//! AF_XDP sockets: one for each queue of a port. They move descriptors between the kernel's rings and the engine's.

use crate::{
    abi::Desc,
    engine::{Engine, FRAME_BYTES, PacketBytes, Port},
    kernel_ring::{FromKernel, KernelRing, ToKernel},
};
use nix::{
    ifaddrs::getifaddrs,
    net::if_::{InterfaceFlags, if_nametoindex},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with,
        sockopt::{
            set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
            set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets,
        },
        xdp::{
            SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
            XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpUmemReg,
            XdpUmemRegFlags,
        },
    },
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

/// Entries of each ring but that of sent frames, which may come in twice as many.
pub(crate) const RING: u32 = 1024;
const COMPLETION_RING: u32 = 2 * RING;

/// How long the kernel may take to let go of a queue whose socket has been closed.
const BUSY_MAX: Duration = Duration::from_millis(500);
/// How long a driver may take to take the first frames of a socket.
const TAKEN_MAX: Duration = Duration::from_millis(500);

/// Whether a driver moves packets between NIC and packet memory itself, or the kernel copies them. The same for all
/// sockets of one memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    ZeroCopy,
    Copy,
}

impl Mode {
    /// Without either flag, the first driver would choose for all.
    fn flag(self) -> SocketAddrXdpFlags {
        match self {
            Self::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Self::Copy => SocketAddrXdpFlags::XDP_COPY,
        }
    }
}

/// The packet memory, registered with the kernel.
pub(crate) struct PacketMemory {
    /// The socket that has the memory. It is also that of the first queue, and the others share its memory.
    socket: Rc<OwnedFd>,
    mode: Mode,
    /// The kernel writes to it as long as a socket is open.
    bytes: Rc<PacketBytes>,
    /// Whether the socket of the first queue is bound.
    used: bool,
}

/// The socket of a queue.
pub(crate) struct QueueSocket {
    /// Its queue pair in the engine.
    pub(crate) pair: usize,
    /// The slot of its port.
    pub(crate) slot: u16,
    /// The number of the queue.
    pub(crate) queue: u32,
    pub(crate) ifindex: u32,
    /// Frames that the kernel may receive into.
    fill: ToKernel<u64>,
    /// Frames that were sent.
    completion: FromKernel<u64>,
    rx: FromKernel<Desc>,
    tx: ToKernel<Desc>,
    socket: Rc<OwnedFd>,
    /// Dropped after the socket.
    _memory: Rc<PacketBytes>,
}

fn xdp_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

fn is_up(name: &str) -> bool {
    let is_this_up = |device: nix::ifaddrs::InterfaceAddress| {
        device.interface_name == name && device.flags.contains(InterfaceFlags::IFF_UP)
    };
    getifaddrs().is_ok_and(|mut devices| devices.any(is_this_up))
}

impl PacketMemory {
    /// Registers the memory of an engine.
    pub(crate) fn of(engine: &Engine, mode: Mode) -> io::Result<Self> {
        let bytes = Rc::clone(engine.memory());
        let socket = xdp_socket()?;
        let memory = XdpUmemReg {
            addr: bytes.all().cast::<u8>().as_ptr().expose_provenance() as u64,
            len: bytes.all().len() as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&socket, memory)?;
        Ok(Self { socket: Rc::new(socket), mode, bytes, used: false })
    }

    /// Opens the socket of a queue, and gives the kernel its first frames from `free`: with zero copy, a driver may
    /// fill its ring only when the socket is bound.
    pub(crate) fn open(
        &mut self,
        name: &str,
        queue: u32,
        pair: usize,
        slot: u16,
        free: impl FnMut() -> Option<u64>,
    ) -> io::Result<QueueSocket> {
        let socket = if self.used { Rc::new(xdp_socket()?) } else { Rc::clone(&self.socket) };
        let ifindex = if_nametoindex(name)?;
        set_xdp_umem_fill_ring_size(&socket, RING)?;
        set_xdp_umem_completion_ring_size(&socket, COMPLETION_RING)?;
        set_xdp_rx_ring_size(&socket, RING)?;
        set_xdp_tx_ring_size(&socket, RING)?;
        let (at, fd) = (xdp_mmap_offsets(&socket)?, socket.as_fd());
        // SAFETY: the kernel's offsets of each ring, whose entries are frame offsets (fill and completion) or struct
        // xdp_desc, which `Desc` equals.
        let (mut fill, completion, rx, tx) = unsafe {
            (
                ToKernel(KernelRing::map(fd, XDP_UMEM_PGOFF_FILL_RING, at.fr, RING)?),
                FromKernel(KernelRing::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, COMPLETION_RING)?),
                FromKernel(KernelRing::map(fd, XDP_PGOFF_RX_RING, at.rx, RING)?),
                ToKernel(KernelRing::map(fd, XDP_PGOFF_TX_RING, at.tx, RING)?),
            )
        };
        fill.put(free);
        let until = Instant::now() + BUSY_MAX;
        loop {
            match self.bind(&socket, ifindex, queue) {
                Ok(()) => break,
                Err(busy) if busy.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    thread::sleep(BUSY_MAX / 50);
                }
                Err(error) => return Err(error),
            }
        }
        self.used = true;
        let _memory = Rc::clone(&self.bytes);
        let socket = QueueSocket { pair, slot, queue, ifindex, fill, completion, rx, tx, socket, _memory };
        // A port that is down takes none before it goes up.
        if self.mode == Mode::ZeroCopy && is_up(name) && !socket.frames_are_taken() {
            return Err(io::Error::other("its driver has taken no frame to receive into"));
        }
        Ok(socket)
    }

    fn bind(&self, socket: &OwnedFd, ifindex: u32, queue: u32) -> io::Result<()> {
        // The flags of the first socket are those of all.
        if self.used {
            let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, ifindex, queue);
            return Ok(bind(
                socket,
                &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: self.socket.as_fd() },
            )?);
        }
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | self.mode.flag();
        Ok(bind(socket, &SocketAddrXdp::new(flags, ifindex, queue))?)
    }
}

impl QueueSocket {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the driver takes frames from the fill ring. One that takes none would receive nothing.
    fn frames_are_taken(&self) -> bool {
        let until = Instant::now() + TAKEN_MAX;
        while self.fill.pending() == RING {
            if Instant::now() > until {
                return false;
            }
            self.wake_receiver();
            thread::sleep(TAKEN_MAX / 50);
        }
        true
    }

    /// Has the kernel look into the fill ring. A failure shows at the next call.
    fn wake_receiver(&self) {
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::empty())], Some(&Timespec::default()));
    }

    /// Takes received packets and sent frames out of the kernel's rings.
    pub(crate) fn take(&mut self, pair: &Port) {
        self.completion.take(pair.done.room(), |at| pair.done.push(at));
        self.rx.take(pair.rx.room(), |desc| pair.rx.push(Desc { options: 0, ..desc }));
    }

    /// Gives free frames to the kernel.
    pub(crate) fn fill(&mut self, pair: &Port) {
        if pair.fill.waiting() > 0 {
            self.fill.put(|| pair.fill.pop());
        }
        if self.fill.needs_wakeup() {
            self.wake_receiver();
        }
    }

    /// Gives frames to the kernel to send. Returns whether some are left.
    pub(crate) fn transmit(&mut self, pair: &Port) -> bool {
        if pair.tx.waiting() > 0 {
            self.tx.put(|| pair.tx.pop().map(|desc| Desc { options: 0, ..desc }));
        }
        if self.tx.pending() > 0 && self.tx.needs_wakeup() {
            // Without room in the NIC's ring, the kernel sends the rest at a later call.
            let _ = send(&self.socket, &[], SendFlags::DONTWAIT);
        }
        self.tx.pending() > 0 || pair.tx.waiting() > 0
    }
}
