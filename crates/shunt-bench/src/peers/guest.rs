//! The part that runs in the guest: measures every path in one setting, and prints one line of JSON for each row.

use super::row::{GuestMessage, Row, Run, total_ns_per_packet};
use crate::rig::{
    path::{Open, Path},
    router_rig::{Placement, Rig},
    sample::Sample,
    setting::Setting,
    ways::Ways,
};
use anyhow::{Context, ensure};
use shunt_testkit::{Host, Topology};
use std::{fs, thread, time::Duration};

/// Measures in a guest that counts instructions.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The setting as JSON.
    #[arg(long)]
    setting: String,
    /// The paths as JSON.
    #[arg(long)]
    paths: String,
    #[arg(long, value_delimiter = ',')]
    flows: Vec<u32>,
    #[arg(long)]
    runs: usize,
}

/// The paths in the order of measuring. Those that need a flow table come last, because its entries stay for a while.
pub const PATHS: [Path; 15] = [
    Path::Slow,
    Path::HookXdp,
    Path::HookIngress,
    Path::HookEgress,
    Path::Hooks,
    Path::HookCount,
    Path::Idle,
    Path::Rest,
    Path::Tc,
    Path::Xdp,
    Path::Bare,
    Path::BareTc,
    Path::XdpForwardFib,
    Path::FlowTable,
    Path::XdpForwardFlowTable,
];

/// Duration of a run in the guest's time.
const RUN_TIME: Duration = Duration::from_millis(40);
/// Number of rounds over all flows after which a path must handle them.
const ROUNDS: usize = 12;
/// Least number of packets in a round.
const ROUND_MIN: u64 = 256;
/// Size of conntrack's table; a guest's default is 65,536.
const CONNECTIONS_MAX: &str = "262144";

/// The daemon has loaded and exchanged the form of the XDP program for the flows in use by then.
const FORM_CHANGE: Duration = Duration::from_secs(10);

pub fn run(options: &Options) -> anyhow::Result<()> {
    let setting: Setting = serde_json::from_str(&options.setting)?;
    let paths: Vec<Path> = serde_json::from_str(&options.paths)?;
    send_message(&GuestMessage::Kernel(fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned()))?;
    fs::write("/proc/sys/net/netfilter/nf_conntrack_max", CONNECTIONS_MAX).context("nf_conntrack_max")?;
    let lab = setting.topology();
    let most = options.flows.iter().copied().max().context("no number of flows")?;
    let mut rig = Rig::with_setting(&lab, setting, most, Placement::OneCpu)?;
    rig.settle()?;
    rig.establish()?;
    let mut baselines = Vec::new();
    for &flows in &options.flows {
        rig.send_only(flows)?;
        rig.sample_without_router(RUN_TIME)?;
        baselines.push(total_ns_per_packet(&rig.sample_without_router(RUN_TIME)?));
    }
    for path in paths {
        let open = open(&lab, setting, path);
        for (&flows, &baseline) in options.flows.iter().zip(&baselines) {
            let runs = match &open {
                Ok(open) => rig
                    .send_only(flows)
                    .and_then(|()| measure(&lab, &mut rig, path, open, options.runs, baseline)),
                Err(e) => Err(anyhow::anyhow!("{e:#}")),
            };
            send_message(&GuestMessage::Row(Row::new(path, setting, flows, runs)))?;
        }
    }
    Ok(())
}

fn open(lab: &Topology, setting: Setting, path: Path) -> anyhow::Result<Open<'_>> {
    ensure!(path != Path::XdpForwardFib || !setting.nat, "xdp-forward -f fib does not translate addresses");
    path.open(lab.router())
}

fn measure(
    lab: &Topology,
    rig: &mut Rig<'_>,
    path: Path,
    open: &Open<'_>,
    runs: usize,
    baseline: f64,
) -> anyhow::Result<Vec<Run>> {
    let router = lab.router();
    rig.settle()?;
    let port = lab.lan().port;
    ensure!(
        path != Path::Xdp || open.has_xdp(port)?,
        "shunt attached no XDP program to {port}; the tc engine forwards instead"
    );
    warm(lab, rig, path)?;
    if path == Path::Xdp {
        thread::sleep(FORM_CHANGE);
    }
    rig.sample(RUN_TIME)?;
    let (mut sampled, mut delivered) = (Vec::new(), 0);
    let (before, fast) = (Ways::read(router)?, open.fast_packets()?);
    for _ in 0..runs {
        let sample = rig.sample(RUN_TIME)?;
        let lost = sample.sent.abs_diff(sample.delivered);
        ensure!(lost * 1000 <= sample.sent, "{lost} of {} packets were lost", sample.sent);
        ensure!(
            sample.delivered_bytes == sample.delivered * leaving_bytes(lab, path, &sample),
            "packets left with {:.1} bytes: the VLAN tag was not changed as expected",
            sample.delivered_bytes as f64 / sample.delivered.max(1) as f64
        );
        delivered += sample.delivered;
        sampled.push(Run::from_sample(&sample, baseline));
    }
    Ways::read(router)?.demand(path, before, delivered)?;
    if let (true, Some((before, after))) = (path.is_fast(), fast.zip(open.fast_packets()?)) {
        let fast = after - before;
        ensure!(fast * 100 >= delivered * 98, "only {fast} of {delivered} packets took shunt's fast path");
    }
    Ok(sampled)
}

/// The size of a packet that has left the router, as the host's XDP program sees it: the tag of an skb is not in the
/// packet's bytes.
fn leaving_bytes(lab: &Topology, path: Path, sample: &Sample) -> u64 {
    let came = u64::from(sample.frame_bytes);
    let tags = |host: &Host| 4 * host.tags.len() as u64;
    match path {
        Path::Bare => came,
        _ if path.is_redirect() => came - tags(lab.lan()) + tags(lab.wan()),
        _ => came - tags(lab.lan()),
    }
}

/// Sends until the packets of all flows take the path.
fn warm(lab: &Topology, rig: &mut Rig<'_>, path: Path) -> anyhow::Result<()> {
    let packets = rig.flows().max(ROUND_MIN);
    let mut taken = Ok(());
    for _ in 0..ROUNDS {
        let before = Ways::read(lab.router())?;
        rig.send(packets)?;
        taken = Ways::read(lab.router())?.demand(path, before, packets);
        if taken.is_ok() {
            break;
        }
    }
    taken
}

fn send_message(said: &GuestMessage) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(said).context("a line for the host")?);
    Ok(())
}
