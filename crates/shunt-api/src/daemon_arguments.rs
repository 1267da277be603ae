//! The command line of the daemon, which its manual page describes, too.

use clap::Parser;
use std::path::PathBuf;

/// Forwards established connections past the network stack, the way Linux has accepted, translated and routed them.
#[derive(Debug, Parser)]
#[command(name = "shuntd", version)]
pub struct DaemonArguments {
    /// The name of this instance; its socket and log are named after it.
    #[arg(long, default_value = "default")]
    pub instance: String,
    /// The configuration file [default: /etc/shunt/shunt.toml, if it exists]
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// The engine: auto, tc, xdp or external [default: as configured]
    #[arg(long)]
    pub engine: Option<String>,
    /// A port; may be given several times [default: the devices that forward traffic]
    #[arg(long = "port")]
    pub ports: Vec<String>,
    /// Remove what a killed daemon may have left behind, and exit; fails if the instance is running.
    #[arg(long)]
    pub cleanup: bool,
    /// Print what would be attached to which port, and why, as JSON; then exit. Attaches nothing to any device.
    #[arg(long, conflicts_with = "cleanup")]
    pub dry_run: bool,
    /// Print what this kernel, its devices and its ruleset allow, as JSON; then exit. Attaches nothing to any device.
    #[arg(long, conflicts_with_all = ["cleanup", "dry_run"])]
    pub probe: bool,
    /// The core of the external engine [default: as configured]
    #[arg(long)]
    pub core: Option<u32>,
    /// A port for the external engine, if --engine is another one; may be given several times [default: as configured]
    #[arg(long = "external-port")]
    pub external_ports: Vec<String>,
    /// Be the process of the external engine. The daemon starts it.
    #[arg(long, hide = true, exclusive = true)]
    pub external_engine: bool,
    /// Take over from the daemon that starts this process: `shunt restart`.
    #[arg(long, hide = true, conflicts_with_all = ["cleanup", "dry_run", "probe"])]
    pub successor: bool,
    /// Start the daemon that takes over, print its process ID, and exit, so that the new one is a child of process 1:
    /// a service manager watches only its own.
    #[arg(long, hide = true, conflicts_with_all = ["cleanup", "dry_run", "probe", "successor"])]
    pub launch_successor: bool,
    /// Wait for the daemon that has taken over from this process, pass signals on to it, and end with it: whoever
    /// started this process watches it.
    #[arg(long, hide = true, conflicts_with_all = ["cleanup", "dry_run", "probe", "successor", "launch_successor"])]
    pub await_successor: bool,
    /// Print the names of the devices that would be ports, as JSON; then exit. Needs no root.
    #[arg(long, conflicts_with_all = ["cleanup", "dry_run", "probe"])]
    pub list_ports: bool,
    /// Print what hosts had used when the last daemon wrote its file, as JSON; then exit. QUERY is that of `GET
    /// /v1/usage`, in JSON. Needs no root if the file can be read.
    #[arg(long, hide = true, value_name = "QUERY", conflicts_with_all = ["cleanup", "dry_run", "probe"])]
    pub kept_usage: Option<String>,
    /// Print the history when the last daemon wrote its file, as JSON; then exit. QUERY is that of `GET /v1/history`,
    /// in JSON. Needs no root if the file can be read.
    #[arg(long, hide = true, value_name = "QUERY", conflicts_with_all = ["cleanup", "dry_run", "probe"])]
    pub kept_history: Option<String>,
    /// Write a small file with the types that learning reads, for a kernel without BTF, and exit. FILE is BTF of that
    /// kernel: vmlinux with a .BTF section (pahole --btf_encode), or a file of BTF. If connection tracking is a module,
    /// also give nf_conntrack.ko. The new file is named after the kernel's build ID; put it into /etc/shunt/btf on
    /// machines with this kernel. Needs no root.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["cleanup", "dry_run", "probe", "list_ports"])]
    pub reduce_btf: Vec<PathBuf>,
    /// The build ID of the kernel, if FILE is not of the running one; see readelf -n vmlinux
    #[arg(long, value_name = "ID", requires = "reduce_btf")]
    pub build_id: Option<String>,
}
