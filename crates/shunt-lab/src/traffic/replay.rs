//! What was captured, sent again.

use super::{Error, Wanted};
use nix::{
    libc, setsockopt_impl, sockopt_impl,
    sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType},
};
use shunt_gen::{Capture, Pace, Round, Schedule};
use shunt_wire::line::{FCS_BYTES, LinkSpeed};
use std::{os::fd::OwnedFd, sync::Arc};

sockopt_impl!(
    /// Has the device take what is for others, as long as the socket is open.
    Membership, SetOnly, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, libc::packet_mreq
);

/// A capture that is sent instead of packets that are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// As it was named.
    pub file: String,
    /// Its frames.
    pub capture: Arc<Capture>,
    /// How many times as fast as it was captured; none: at the rate that is wanted.
    pub multiplier: Option<f64>,
    /// How often, where neither a time nor a count is wanted.
    pub rounds: u32,
}

impl Replay {
    /// When frames go.
    pub(super) fn round(&self, wanted: &Wanted, speed: Option<LinkSpeed>) -> Result<Round, Error> {
        let pace = match self.multiplier {
            Some(times) => Pace::Multiplier(times),
            None => Pace::Pps(wanted.rate.packets_per_second(self.mean_bytes(), speed)?),
        };
        Ok(self.capture.round(pace))
    }

    pub(super) fn schedule(&self, wanted: &Wanted, speed: Option<LinkSpeed>) -> Result<Schedule, Error> {
        let round = self.round(wanted, speed)?;
        // As captured, more or fewer may be due in a time than the mean rate says.
        let due = wanted.duration.and_then(|time| round.due_within(time));
        let whole = self.capture.frames.len() as u64 * u64::from(self.rounds);
        let packets = [wanted.packets, due].into_iter().flatten().min();
        let packets = packets.or(wanted.duration.is_none().then_some(whole));
        let duration = if due.is_some() { None } else { wanted.duration };
        Ok(Schedule { pps: round.pps(), burst: 1, packets, duration })
    }

    /// Of a frame, with FCS.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.capture.mean_bytes() + f64::from(FCS_BYTES)
    }

    pub(super) fn name(&self) -> String {
        let (frames, largest) = (self.capture.frames.len(), self.capture.largest());
        format!("{}: {frames} frames of {largest} bytes at most, without FCS", self.file)
    }
}

/// Has a device of the caller's namespace take all that comes, as long as what is returned is open.
pub(super) fn promiscuous(ifname: &str, ifindex: u32) -> Result<OwnedFd, Error> {
    let told = |e: nix::Error| Error::Machine(format!("{ifname}: taking frames that are for others: {e}"));
    let kind = SockType::Raw;
    let socket = socket::socket(AddressFamily::Packet, kind, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>)
        .map_err(told)?;
    let wanted = libc::packet_mreq {
        mr_ifindex: ifindex as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    socket::setsockopt(&socket, Membership, &wanted).map_err(told)?;
    Ok(socket)
}
