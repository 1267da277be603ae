//! Metrics in Prometheus' text format.

use crate::usage::{HostTotals, PathCount};
use nix::time::{ClockId, clock_gettime};
use prometheus::{
    Counter, Encoder, Gauge, GaugeVec, IntCounterVec, Opts, Registry, TextEncoder, core::Collector,
};
use shunt_api::{Bounds, QosStatus, Status};
use shunt_bpf::abi::{Counters, REASONS, ReasonKind};
use shunt_core::Cause;
use std::{collections::BTreeMap, fs, time::Duration};

/// The values that the metrics are made from.
#[derive(Debug, Clone)]
pub struct MetricsSource {
    /// The answer to `shunt status`.
    pub status: Status,
    /// Counters by port name, absent ports included. They never go back while the daemon runs.
    pub ports: BTreeMap<String, Counters>,
    /// The queues of ports, and what they have counted since the external engine started.
    pub queues: Vec<QosStatus>,
    /// What each host of the ledger has sent and received.
    pub hosts: HostTotals,
    /// When the daemon started, since 1970.
    pub started_at: Duration,
}

pub(super) const METRICS_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metrics of one answer.
struct Page(Registry);

impl Page {
    fn add(&self, metric: impl Collector + 'static) -> prometheus::Result<()> {
        self.0.register(Box::new(metric))
    }

    /// Adds counters under one name, one for each row. Rows that are 0 are there, too: a rate needs a first value.
    fn counters<const N: usize>(
        &self,
        (name, help): (&str, &str),
        labels: [&str; N],
        rows: impl IntoIterator<Item = ([String; N], u64)>,
    ) -> prometheus::Result<()> {
        let metric = IntCounterVec::new(Opts::new(name, help), &labels)?;
        for (values, count) in rows {
            metric.get_metric_with_label_values(&values.each_ref().map(String::as_str))?.inc_by(count);
        }
        self.add(metric)
    }

    /// Adds gauges under one name, one for each row.
    fn gauges<const N: usize>(
        &self,
        (name, help): (&str, &str),
        labels: [&str; N],
        rows: impl IntoIterator<Item = ([String; N], f64)>,
    ) -> prometheus::Result<()> {
        let metric = GaugeVec::new(Opts::new(name, help), &labels)?;
        for (values, value) in rows {
            metric.get_metric_with_label_values(&values.each_ref().map(String::as_str))?.set(value);
        }
        self.add(metric)
    }

    fn gauge(&self, name: &str, help: &str, value: f64) -> prometheus::Result<()> {
        let metric = Gauge::new(name, help)?;
        metric.set(value);
        self.add(metric)
    }

    fn traffic(&self, ports: &BTreeMap<String, Counters>) -> prometheus::Result<()> {
        let labels = ["device", "path"];
        let row = |device: &String, path: &str, count| ([device.clone(), path.to_owned()], count);
        let packets = ports.iter().flat_map(|(device, counted)| {
            [
                row(device, "xdp", counted.xdp_pkts),
                row(device, "tc", counted.tc_pkts),
                row(device, "external", counted.external_pkts),
                row(device, "slow", counted.slow_pkts),
                row(device, "dropped", counted.dropped_pkts),
            ]
        });
        let help = "Packets received on a device, by path: the engines xdp, tc and external are the fast path; a GRO or GSO aggregate counts as one.";
        self.counters(("shunt_packets_total", help), labels, packets)?;
        let bytes = ports.iter().flat_map(|(device, counted)| {
            [
                row(device, "xdp", counted.xdp_bytes),
                row(device, "tc", counted.tc_bytes),
                row(device, "external", counted.external_bytes),
                row(device, "slow", counted.slow_bytes),
            ]
        });
        let help = "Bytes received on a device, from the L3 header on, by path.";
        self.counters(("shunt_bytes_total", help), labels, bytes)?;
        let reasons = |kind: ReasonKind| {
            ports.iter().flat_map(move |(device, counted)| {
                let of_kind = REASONS.iter().filter(move |reason| reason.kind == kind);
                of_kind
                    .map(|reason| ([device.clone(), reason.name.to_owned()], counted.reasons[reason.number]))
            })
        };
        let help = "Packets received on a device and handed to Linux, by reason.";
        self.counters(("shunt_punts_total", help), ["device", "reason"], reasons(ReasonKind::Punt))?;
        let help =
            "Packets that Linux forwarded out of a device and from which nothing was learned, by reason.";
        self.counters(("shunt_refusals_total", help), ["device", "reason"], reasons(ReasonKind::Refusal))?;
        let help = "Packets received on a device and lost by the fast path, by reason.";
        self.counters(("shunt_drops_total", help), ["device", "reason"], reasons(ReasonKind::Drop))?;
        let flows = [
            (
                "shunt_flows_learned_total",
                "Flows added to the table.",
                (|c| c.learned) as fn(&Counters) -> u64,
            ),
            ("shunt_flows_proved_total", "Actions that were proved again.", |c| c.proved),
            ("shunt_flows_retired_total", "Flows taken out of use by the data plane.", |c| c.retired),
        ];
        for (name, help, count) in flows {
            let rows = ports.iter().map(|(device, counted)| ([device.clone()], count(counted)));
            self.counters((name, help), ["device"], rows)?;
        }
        Ok(())
    }

    fn queues(&self, queues: &[QosStatus]) -> prometheus::Result<()> {
        let labels = ["device", "class"];
        let classes = || {
            queues.iter().flat_map(|of_port| {
                of_port.classes.iter().map(|class| ([of_port.port.clone(), class.name.clone()], class))
            })
        };
        let help = "Packets that left the queue of a class.";
        let packets = classes().map(|(row, class)| (row, class.sent_packets));
        self.counters(("shunt_queue_packets_total", help), labels, packets)?;
        let help = "Bytes of frames that left the queue of a class.";
        let bytes = classes().map(|(row, class)| (row, class.sent_bytes));
        self.counters(("shunt_queue_bytes_total", help), labels, bytes)?;
        let help = "Packets that the queue of a class dropped: it was full, or CoDel shortened it.";
        let drops = classes().flat_map(|([device, name], class)| {
            let row = |cause: &str, count| ([device.clone(), name.clone(), cause.to_owned()], count);
            [row("full", class.dropped_full), row("codel", class.dropped_codel)]
        });
        self.counters(("shunt_queue_drops_total", help), ["device", "class", "cause"], drops)?;
        let help = "Bytes that wait in the queue of a class.";
        let backlog = classes().map(|(row, class)| (row, class.backlog_bytes as f64));
        self.gauges(("shunt_queue_backlog_bytes", help), labels, backlog)?;
        let policed = queues.iter().map(|of_port| ([of_port.port.clone()], of_port.policer_dropped));
        self.counters(("shunt_policer_drops_total", "Packets that a policer dropped."), ["device"], policed)
    }

    fn state(&self, status: &Status) -> prometheus::Result<()> {
        // Prometheus gives `instance` to each target, so the name of ours is another label.
        let info = [([status.version.clone(), status.instance.clone()], 1.0)];
        self.gauges(
            ("shunt_build_info", "Version and name of the instance; always 1."),
            ["version", "name"],
            info,
        )?;
        let engines = status.ports.iter().map(|port| ([port.name.clone(), port.engine.to_string()], 1.0));
        let help = "The engine by which packets leave through a device; always 1.";
        self.gauges(("shunt_device_info", help), ["device", "engine"], engines)?;
        let links = status.ports.iter().map(|port| ([port.name.clone()], f64::from(u8::from(port.up))));
        self.gauges(("shunt_device_up", "Whether the device is up and has a carrier."), ["device"], links)?;
        let causes = status.slow_causes.len() as f64;
        self.gauge(
            "shunt_slow_causes",
            "Lasting causes that keep traffic slow; `shunt status` names them.",
            causes,
        )?;
        let counts = &status.flows;
        let flows = [
            ("active", counts.active),
            ("pending", counts.pending),
            ("retired", counts.retired),
            ("static", counts.static_),
        ];
        let flows = flows.map(|(state, count)| ([state.to_owned()], count as f64));
        self.gauges(("shunt_flows", "Flows in the table, by state."), ["state"], flows)?;
        self.gauge("shunt_flows_max", "The size of the flow table.", counts.max as f64)?;
        if let Some(step) = &status.longest_step {
            let help = "The longest step of the daemon's event loop in the last minute, by kind of step.";
            let row = [([step.name.clone()], step.seconds)];
            self.gauges(("shunt_longest_step_seconds", help), ["step"], row)?;
        }
        let moves = Cause::ALL.map(|cause| {
            let cause = cause.to_string();
            let count = status.epoch_moves.get(&cause).copied().unwrap_or_default();
            ([cause], count)
        });
        let help = "How often all learned flows were invalidated by a change, by cause.";
        self.counters(("shunt_epoch_moves_total", help), ["cause"], moves)?;
        let help = "Expired flows whose counts are missing from `shunt conntrack`.";
        self.counters(("shunt_counts_lost_total", help), [], [([], status.counts_lost)])?;
        let help = "Lines of the log that could not be written.";
        self.counters(("shunt_log_lines_lost_total", help), [], [([], status.log_lines_lost)])?;
        self.costs(status)?;
        self.savings(status)
    }

    fn costs(&self, status: &Status) -> prometheus::Result<()> {
        if let Some(costs) = &status.costs {
            let help = "Memory of the daemon's maps in the kernel, the flow table among them.";
            self.gauge("shunt_maps_memory_bytes", help, costs.maps_bytes as f64)?;
            if let Some(cores) = costs.programs_cores {
                let help = "Cores that the programs in the kernel use, over ten seconds.";
                self.gauge("shunt_programs_cores", help, cores)?;
            }
            if let Some(cores) = costs.daemon_cores {
                let help = "Cores that the daemon uses, over ten seconds.";
                self.gauge("shunt_daemon_cores", help, cores)?;
            }
            if let Some(week) = &costs.week {
                let row = |part: &str, hours: f64| ([part.to_owned()], hours * 3600.0);
                let rows = [row("daemon", week.daemon_core_hours), row("programs", week.programs_core_hours)];
                let help = "Core seconds that Shunt itself has used within the last seven days.";
                self.gauges(("shunt_cost_week_core_seconds", help), ["part"], rows)?;
            }
        }
        Ok(())
    }

    fn savings(&self, status: &Status) -> prometheus::Result<()> {
        let Some(savings) = &status.savings else { return Ok(()) };
        let rows = |bounds: &Bounds| {
            let row = |which: &str, value: f64| ([which.to_owned()], value);
            [row("value", bounds.value), row("low", bounds.low), row("high", bounds.high)]
        };
        if let Some(cores) = &savings.now_cores {
            let help = "Cores that the fast path saves, over ten seconds; with bounds.";
            self.gauges(("shunt_saved_cores", help), ["bound"], rows(cores))?;
        }
        if let Some(hours) = &savings.week_core_hours {
            let help = "Core seconds that the fast path has saved within the last seven days; with bounds.";
            let seconds = rows(hours).map(|(label, hours)| (label, hours * 3600.0));
            self.gauges(("shunt_saved_week_core_seconds", help), ["bound"], seconds)?;
        }
        if let Some(costs) = &savings.sampling
            && let Some(packets) = costs.packets_cores
        {
            let help = "Cores that the measurement of savings takes, over the last hour.";
            self.gauge("shunt_sampling_cores", help, costs.daemon_cores + packets)?;
        }
        Ok(())
    }

    fn hosts(&self, hosts: &HostTotals) -> prometheus::Result<()> {
        let row = |host: &str, direction: &str, count: u64| ([host.to_owned(), direction.to_owned()], count);
        let listed = hosts.list();
        let rows = listed.iter().flat_map(|(host, count)| {
            [row(host, "sent", count.sent.bytes), row(host, "received", count.received.bytes)]
        });
        let help = "Bytes that a host of the ledger sent or received since it was listed, from the L3 header on; kept across restarts.";
        self.counters(("shunt_host_bytes_total", help), ["host", "direction"], rows)?;
        let rows = listed.iter().flat_map(|(host, PathCount { fast, .. })| {
            [row(host, "sent", fast.sent.bytes), row(host, "received", fast.received.bytes)]
        });
        let help = "The part of shunt_host_bytes_total that took the fast path.";
        self.counters(("shunt_host_fast_bytes_total", help), ["host", "direction"], rows)
    }

    fn process(&self, started_at: Duration) -> prometheus::Result<()> {
        let started_at = started_at.as_secs_f64();
        self.gauge("process_start_time_seconds", "When the daemon started, since 1970.", started_at)?;
        if let Ok(used) = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID) {
            let metric = Counter::new("process_cpu_seconds_total", "CPU time used by the daemon.")?;
            metric.inc_by(Duration::from(used).as_secs_f64());
            self.add(metric)?;
        }
        if let Some(kibibytes) = resident_kibibytes() {
            let help = "Memory of the daemon, without its maps in the kernel.";
            self.gauge("process_resident_memory_bytes", help, kibibytes * 1024.0)?;
        }
        Ok(())
    }
}

fn resident_kibibytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

/// Writes all metrics.
pub(super) fn page(source: &MetricsSource) -> prometheus::Result<Vec<u8>> {
    let page = Page(Registry::new());
    page.state(&source.status)?;
    page.traffic(&source.ports)?;
    page.queues(&source.queues)?;
    page.hosts(&source.hosts)?;
    page.process(source.started_at)?;
    let mut text = Vec::new();
    TextEncoder::new().encode(&page.0.gather(), &mut text)?;
    Ok(text)
}
