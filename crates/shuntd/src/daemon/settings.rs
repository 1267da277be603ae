//! Writes the configuration into the data plane's control block.

use super::Daemon;
use shunt_api::{ChecksumChoice, MarkMatch};
use shunt_bpf::{Masked, abi};
use shunt_core::Traffic;
use std::time::{Duration, Instant};

/// The age of the heartbeat beyond which packets take the slow path. The daemon beats every half second, so a daemon
/// that hangs is noticed within three seconds.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);
/// How long a packet that is to prove a flow again may take through Linux. If it does not leave in that time, all
/// packets of the flow go to Linux until one leaves.
const PROOF_GRACE: Duration = Duration::from_millis(500);

/// The flags of the data plane that hold learning, each with the traffic that it holds.
pub(super) fn hold_flags() -> [(u32, Traffic); 6] {
    let (v4, v6) = (Traffic::V4, Traffic::V6);
    let answered = Traffic::UDP - Traffic::UNANSWERED;
    [
        (abi::CONTROL_HOLD_TCP4, Traffic::TCP & v4),
        (abi::CONTROL_HOLD_TCP6, Traffic::TCP & v6),
        (abi::CONTROL_HOLD_UDP4, answered & v4),
        (abi::CONTROL_HOLD_UDP6, answered & v6),
        (abi::CONTROL_HOLD_NEW4, Traffic::UNANSWERED & v4),
        (abi::CONTROL_HOLD_NEW6, Traffic::UNANSWERED & v6),
    ]
}

impl Daemon {
    /// Writes everything, and begins with the first epoch.
    pub(super) fn write_settings(&self) {
        self.write_configuration();
        self.plane.control().set_epoch(1);
        self.beat();
    }

    /// Writes the configuration. Flows stay as they are.
    pub(super) fn write_configuration(&self) {
        self.write_rules();
        self.plane.control().set_heartbeat_max(HEARTBEAT_MAX);
        self.write_proof_interval();
    }

    /// Writes what may be learned, and what is verified.
    pub(super) fn write_rules(&self) {
        let control = self.plane.control();
        let flags = if self.config.learn { abi::CONTROL_LEARN } else { 0 }
            | if self.config.udp_unreplied { abi::CONTROL_UDP_UNREPLIED } else { 0 };
        control.set_learning(self.config.udp_packets, self.config.tcp_packets, flags);
        let masked = |mark: Option<MarkMatch>| {
            mark.map(|MarkMatch { value, mask }| Masked { value, mask }).unwrap_or_default()
        };
        control.set_exclusions(masked(self.config.exclude_mark), masked(self.config.exclude_ct_mark));
        control.set_verification(match self.config.verify_checksums {
            ChecksumChoice::Auto => abi::CONTROL_VERIFY_TC,
            ChecksumChoice::Always => {
                abi::CONTROL_VERIFY_TC | abi::CONTROL_VERIFY_XDP | abi::CONTROL_VERIFY_LONG
            }
            ChecksumChoice::Never => 0,
        });
    }

    /// Holds learning from this traffic, and from no other.
    pub(super) fn write_hold(&mut self, held: Traffic) {
        let flags = hold_flags().into_iter().filter(|(_, traffic)| held.meets(*traffic));
        let flags = flags.fold(0, |flags, (flag, _)| flags | flag);
        if self.plane.control().held() & !flags != 0 {
            self.unblocked = Some(Instant::now());
        }
        self.plane.control().set_hold(flags);
    }

    /// Sets how often a flow is proved again. Bridges must see a packet of each flow well within their ageing time, or
    /// they forget the station, and rules that refresh an element of a set well within its timeout. (The data plane
    /// itself takes conntrack's timeouts into account.)
    pub(super) fn write_proof_interval(&self) {
        let every = self
            .core
            .shortest_memory()
            .map_or(self.config.reprove, |memory| self.config.reprove.min(memory / 3));
        self.plane.control().set_proof(every, every + PROOF_GRACE.min(every));
    }
}
