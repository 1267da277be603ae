//! Writes the configuration into the data plane's control block.

use super::Daemon;
use shunt_api::{ChecksumChoice, MarkMatch};
use shunt_bpf::{Masked, abi};
use std::time::Duration;

/// The age of the heartbeat beyond which packets take the slow path. The daemon beats every half second, so a daemon that
/// hangs is noticed within three seconds.
const HEARTBEAT_MAX: Duration = Duration::from_secs(2);
/// How long a packet that is to prove a flow again may take through Linux. If it does not leave in that time, all
/// packets of the flow go to Linux until one leaves.
const PROOF_GRACE: Duration = Duration::from_millis(500);

impl Daemon {
    pub(super) fn write_settings(&self) {
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
        control.set_heartbeat_max(HEARTBEAT_MAX);
        self.write_proof_interval();
        control.set_epoch(1);
        self.beat();
    }

    /// Sets how often a flow is proved again. Bridges must see a packet of each flow well within their ageing time, or
    /// they forget the station. (The data plane itself takes conntrack's timeouts into account.)
    pub(super) fn write_proof_interval(&self) {
        let every =
            self.core.ageing().map_or(self.config.reprove, |ageing| self.config.reprove.min(ageing / 3));
        self.plane.control().set_proof(every, every + PROOF_GRACE.min(every));
    }
}
