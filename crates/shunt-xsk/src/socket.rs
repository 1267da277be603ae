//! AF_XDP sockets: one for each queue of a port. They move descriptors between the kernel's rings and the engine's.

use crate::{
    abi::Desc,
    engine::{Engine, FRAME_BYTES, PacketBytes, Port},
};
use std::{
    ffi::CString,
    io,
    num::NonZeroU32,
    os::fd::BorrowedFd,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};
use xdpilone::{
    DeviceQueue, Errno, IfInfo, RingRx, RingTx, Socket, SocketConfig, Umem, UmemConfig, xdp::XdpDesc,
};

/// Entries of each ring.
pub(crate) const RING: u32 = 1024;
/// XDP_USE_NEED_WAKEUP: the kernel says when it must be woken up.
const NEED_WAKEUP: u16 = 1 << 3;

/// How long the kernel may take to let go of a queue whose socket has been closed.
const BUSY_MAX: Duration = Duration::from_millis(500);

/// Whether a driver moves packets between NIC and packet memory itself, or the kernel copies them. The same for all
/// sockets of one memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    ZeroCopy,
    Copy,
}

impl Mode {
    /// XDP_ZEROCOPY or XDP_COPY: without either, the first driver would choose for all.
    fn flag(self) -> u16 {
        match self {
            Self::ZeroCopy => 1 << 2,
            Self::Copy => 1 << 1,
        }
    }
}

/// The packet memory, registered with the kernel.
pub(crate) struct PacketMemory {
    umem: Umem,
    mode: Mode,
    /// The kernel writes to it as long as a socket is open.
    bytes: Rc<PacketBytes>,
    /// Whether a socket has been made: the first one is that of the memory.
    used: bool,
}

/// The socket of a queue.
pub(crate) struct QueueSocket {
    /// Its queue pair in the engine.
    pub(crate) pair: usize,
    /// The slot of its port.
    pub(crate) slot: u8,
    /// The number of the queue.
    pub(crate) queue: u32,
    pub(crate) ifindex: u32,
    device: DeviceQueue,
    rx: RingRx,
    tx: RingTx,
    /// Dropped after the rings.
    _memory: Rc<PacketBytes>,
}

fn error(errno: &Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.get_raw().abs())
}

impl PacketMemory {
    /// Registers the memory of an engine.
    pub(crate) fn of(engine: &Engine, mode: Mode) -> io::Result<Self> {
        let bytes = Rc::clone(engine.memory());
        let config = UmemConfig {
            fill_size: RING,
            complete_size: 2 * RING,
            frame_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: 0,
        };
        // SAFETY: the memory is of whole pages, and each socket keeps it where it is.
        let umem = unsafe { Umem::new(config, bytes.all()) }.map_err(|e| error(&e))?;
        Ok(Self { umem, mode, bytes, used: false })
    }

    /// Opens the socket of a queue.
    pub(crate) fn open(&mut self, name: &str, queue: u32, pair: usize, slot: u8) -> io::Result<QueueSocket> {
        let mut interface = IfInfo::invalid();
        let name = CString::new(name)?;
        interface.from_name(&name).map_err(|e| error(&e))?;
        interface.set_queue(queue);
        let first = !self.used;
        let socket =
            if first { Socket::with_shared(&interface, &self.umem) } else { Socket::new(&interface) };
        let socket = socket.map_err(|e| error(&e))?;
        let device = self.umem.fq_cq(&socket).map_err(|e| error(&e))?;
        let size = NonZeroU32::new(RING);
        // The flags of the first socket are those of all.
        let bind_flags = if first { NEED_WAKEUP | self.mode.flag() } else { 0 };
        let config = SocketConfig { rx_size: size, tx_size: size, bind_flags };
        let user = self.umem.rx_tx(&socket, &config).map_err(|e| error(&e))?;
        let (rx, tx) = (user.map_rx().map_err(|e| error(&e))?, user.map_tx().map_err(|e| error(&e))?);
        let until = Instant::now() + BUSY_MAX;
        loop {
            match self.umem.bind(&user).map_err(|e| error(&e)) {
                Ok(()) => break,
                Err(busy) if busy.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    thread::sleep(BUSY_MAX / 50);
                }
                Err(error) => return Err(error),
            }
        }
        self.used = true;
        Ok(QueueSocket {
            pair,
            slot,
            queue,
            ifindex: interface.ifindex(),
            device,
            rx,
            tx,
            _memory: Rc::clone(&self.bytes),
        })
    }
}

impl QueueSocket {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open as long as its rings.
        unsafe { BorrowedFd::borrow_raw(self.rx.as_raw_fd()) }
    }

    /// Takes received packets and sent frames out of the kernel's rings.
    pub(crate) fn take(&mut self, pair: &Port) {
        let room = pair.done.room();
        if room > 0 {
            let mut sent = self.device.complete(room);
            while let Some(at) = sent.read() {
                pair.done.push(at);
            }
            sent.release();
        }
        let room = pair.rx.room();
        if room > 0 {
            let mut received = self.rx.receive(room);
            while let Some(desc) = received.read() {
                pair.rx.push(Desc { at: desc.addr, bytes: desc.len, options: 0 });
            }
            received.release();
        }
    }

    /// Gives free frames to the kernel.
    pub(crate) fn fill(&mut self, pair: &Port) {
        let most = pair.fill.waiting();
        if most > 0 {
            let mut free = self.device.fill(most);
            for _ in 0..free.capacity() {
                let Some(at) = pair.fill.pop() else { break };
                free.insert_once(at);
            }
            free.commit();
        }
        if self.device.needs_wakeup() {
            self.device.wake();
        }
    }

    /// Gives frames to the kernel to send. Returns whether some are left.
    pub(crate) fn transmit(&mut self, pair: &Port) -> bool {
        let most = pair.tx.waiting();
        if most > 0 {
            let mut out = self.tx.transmit(most);
            for _ in 0..out.capacity() {
                let Some(Desc { at, bytes, .. }) = pair.tx.pop() else { break };
                out.insert_once(XdpDesc { addr: at, len: bytes, options: 0 });
            }
            out.commit();
        }
        if self.tx.pending() > 0 && self.tx.needs_wakeup() {
            self.tx.wake();
        }
        self.tx.pending() > 0 || pair.tx.waiting() > 0
    }
}
