//! Time stamps that a NIC takes by its own clock (PHC), for packets that it sends and receives.

use nix::libc;
use std::{
    fmt, io,
    net::UdpSocket,
    os::fd::{AsRawFd, OwnedFd},
};

const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Offered {
    command: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    _tx_reserved: [u32; 3],
    rx_filters: u32,
    _rx_reserved: [u32; 3],
}

/// `struct hwtstamp_config`: flags, what to stamp when sending, and what when receiving.
type Config = [u32; 3];

/// `struct ifreq`, with a pointer as its data.
#[repr(C)]
struct Request<T> {
    name: [u8; libc::IFNAMSIZ],
    data: *mut T,
    _rest: u64,
}

const _: () = assert!(size_of::<Request<Config>>() >= libc::IFNAMSIZ + 2 * size_of::<u64>());

/// The received packets that a NIC can stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampedPackets {
    /// Every packet.
    All,
    /// PTP version 2 event messages only; over UDP, their destination is port 319.
    PtpEvents,
}

/// The reason why a NIC takes no time stamps.
#[derive(Debug)]
#[non_exhaustive]
pub enum StampsError {
    /// The driver does not offer them.
    NotOffered {
        /// The network device.
        device: String,
        /// The part that the driver lacks.
        lacks: &'static str,
    },
    /// The kernel or the driver refused to turn them on.
    Refused {
        /// The network device.
        device: String,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// A NIC that stamps packets. Dropping it restores the NIC's earlier setting.
#[derive(Debug)]
pub struct HardwareStamps {
    device: String,
    socket: OwnedFd,
    before: Config,
    phc: u32,
    received: StampedPackets,
}

impl HardwareStamps {
    /// Turns time stamps on at a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// If the driver offers no stamps for both directions, or refuses to turn them on.
    pub fn turn_on(device: &str) -> Result<Self, StampsError> {
        let refused = |cause| StampsError::Refused { device: device.to_owned(), cause };
        let lacks = |lacks| StampsError::NotOffered { device: device.to_owned(), lacks };
        let socket: OwnedFd =
            UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::1]:0")).map_err(refused)?.into();
        let mut offered = Offered { command: ETHTOOL_GET_TS_INFO, ..Offered::default() };
        match request(&socket, libc::SIOCETHTOOL, device, &mut offered) {
            Err(cause) if cause.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(lacks(HARDWARE));
            }
            answer => answer.map_err(refused)?,
        }
        let (phc, received, filter) = offered.usable().map_err(lacks)?;
        let mut before: Config = [0; 3];
        // A driver that cannot tell its setting had none: the kernel's default is off.
        if request(&socket, libc::SIOCGHWTSTAMP, device, &mut before).is_err() {
            before = [0, libc::HWTSTAMP_TX_OFF, libc::HWTSTAMP_FILTER_NONE];
        }
        let mut config: Config = [0, libc::HWTSTAMP_TX_ON, filter];
        request(&socket, libc::SIOCSHWTSTAMP, device, &mut config).map_err(refused)?;
        Ok(Self { device: device.to_owned(), socket, before, phc, received })
    }

    /// Number of the NIC's clock, as in /dev/ptpN.
    pub fn phc(&self) -> u32 {
        self.phc
    }

    /// The received packets that the NIC stamps.
    pub fn received(&self) -> StampedPackets {
        self.received
    }
}

impl Drop for HardwareStamps {
    fn drop(&mut self) {
        // The device may be gone, and its setting with it.
        let _ = request(&self.socket, libc::SIOCSHWTSTAMP, &self.device, &mut self.before);
    }
}

const HARDWARE: &str = "hardware time stamps";

impl Offered {
    /// The clock, the received packets that can be stamped, and the filter that selects them; or the part that is
    /// missing.
    fn usable(&self) -> Result<(u32, StampedPackets, u32), &'static str> {
        let has = |flag: u32| self.so_timestamping & flag != 0;
        let phc = u32::try_from(self.phc_index).map_err(|_| HARDWARE)?;
        if !has(libc::SOF_TIMESTAMPING_RAW_HARDWARE) {
            return Err(HARDWARE);
        }
        if !has(libc::SOF_TIMESTAMPING_TX_HARDWARE) || self.tx_types & 1 << libc::HWTSTAMP_TX_ON == 0 {
            return Err("hardware time stamps of sent packets");
        }
        let filters = [
            (libc::HWTSTAMP_FILTER_ALL, StampedPackets::All),
            (libc::HWTSTAMP_FILTER_PTP_V2_EVENT, StampedPackets::PtpEvents),
            (libc::HWTSTAMP_FILTER_PTP_V2_L4_EVENT, StampedPackets::PtpEvents),
        ];
        let usable = filters.into_iter().find(|(filter, _)| self.rx_filters & 1 << filter != 0);
        match usable.filter(|_| has(libc::SOF_TIMESTAMPING_RX_HARDWARE)) {
            Some((filter, received)) => Ok((phc, received, filter)),
            None => Err("hardware time stamps of received UDP packets"),
        }
    }
}

fn request<T>(socket: &OwnedFd, command: libc::Ioctl, device: &str, data: &mut T) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    if device.is_empty() || device.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    name[..device.len()].copy_from_slice(device.as_bytes());
    let mut request = Request { name, data: std::ptr::from_mut(data), _rest: 0 };
    // SAFETY: `request` is as large as struct ifreq, and its data point to the struct that the command accesses: struct
    // ethtool_ts_info for SIOCETHTOOL with ETHTOOL_GET_TS_INFO, else struct hwtstamp_config.
    match unsafe { libc::ioctl(socket.as_raw_fd(), command, &raw mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl fmt::Display for StampsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered { device, lacks } => write!(f, "{device}: the driver offers no {lacks}"),
            Self::Refused { device, cause } => {
                write!(f, "{device}: cannot turn hardware time stamps on: {cause}")
            }
        }
    }
}

impl std::error::Error for StampsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotOffered { .. } => None,
            Self::Refused { cause, .. } => Some(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What drivers of Linux 6.18 answer.
    fn offered(so_timestamping: u32, phc_index: i32, tx_types: u32, rx_filters: u32) -> Offered {
        Offered { so_timestamping, phc_index, tx_types, rx_filters, ..Offered::default() }
    }

    #[test]
    fn what_a_driver_offers_selects_the_packets_that_it_can_stamp() {
        // igb on an 82576: PTP events. igb on an I210, fec: all packets. veth: software only.
        let igb_82576 = offered(0x5f, 0, 0b11, 1 << 0 | 1 << 4 | 1 << 5 | 1 << 12);
        assert_eq!(igb_82576.usable(), Ok((0, StampedPackets::PtpEvents, 12)));
        assert_eq!(offered(0x5f, 3, 0b11, 0b11).usable(), Ok((3, StampedPackets::All, 1)));
        assert_eq!(offered(0x1a, -1, 0, 0).usable(), Err(HARDWARE));
        let sends_only = offered(0x5f, 0, 0b11, 0b1);
        assert_eq!(sends_only.usable(), Err("hardware time stamps of received UDP packets"));
        let layer_2 = offered(0x5f, 0, 0b11, 1 << 9);
        assert!(layer_2.usable().is_err(), "probes are UDP");
        assert_eq!(offered(0x5f, 0, 0b1, 0b11).usable(), Err("hardware time stamps of sent packets"));
    }

    #[test]
    fn a_device_without_a_clock_says_so() {
        let no_clock = HardwareStamps::turn_on("lo").unwrap_err();
        assert_eq!(no_clock.to_string(), "lo: the driver offers no hardware time stamps");
        for name in ["nosuchdevice", "a-name-that-is-much-too-long", ""] {
            assert!(matches!(HardwareStamps::turn_on(name), Err(StampsError::Refused { .. })), "{name}");
        }
    }
}
