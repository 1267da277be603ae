//! The counts of one run, and the cost of a packet.

use anyhow::Context;
use serde::Serialize;
use shunt_lab::{load::RunTime, statistics::quantile};

/// The counts of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Number of UDP flows.
    pub flows: u64,
    /// Size of a frame without FCS, as it arrives at the router.
    pub frame_bytes: u32,
    /// Packets sent by the generator.
    pub sent: u64,
    /// Packets received by the sink.
    pub delivered: u64,
    /// Bytes without FCS received by the sink.
    pub delivered_bytes: u64,
    /// Duration in ns.
    pub elapsed_ns: u64,
    /// CPU time of the router's polling threads.
    pub router: RunTime,
    /// CPU time of the hosts' polling threads.
    pub hosts: RunTime,
    /// CPU time of the generator's thread.
    pub generator: RunTime,
    /// Share of the packets on the fast path; None without a fast path.
    pub fast_share: Option<f64>,
    /// The engine of the egress port and the reason for it; None without Shunt.
    pub engine: Option<(String, String)>,
    /// Router CPU time per delivered packet, for each slice.
    pub slices_ns_per_packet: Vec<f64>,
}

impl Sample {
    /// Router CPU time per delivered packet in ns: the 10th percentile of the slices, because disturbances by the
    /// machine and by its neighbours only add time. Fails if no slice had enough packets.
    pub fn ns_per_packet(&self) -> anyhow::Result<f64> {
        quantile(&self.slices_ns_per_packet, 0.1)
            .context("no slice of the run had enough packets to divide its CPU time by")
    }

    /// Delivered packets per second.
    pub fn packets_per_second(&self) -> f64 {
        self.delivered as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Adds another turn of the same path.
    pub fn add(&mut self, turn: Self) {
        self.sent += turn.sent;
        self.delivered += turn.delivered;
        self.delivered_bytes += turn.delivered_bytes;
        self.elapsed_ns += turn.elapsed_ns;
        self.router = self.router + turn.router;
        self.hosts = self.hosts + turn.hosts;
        self.generator = self.generator + turn.generator;
        self.slices_ns_per_packet.extend(turn.slices_ns_per_packet);
    }
}
