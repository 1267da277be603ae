//! Fast paths of other projects.

use anyhow::{Context, ensure};
use shunt_testkit::NetNs;
use std::io;

/// Established UDP and TCP connections are added to a flow table before the ruleset sees them, and bypass the ruleset
/// from then on.
const TABLE: &str = r#"
table inet shortcut {
	flowtable fast {
		hook ingress priority filter; devices = { r0, r1 };
	}
	chain forward {
		type filter hook forward priority filter - 1;
		meta l4proto { tcp, udp } ct state established flow add @fast
	}
}
"#;
/// Name of the program, which the guest has in its PATH.
const PROGRAM: &str = "xdp-forward";

/// nf_flowtable on a router, until this value is dropped.
#[derive(Debug)]
pub struct FlowTable<'a> {
    router: &'a NetNs,
}

/// xdp-forward on both ports of a router, until this value is dropped.
#[derive(Debug)]
pub struct XdpForward<'a> {
    router: &'a NetNs,
}

/// The lookup that xdp-forward makes.
#[derive(Debug, Clone, Copy)]
pub enum Mode {
    Fib,
    FlowTable,
}

impl<'a> FlowTable<'a> {
    pub fn on(router: &'a NetNs) -> anyhow::Result<Self> {
        // Keep entries in the table while something else is measured.
        router.try_sysctl("netfilter/nf_flowtable_udp_timeout", 600)?;
        router.try_run(&format!("nft '{TABLE}'"))?;
        Ok(Self { router })
    }
}

impl Drop for FlowTable<'_> {
    fn drop(&mut self) {
        log_error(self.router.try_run("nft delete table inet shortcut"));
    }
}

impl<'a> XdpForward<'a> {
    pub fn load(router: &'a NetNs, mode: Mode) -> anyhow::Result<Self> {
        let found = router.try_run(&format!("command -v {PROGRAM}"));
        ensure!(found.is_ok(), "no xdp-forward program; give its path with --xdp-forward");
        let mode = match mode {
            Mode::Fib => "fib",
            Mode::FlowTable => "flowtable",
        };
        // The program is alone on its port: skip the dispatcher of libxdp, which would only add cost.
        router
            .try_run(&format!("LIBXDP_SKIP_DISPATCHER=1 {PROGRAM} load -f {mode} r0 r1 2>&1"))
            .context("loading xdp-forward")?;
        Ok(Self { router })
    }
}

impl Drop for XdpForward<'_> {
    fn drop(&mut self) {
        log_error(self.router.try_run(&format!("{PROGRAM} unload r0 r1 2>&1")));
    }
}

fn log_error(done: io::Result<String>) {
    if let Err(e) = done {
        eprintln!("{e}");
    }
}
