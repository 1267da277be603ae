//! Shunt on the ports of a router.

use anyhow::{Context, anyhow};
use shunt_api::Status;
use shunt_testkit::{NetNs, Shuntd, ShuntdBuilder, tree::built, wait_for};
use std::time::Duration;

/// More than a daemon takes that rests after a second.
const REST_LIMIT: Duration = Duration::from_secs(30);

/// Starts the daemon that `make build` has built, on the ports r0 and r1, with this engine and these lines of
/// configuration.
pub fn start(router: &NetNs, engine: &str, config: &str) -> anyhow::Result<Shuntd> {
    // A port that is named stays a port when it loses its address.
    launch(Shuntd::on(router).port("r0").port("r1"), engine, config)
}

/// As [`start`], on the ports that the daemon chooses.
pub fn start_on_its_ports(router: &NetNs, engine: &str, config: &str) -> anyhow::Result<Shuntd> {
    launch(Shuntd::on(router), engine, config)
}

fn launch(builder: ShuntdBuilder<'_>, engine: &str, config: &str) -> anyhow::Result<Shuntd> {
    let builder = builder.engine(engine).config(config).usual_max_flows();
    let started = builder.program(&built("shuntd")?.to_string_lossy()).try_start();
    started.map_err(|(status, log)| anyhow!("shuntd: {status}: {}", log.trim()))
}

/// Starts the daemon with these lines of configuration, and waits until all its ports rest.
pub fn start_to_rest(router: &NetNs, config: &str) -> anyhow::Result<Shuntd> {
    let shuntd = start(router, "xdp", config)?;
    let rests = |status: &Status| status.ports.iter().all(|port| port.rests && !port.xdp_attached);
    let asked =
        wait_for(REST_LIMIT, || shuntd.try_status().map(|status| rests(&status).then_some(())).transpose());
    asked.with_context(|| format!("shuntd does not rest: {}", shuntd.log()))??;
    Ok(shuntd)
}

/// Stops the daemon.
pub fn stop(shuntd: Shuntd) -> anyhow::Result<()> {
    shuntd.try_stop().map_err(anyhow::Error::msg)
}

/// Number of packets on the fast path so far.
pub fn fast_packets(shuntd: &Shuntd) -> anyhow::Result<u64> {
    Ok(shuntd.try_status()?.packets.fast)
}

/// The engine of a port, and the reason for it.
pub fn engine_of(status: &Status, port: &str) -> anyhow::Result<(String, String)> {
    let port = status.ports.iter().find(|one| one.name == port).with_context(|| format!("no port {port}"))?;
    Ok((port.engine.to_string(), port.engine_reason.clone()))
}
