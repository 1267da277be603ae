//! Fast paths that are not ours.

use anyhow::{Context, ensure};
use shunt_testkit::NetNs;
use std::io;

/// Established UDP and TCP go into a flow table before the ruleset sees them, and are found there from then on.
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
/// As the program is called; the guest has it where it looks for programs.
const PROGRAM: &str = "xdp-forward";

/// nf_flowtable on a router, until it is dropped.
#[derive(Debug)]
pub struct FlowTable<'a> {
    router: &'a NetNs,
}

/// xdp-forward on both ports of a router, until it is dropped.
#[derive(Debug)]
pub struct XdpForward<'a> {
    router: &'a NetNs,
}

/// What xdp-forward asks.
#[derive(Debug, Clone, Copy)]
pub enum Mode {
    Fib,
    FlowTable,
}

impl<'a> FlowTable<'a> {
    pub fn on(router: &'a NetNs) -> anyhow::Result<Self> {
        // Nothing leaves it while something else is measured.
        router.try_sysctl("netfilter/nf_flowtable_udp_timeout", 600)?;
        router.try_run(&format!("nft '{TABLE}'"))?;
        Ok(Self { router })
    }
}

impl Drop for FlowTable<'_> {
    fn drop(&mut self) {
        say(self.router.try_run("nft delete table inet shortcut"));
    }
}

impl<'a> XdpForward<'a> {
    pub fn load(router: &'a NetNs, mode: Mode) -> anyhow::Result<Self> {
        let found = router.try_run(&format!("command -v {PROGRAM}"));
        ensure!(found.is_ok(), "no xdp-forward was given; --xdp-forward names one");
        let mode = match mode {
            Mode::Fib => "fib",
            Mode::FlowTable => "flowtable",
        };
        // Alone on a port it needs no program that calls it among others: that would only cost.
        router
            .try_run(&format!("LIBXDP_SKIP_DISPATCHER=1 {PROGRAM} load -f {mode} r0 r1 2>&1"))
            .context("xdp-forward does not load")?;
        Ok(Self { router })
    }
}

impl Drop for XdpForward<'_> {
    fn drop(&mut self) {
        say(self.router.try_run(&format!("{PROGRAM} unload r0 r1 2>&1")));
    }
}

fn say(done: io::Result<String>) {
    if let Err(e) = done {
        eprintln!("{e}");
    }
}
