//! What the daemon and the engine's process tell each other. Each message is one packet of a SOCK_SEQPACKET socket, in
//! JSON; the first message to the engine carries the descriptors of the maps and programs.

use crate::sched::{ClassCounters, SchedConfig};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    setsockopt, socketpair, sockopt,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shunt_bpf::abi::Plain;
use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Bytes of the longest message. The queues of 64 ports have 600 bytes each, as numbers; a hand-over has 1,024 ports.
pub const MESSAGE_MAX: usize = 192 << 10;
/// The most descriptors in a message (SCM_MAX_FD).
pub const RIGHTS_MAX: usize = 253;
/// Ports in one message of counters.
pub(crate) const PORTS_PER_REPORT: usize = 16;

/// What the engine does while no packets come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// It looks for packets all the time.
    Polls,
    /// It looks for packets for a moment, then sleeps until the kernel wakes it up.
    Adapts,
    /// It sleeps until the kernel wakes it up.
    Sleeps,
}

/// A port for the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its slot in the flow tables.
    pub slot: u16,
    /// Interface index of the device.
    pub ifindex: u32,
    /// The name of the device.
    pub name: String,
    /// Number of its receive queues.
    pub queues: u32,
}

/// The queues of a port: plain memory of the scheduler's configuration, and the policer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qos {
    slot: u16,
    scheduler: Option<Vec<u8>>,
    /// Bytes per second and bytes at once that may come in.
    policer: Option<(u64, u32)>,
}

/// What the queues of a port have counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosCounters {
    /// The slot of the port.
    pub slot: u16,
    classes: Vec<Vec<u8>>,
    /// Packets that the policer has passed and dropped; `None` without a policer.
    pub policer: Option<(u64, u64)>,
}

/// A message from the daemon to the engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Start to forward: the first message.
    Start {
        /// The core to run on; any if absent.
        core: Option<u32>,
        /// What to do while no packets come.
        waiting: Waiting,
        /// Flows per address family.
        max_flows: u32,
        /// The ports to serve.
        ports: Vec<Port>,
        /// Whether the drivers of all ports have zero copy.
        zero_copy: bool,
        /// The queues of those that have some.
        qos: Vec<Qos>,
        /// The VLAN whose frames are copied from one of two ports to the other.
        copy_vlan: Option<u16>,
    },
    /// New queues; ports that are not named have none.
    Qos(Vec<Qos>),
    /// Take no more packets, send what has been received, and exit.
    Stop,
}

/// A message from the engine to the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Report {
    /// The engine forwards.
    Ready {
        /// The slots of the ports that it serves.
        served: Vec<u16>,
        /// The slots of the others, and why.
        failed: Vec<(u16, String)>,
        /// Whether the sockets work without a copy.
        zero_copy: bool,
        /// Why they do not, if the drivers have zero copy.
        refused: Option<String>,
    },
    /// What the queues of some ports have counted since the start.
    Counters(Vec<QosCounters>),
    /// Something that a person should know.
    Warning(String),
    /// The engine cannot run.
    Failed(String),
}

impl Qos {
    /// The queues of the port in a slot.
    pub fn new(slot: u16, scheduler: Option<&SchedConfig>, policer: Option<(u64, u32)>) -> Self {
        Self { slot, scheduler: scheduler.map(|config| config.bytes().to_vec()), policer }
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot.into()
    }

    /// Whether packets that leave are queued.
    pub fn has_scheduler(&self) -> bool {
        self.scheduler.is_some()
    }

    pub(crate) fn scheduler(&self) -> Option<SchedConfig> {
        SchedConfig::from_bytes(self.scheduler.as_deref()?)
    }

    /// Bytes per second and bytes at once that may come in.
    pub fn policer(&self) -> Option<(u64, u32)> {
        self.policer
    }
}

impl QosCounters {
    pub(crate) fn new(slot: u16, classes: &[ClassCounters], policer: Option<(u64, u64)>) -> Self {
        Self { slot, classes: classes.iter().map(|class| class.bytes().to_vec()).collect(), policer }
    }

    /// The counters of the classes.
    pub fn classes(&self) -> impl Iterator<Item = ClassCounters> {
        self.classes.iter().filter_map(|bytes| ClassCounters::from_bytes(bytes))
    }
}

/// A pair of sockets that do not block: the daemon's and the engine's.
///
/// # Errors
/// If the kernel has none.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    for socket in [&ours, &theirs] {
        // Without the privilege, the usual size has to do.
        let _ = setsockopt(socket, sockopt::SndBufForce, &(4 * MESSAGE_MAX));
    }
    Ok((ours, theirs))
}

/// Sends a message, with descriptors if there are some.
///
/// # Errors
/// If the other end is gone, or does not read.
pub fn send(socket: BorrowedFd<'_>, message: &impl Serialize, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let raw: Vec<RawFd> = handles.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights = if raw.is_empty() { &[] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&text)], rights, flags, None)?;
    Ok(())
}

/// Receives a message with its descriptors. `None` if the other end is gone.
///
/// # Errors
/// `WouldBlock` if there is no message and the socket does not block.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut control = nix::cmsg_space!([RawFd; RIGHTS_MAX]);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let socket = socket.as_fd().as_raw_fd();
    let got = recvmsg::<()>(socket, &mut buffers, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut handles = Vec::new();
    for message in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just given us these descriptors.
            handles.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let length = got.bytes;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..length])?, handles)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{CLASSES, ClassConfig, MarkRule};
    use shunt_bpf::abi::EXTERNAL_PORTS_MAX;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such sockets")]
    fn the_queues_and_counters_of_all_ports_fit_into_messages() {
        let (daemon, engine) = socket_pair().unwrap();
        let class = ClassConfig {
            priority: 15,
            quantum: u32::MAX,
            limit_bytes: u32::MAX,
            target_us: u32::MAX,
            interval_us: u32::MAX,
        };
        let mut config =
            SchedConfig { bytes_per_s: u64::MAX, classes: CLASSES as u32, ..SchedConfig::default() };
        config.class_config.fill(class);
        config.mark_rules.fill(MarkRule { mark: u32::MAX, mask: u32::MAX, class_id: 15 });
        config.dscp_class.fill(16);
        let ports = 0..EXTERNAL_PORTS_MAX as u16;
        let qos: Vec<Qos> =
            ports.map(|slot| Qos::new(slot, Some(&config), Some((u64::MAX, u32::MAX)))).collect();
        send(daemon.as_fd(), &Order::Qos(qos.clone()), &[]).unwrap();
        let Some((Order::Qos(received), _)) = receive(&engine).unwrap() else { panic!("another message") };
        assert!(received == qos);

        let counters = [ClassCounters::from_bytes(&[0xff; 64]).unwrap(); CLASSES];
        let some: Vec<QosCounters> = (0..PORTS_PER_REPORT)
            .map(|slot| QosCounters::new(slot as u16, &counters, Some((u64::MAX, u64::MAX))))
            .collect();
        send(engine.as_fd(), &Report::Counters(some.clone()), &[]).unwrap();
        let Some((Report::Counters(received), _)) = receive(&daemon).unwrap() else {
            panic!("another message")
        };
        assert!(received == some);
    }
}
