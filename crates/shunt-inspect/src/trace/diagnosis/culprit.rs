//! What makes packets slow, or loses them.

use crate::trace::{firewall::ChainPart, softirqs::SoftirqWork};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What delays or drops packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Culprit {
    /// A queueing discipline of a device.
    Qdisc {
        /// Its kind, such as `tbf`; empty if the kernel does not show it.
        qdisc: String,
        /// The device to which it belongs.
        device: String,
    },
    /// A thread is ready to run, and does not get a CPU.
    Cpu {
        /// The thread that waits.
        thread: String,
        /// The thread that had the CPU most of that time; None if it was idle, or not seen.
        holder: Option<String>,
    },
    /// A thread's cgroup has used up its CPU time.
    Throttled {
        /// The thread that waits.
        thread: String,
        /// The name of its cgroup.
        cgroup: String,
    },
    /// A thread lets time pass.
    Sleep {
        /// The thread that sleeps.
        thread: String,
        /// The system call in which it sleeps.
        call: String,
    },
    /// A thread waits for a futex that another thread of its process releases.
    Lock {
        /// The thread that waits.
        thread: String,
        /// The thread that released it.
        holder: String,
    },
    /// A thread waits for something else.
    Blocked {
        /// The thread that waits.
        thread: String,
        /// The system call in which it waits.
        call: String,
        /// The thread that woke it; None if an interrupt did.
        waker: Option<String>,
    },
    /// A thread's receive call copies the data of the packet.
    Copy {
        /// The thread that copies.
        thread: String,
    },
    /// A program runs, outside of the calls that receive and send.
    Program {
        /// The thread that runs.
        thread: String,
    },
    /// Softirqs of a CPU: packets wait for them, or threads wait for them to end.
    Softirq {
        /// The number of the CPU; None if it is unknown.
        cpu: Option<u32>,
        /// What took at least half of their time; None if nothing did, or if it was not seen.
        #[serde(default)]
        work: Option<SoftirqWork>,
    },
    /// Connection tracking refuses packets.
    Conntrack,
    /// A rule of the firewall drops packets.
    Rule {
        /// The hook of netfilter.
        hook: String,
        /// The table and the chain of nftables; None if the kernel does not show it.
        chain: Option<String>,
        /// What drops in the chain; None if more than one rule could have dropped the packets.
        #[serde(default)]
        part: Option<ChainPart>,
    },
    /// A table of iptables drops packets.
    Table {
        /// The hook of netfilter.
        hook: String,
        /// Its name, such as `filter`.
        table: String,
    },
    /// The receive buffer of a socket is full.
    SocketBuffer {
        /// The protocol, and the address to which packets were sent.
        socket: String,
    },
    /// Linux drops packets for another reason.
    Drop {
        /// A name of `enum skb_drop_reason`, or its number.
        reason: String,
    },
    /// Packets are away from this machine before they are answered.
    Outside {
        /// The device by which they left.
        device: String,
    },
    /// A stage of Linux's own.
    Stage {
        /// The name of the stage.
        stage: String,
    },
}

/// A culprit, and what it does to packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// What delays or drops packets.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// How these packets crossed the machine.
    pub path: String,
    /// Mean time that it takes, over all packets of the path, in nanoseconds; None for a loss.
    pub mean_ns: Option<f64>,
    /// Its share of their time, or of the packets.
    pub share: f64,
    /// The number of packets of the path, or that were lost.
    pub packets: usize,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qdisc { qdisc, device } if qdisc.is_empty() => write!(f, "the qdisc of {device}"),
            Self::Qdisc { qdisc, device } => write!(f, "the qdisc {qdisc} of {device}"),
            Self::Cpu { thread, holder: Some(holder) } => {
                write!(f, "`{thread}` waits for a CPU, which `{holder}` has")
            }
            Self::Cpu { thread, holder: None } => write!(f, "`{thread}` waits for a CPU"),
            Self::Throttled { thread, cgroup } => {
                write!(f, "the CPU limit of cgroup `{cgroup}` holds `{thread}` back")
            }
            Self::Sleep { thread, call } => write!(f, "`{thread}` sleeps in {call}"),
            Self::Lock { thread, holder } => write!(f, "`{thread}` waits for a lock, which `{holder}` has"),
            Self::Blocked { thread, call, waker: Some(waker) } => {
                write!(f, "`{thread}` waits in {call}, until `{waker}` wakes it")
            }
            Self::Blocked { thread, call, waker: None } => write!(f, "`{thread}` waits in {call}"),
            Self::Copy { thread } => write!(f, "`{thread}` copies slowly: its receive call takes the time"),
            Self::Program { thread } => {
                write!(f, "`{thread}` runs on the CPU: it computes, or copies in its own memory")
            }
            Self::Softirq { cpu, work } => {
                let cpu = cpu.map_or_else(|| "a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
                write!(f, "softirqs keep {cpu} busy")?;
                work.as_ref().map_or(Ok(()), |work| write!(f, ": {work}"))
            }
            Self::Conntrack => f.write_str("conntrack refuses packets; conntrack -S counts them"),
            Self::Rule { hook, chain: Some(chain), part: None } => {
                write!(f, "the rules of chain `{chain}` (hook {hook}) drop packets")
            }
            Self::Rule { hook, chain: Some(chain), part: Some(ChainPart::Rule(handle)) } => {
                write!(f, "the rule with handle {handle} of chain `{chain}` (hook {hook}) drops packets")
            }
            Self::Rule { hook, chain: Some(chain), part: Some(ChainPart::Policy) } => {
                write!(f, "the policy of chain `{chain}` (hook {hook}) drops packets")
            }
            Self::Rule { hook, chain: None, .. } => write!(f, "netfilter (hook {hook}) drops packets"),
            Self::Table { hook, table } => {
                write!(f, "the iptables table `{table}` (hook {hook}) drops packets")
            }
            Self::SocketBuffer { socket } => {
                write!(f, "the receive buffer of the socket {socket} is full")
            }
            Self::Drop { reason } => write!(f, "Linux drops packets: {reason}"),
            Self::Outside { device } => write!(f, "packets are away from this machine, by {device}"),
            Self::Stage { stage } => write!(f, "the stage `{stage}`"),
        }
    }
}
