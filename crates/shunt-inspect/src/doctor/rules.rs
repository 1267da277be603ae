//! The table of rules, each with a short function.

mod cpus;
mod hardware;
mod imx6;
mod link;
mod machine;
mod pause;

use super::{Certainty, Finding, System};

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Unique name, printed with findings.
    pub name: &'static str,
    /// The problem, in one line.
    pub title: &'static str,
    /// The effect of the problem on traffic.
    pub cost: &'static str,
    /// The document or measurement that the rule is based on.
    pub source: &'static str,
    check: fn(&System) -> Option<RuleMatch>,
}

/// Evidence and remedy of a rule that applies.
struct RuleMatch {
    evidence: String,
    fix: String,
    certainty: Certainty,
}

impl Rule {
    /// The finding, if the rule applies to this system.
    pub fn apply(&self, system: &System) -> Option<Finding> {
        let seen = (self.check)(system)?;
        Some(Finding {
            rule: self.name.to_owned(),
            title: self.title.to_owned(),
            evidence: seen.evidence,
            cost: self.cost.to_owned(),
            fix: seen.fix,
            source: self.source.to_owned(),
            certainty: seen.certainty,
        })
    }
}

fn seen(certainty: Certainty, evidence: String, fix: impl Into<String>) -> Option<RuleMatch> {
    Some(RuleMatch { evidence, fix: fix.into(), certainty })
}

/// Parts of names of counters of frames for which the receiver had no room; `macerr` counts FIFO overruns of the fec
/// driver. What Intel's NICs count in `rx_no_buffer_count` only waited in their FIFO.
pub(super) const OVERRUNS: [&str; 7] =
    ["rx_fifo", "overrun", "rx_over", "rx_macerr", "rx_missed", "rx_resource", "out_of_buffer"];

/// Packets/s below which interrupts and queues are harmless.
const BUSY_PPS: f64 = 2000.0;
const SCALING: &str = "Linux kernel documentation, networking/scaling";

const IMX6_MEASURED: &str = "i.MX6 gigabit Ethernet measurements, Boundary Devices, December 2012";

/// All rules, in the order of the documentation.
pub const RULES: &[Rule] = &[
    Rule {
        name: "no-pause-threshold",
        title: "this port sends no pause frames, and no fill of its receive FIFO would send one",
        cost: "the FIFO overruns: an i.MX6 received 278 to 347 Mbit/s of 800 to 1000, and 580 to 611 with pause frames and FIFO thresholds together; flow control alone hardly changed it",
        source: IMX6_MEASURED,
        check: pause::no_pause_threshold,
    },
    Rule {
        name: "overruns-without-pause",
        title: "received frames overrun, and no pause frames are sent",
        cost: "each overrun is a lost frame; TCP then backs off",
        source: IMX6_MEASURED,
        check: pause::overruns_without_pause,
    },
    Rule {
        name: "partner-pauses-alone",
        title: "the partner offers pause frames, and this port does not use them",
        cost: "bursts that the receiver has no room for are lost, where a pause would delay them",
        source: "IEEE 802.3 annex 31B",
        check: pause::partner_pauses_alone,
    },
    Rule {
        name: "flow-control-off-in-mac",
        title: "flow control is on in the driver's settings, and not all of it in the MAC's registers",
        cost: "the MAC sends no pause frames, whatever ethtool shows, so its FIFO overruns",
        source: "i.MX 6Dual/6Quad Reference Manual (IMX6DQRM), ENET_RCR.FCE and ENET_RSEM",
        check: pause::flow_control_off_in_mac,
    },
    Rule {
        name: "duplex-mismatch",
        title: "one end of the link is full duplex, and the other half duplex",
        cost: "late collisions and FCS errors under load; a few Mbit/s remain",
        source: "IEEE 802.3 clause 28.2.3.1 (parallel detection assumes half duplex)",
        check: link::duplex_mismatch,
    },
    Rule {
        name: "pause-storm",
        title: "pause frames come or go at a high rate",
        cost: "the side that obeys them stands still for part of the time, and holds up all other traffic of its switch",
        source: "IEEE 802.3 annex 31B: each frame stops the sender for up to 65535 times 512 bit times",
        check: link::pause_storm,
    },
    Rule {
        name: "interrupt-per-packet",
        title: "about one interrupt for each packet",
        cost: "the CPU is busy with entering and leaving interrupts: 3 Mbit/s of 1 Gbit/s were received on an i.MX6 without NAPI",
        source: "i.MX6 gigabit Ethernet measurements, Boundary Devices, December 2012; Linux NAPI documentation",
        check: link::interrupt_per_packet,
    },
    Rule {
        name: "coalescing-off",
        title: "interrupts are not coalesced",
        cost: "at high rates each packet costs an interrupt; at low rates it makes latency small",
        source: "ethtool(8), -c and -C; Linux NAPI documentation",
        check: link::coalescing_off,
    },
    Rule {
        name: "small-ring",
        title: "the receive ring is smaller than it could be",
        cost: "a burst that arrives while the CPU is elsewhere is lost",
        source: "ethtool(8), -g and -G; RFC 2544, back-to-back frames",
        check: link::small_ring,
    },
    Rule {
        name: "interrupts-on-one-cpu",
        title: "one CPU takes all interrupts of the port",
        cost: "one CPU is the limit, and the others idle",
        source: SCALING,
        check: cpus::interrupts_on_one_cpu,
    },
    Rule {
        name: "irq-beside-engine",
        title: "an interrupt of the port goes to the CPU of an external engine",
        cost: "the engine stands still while the interrupt and the stack run",
        source: "ADR 0013 of Shunt: the engine has its core for itself; Linux kernel documentation, core-api/irq/irq-affinity",
        check: cpus::irq_beside_engine,
    },
    Rule {
        name: "queues-share-cpu",
        title: "several queues interrupt one CPU, and another CPU takes none",
        cost: "the queues share one CPU's time",
        source: SCALING,
        check: cpus::queues_share_cpu,
    },
    Rule {
        name: "uneven-queues",
        title: "one receive queue takes most packets",
        cost: "the CPU of that queue is the limit, whatever the others could do",
        source: SCALING,
        check: cpus::uneven_queues,
    },
    Rule {
        name: "remote-node",
        title: "an interrupt goes to a CPU of another NUMA node than the port's",
        cost: "each packet and each descriptor crosses the link between the nodes",
        source: SCALING,
        check: cpus::remote_node,
    },
    Rule {
        name: "backlog-full",
        title: "packets are dropped between the driver and the stack",
        cost: "each drop is a lost packet that no counter of the port has",
        source: "Linux kernel documentation, admin-guide/sysctl/net (netdev_max_backlog)",
        check: cpus::backlog_full,
    },
    Rule {
        name: "softnet-squeezed",
        title: "a CPU stops polling while packets are left",
        cost: "packets wait in the ring until the next turn, and may overrun it",
        source: "Linux kernel documentation, admin-guide/sysctl/net (netdev_budget)",
        check: cpus::softnet_squeezed,
    },
    Rule {
        name: "narrow-pcie",
        title: "the PCIe link has fewer lanes or a lower speed than the port's card",
        cost: "DMA is slower than the line: frames overrun the card",
        source: "PCI Express Base Specification: link training; Neugebauer et al., Understanding PCIe performance for end host networking, SIGCOMM 2018",
        check: hardware::narrow_pcie,
    },
    Rule {
        name: "fec-errors",
        title: "forward error correction fails",
        cost: "each such block is one or more lost frames",
        source: "IEEE 802.3 clauses 74 and 91; ethtool(8), --show-fec",
        check: hardware::fec_errors,
    },
    Rule {
        name: "weak-signal",
        title: "the PHY reports a weak signal",
        cost: "frames arrive damaged, or the link goes down now and then",
        source: "OPEN Alliance TC1: signal quality index; ethtool(8)",
        check: hardware::weak_signal,
    },
    Rule {
        name: "ring-beyond-cache",
        title: "the receive rings' buffers are larger than the cache",
        cost: "each frame is written to memory and read back, instead of staying in the cache",
        source: "Farshin et al., Reexamining Direct Cache Access, USENIX ATC 2020",
        check: hardware::ring_beyond_cache,
    },
    Rule {
        name: "checksum-offload-off",
        title: "the CPU computes checksums that the hardware could compute",
        cost: "each byte of each packet is read once more",
        source: "Linux kernel documentation, networking/checksum-offloads; Sun's hme and qfe drivers passed their tests in time only with it",
        check: link::checksum_offload_off,
    },
    Rule {
        name: "lro-on-router",
        title: "LRO is on, and the machine forwards",
        cost: "LRO merges packets for good: forwarded packets are too long for the next link, or have lost their options",
        source: "Linux kernel documentation, networking/netdevices (dev_disable_lro)",
        check: link::lro_on_router,
    },
    Rule {
        name: "gro-on-router",
        title: "GRO is on, and the machine forwards",
        cost: "with small or unrelated packets, GRO only costs; with long TCP streams it saves more than it costs",
        source: "Linux kernel documentation, networking/segmentation-offloads",
        check: link::gro_on_router,
    },
    Rule {
        name: "mtu-mismatch",
        title: "ports between which the machine forwards have different MTUs",
        cost: "packets are fragmented, or dropped with an ICMP message that many firewalls drop",
        source: "RFC 1191 and RFC 8201 (path MTU discovery)",
        check: machine::mtu_mismatch,
    },
    Rule {
        name: "deep-idle",
        title: "idle states take long to leave",
        cost: "frames wait, or overrun the FIFO, until the CPU wakes: 8 Mbit/s on an i.MX6 in wait mode, 210 without",
        source: "i.MX6 gigabit Ethernet measurements, Boundary Devices, December 2012; Linux kernel documentation, admin-guide/pm/cpuidle",
        check: machine::deep_idle,
    },
    Rule {
        name: "powersave-governor",
        title: "the cpufreq governor keeps the CPU slow",
        cost: "packets/s fall in proportion to the clock",
        source: "Linux kernel documentation, admin-guide/pm/cpufreq",
        check: machine::powersave_governor,
    },
    Rule {
        name: "slow-copies",
        title: "memory is copied slowly",
        cost: "TCP copies each byte at least once: 500 bytes took 340 to 480 us on an Orange Pi with uncached buffers",
        source: "Kyu on the Orange Pi, January 2023; Atmel AVR32705, 2008",
        check: machine::slow_copies,
    },
    Rule {
        name: "err004512",
        title: "an erratum limits the i.MX6's Ethernet MAC",
        cost: "NXP states at most 470 Mbit/s for sent and received traffic together; measured were 462 sent, 278 to 447 received of 600 and more without pause frames, and 580 to 611 received with pause frames and FIFO thresholds (silicon TO1.2: more than 630)",
        source: "Chip Errata for the i.MX 6Dual/6Quad (IMX6DQCE), ERR004512; i.MX6 gigabit Ethernet measurements, Boundary Devices, December 2012",
        check: machine::err004512,
    },
    Rule {
        name: "err005783",
        title: "the i.MX6's Ethernet MAC loses frames among many short ones",
        cost: "the status FIFO overflows with consecutive short frames, and frames are lost without being counted as overruns",
        source: "Chip Errata for the i.MX 6Dual/6Quad (IMX6DQCE), ERR005783",
        check: machine::err005783,
    },
];
