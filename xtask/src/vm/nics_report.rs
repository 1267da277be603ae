//! `cargo xtask nics`: runs Shunt on each NIC that QEMU emulates and the kernel drives, and writes docs/nics.md.

use super::{in_guest, kernels::WITH_DRIVERS, today};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write, fs};

/// Run Shunt on each NIC that QEMU emulates and write docs/nics.md.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Time limit for one NIC, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
    /// Try only NICs of these QEMU models, and print the rows
    #[arg(long, value_name = "MODEL")]
    only: Vec<String>,
}

/// What it is, QEMU's model, and the driver's module.
const NICS: [(&str, &str, &str); 9] = [
    ("virtio-net", "virtio-net-pci", "virtio_net"),
    ("virtio-net without mergeable buffers", "virtio-net-pci,mrg_rxbuf=off", "virtio_net"),
    ("virtio-net with several queues", "virtio-net-pci,mq=on,vectors=10", "virtio_net"),
    ("VMware vmxnet3", "vmxnet3", "vmxnet3"),
    ("Intel 82574L", "e1000e", "e1000e"),
    ("Intel 82576", "igb", "igb"),
    ("Intel 82540EM", "e1000", "e1000"),
    ("Realtek RTL8139", "rtl8139", "8139cp"),
    ("DEC 21143", "tulip", "tulip"),
];

/// What the script says instead of an engine if there is no NIC.
const MISSING: &str = "missing";
/// What the script says instead of an engine about `shunt check`.
const CHECK: &str = "check";

/// The traffic of the cells with the instructions per packet.
const TRAFFIC: [&str; 2] = ["udp", "tcp"];

const COLUMNS: [&str; 7] = ["auto", "tc", "xdp", "external", TRAFFIC[0], TRAFFIC[1], CHECK];

/// A row of the page.
struct NicRow {
    what: &'static str,
    module: &'static str,
    /// The cells by engine, or why there are none.
    cells: Result<BTreeMap<String, String>, String>,
}

/// Tries all NICs, one after the other.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let wanted = |model: &str| options.only.is_empty() || options.only.iter().any(|only| only == model);
    let mut seen = Vec::new();
    for (what, model, module) in NICS.into_iter().filter(|(_, model, _)| wanted(model)) {
        eprintln!("{what}");
        let cells = cells(model, module, options.timeout).map_err(|why| {
            eprintln!("{what}: {why:#}");
            let cause = why.root_cause().to_string();
            cause.lines().next().and_then(|line| line.rsplit(": ").next()).unwrap_or("?").to_owned()
        });
        seen.push(NicRow { what, module, cells });
    }
    ensure!(
        !seen.is_empty(),
        "no such model; expected one of {}",
        NICS.map(|(_, model, _)| model).join(", ")
    );
    if !options.only.is_empty() {
        print!("{}", table(&seen));
        return Ok(());
    }
    let path = crate::vm::docs("nics.md");
    fs::write(&path, page(&seen)).with_context(|| path.display().to_string())
}

/// The lines that the script prints in a guest with such NICs: each a name and the rest.
fn lines(
    model: &str,
    arguments: &[&str],
    timeout: u64,
    count: bool,
) -> anyhow::Result<Vec<(String, String)>> {
    let script = include_str!("../../../tests/vm/nics.sh");
    let command = [&["sh", "-c", script, "nics.sh"], arguments].concat();
    let options = super::Options::on_kernel(&WITH_DRIVERS, timeout, None, &command);
    let mut output = Vec::new();
    let code = in_guest(&super::Options { nics: Some(model.to_owned()), count, ..options }, &mut output)?;
    ensure!(code == 0, "the script ended with {code}");
    let output = String::from_utf8_lossy(&output);
    let lines = output.lines().filter_map(|line| line.split_once('\t'));
    Ok(lines.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect())
}

/// The cells for a NIC by engine.
fn cells(model: &str, module: &str, timeout: u64) -> anyhow::Result<BTreeMap<String, String>> {
    let mut cells: BTreeMap<String, String> = lines(model, &[module], timeout, false)?
        .into_iter()
        .map(|(name, rest)| {
            let cell = match name.as_str() {
                MISSING => rest,
                CHECK => checked(&rest)?,
                _ => cell(&rest)?,
            };
            Ok((name, cell))
        })
        .collect::<anyhow::Result<_>>()?;
    if let Some(why) = cells.get(MISSING) {
        bail!("{why}");
    }
    let counted = lines(model, &[module, "cost"], timeout, true)?;
    for traffic in TRAFFIC {
        cells.insert(traffic.to_owned(), cost(&counted, traffic)?);
    }
    Ok(cells)
}

/// The instructions per packet of Linux alone and of each engine that runs, with one kind of traffic.
fn cost(lines: &[(String, String)], traffic: &str) -> anyhow::Result<String> {
    let of_traffic = lines.iter().filter_map(|(name, rest)| {
        let (name, its_traffic) = name.split_once(' ')?;
        (its_traffic == traffic).then_some((name, rest))
    });
    let per_packet = of_traffic.map(|(name, rest)| {
        let (ran, packets) = rest.split_once('\t').context("a line without packets")?;
        let (ran, packets): (f64, f64) = (ran.parse()?, packets.parse()?);
        ensure!(packets > 0.0, "{name}: no packets");
        Ok(format!("{name} {:.0}", ran / packets))
    });
    Ok(per_packet.collect::<anyhow::Result<Vec<_>>>()?.join(", "))
}

/// What a line of the script says about an engine.
fn cell(line: &str) -> anyhow::Result<String> {
    let Some((before, after)) = line.split_once('\t') else {
        // A warning may precede the error.
        return Ok(line.trim().rsplit("shunt: ").next().unwrap_or_default().to_owned());
    };
    let [before, after] = [before, after].map(serde_json::from_str::<Value>);
    let (before, after) = (before.context("the first status")?, after.context("the second status")?);
    let packets = |kind: &str| -> f64 {
        let of = |status: &Value| status["packets"][kind].as_f64().unwrap_or_default();
        of(&after) - of(&before)
    };
    let (fast, slow, dropped) = (packets("fast"), packets("slow"), packets("dropped"));
    let port = &after["ports"][0];
    let text = |key: &str| port[key].as_str().unwrap_or("?");
    let mut cell =
        format!("{}: {:.1} % fast", text("engine"), fast / (fast + slow + dropped).max(1.0) * 100.0);
    if dropped > 0.0 {
        let _ = write!(cell, ", {dropped} dropped");
    }
    // The first part: the rest is about the packets of this run.
    let reason = text("engine_reason").split(';').next().unwrap_or_default();
    if !reason.contains("configuration") {
        let _ = write!(cell, " ({reason})");
    }
    Ok(cell)
}

/// How many cases of `shunt check` passed, and which did not.
fn checked(json: &str) -> anyhow::Result<String> {
    let report: Value = serde_json::from_str(json).context("the output of shunt check")?;
    let cases = report["cases"].as_array().context("no cases")?;
    let named = |outcome: &str| -> Vec<&str> {
        let of_outcome = cases.iter().filter(|case| case["outcome"] == outcome);
        of_outcome.filter_map(|case| case["case"].as_str()).collect()
    };
    let mut text = format!("{} pass", named("pass").len());
    for (outcome, name) in [("fail", "FAIL"), ("error", "ERROR"), ("impossible", "impossible")] {
        let cases = named(outcome);
        if !cases.is_empty() {
            let _ = write!(text, "; {name}: {}", cases.join(", "));
        }
    }
    Ok(text)
}

fn table(seen: &[NicRow]) -> String {
    let mut text =
        "| NIC | driver | `auto` | `tc` | `xdp` | `external` | instructions per packet, UDP | the same, TCP | `shunt check` |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for NicRow { what, module, cells } in seen {
        let _ = match cells {
            Ok(cells) => {
                let cells = COLUMNS.map(|column| cells.get(column).map_or("not tried", String::as_str));
                writeln!(text, "| {what} | {module} | {} |", cells.join(" | "))
            }
            Err(why) => writeln!(text, "| {what} | {module} | could not be tried: {why} | | | | | | |"),
        };
    }
    text
}

fn page(seen: &[NicRow]) -> String {
    format!(
        "<!-- @generated by `cargo xtask nics` -->\n# NICs\n\n\
         Shunt on the NICs that QEMU emulates, on Debian's {} of {}, tried on {}. A guest forwards UDP packets of 64 bytes\n\
         in both directions between two wires, with a stateful nftables ruleset. Each cell has the engine that forwarded, the share of\n\
         packets on the fast path, and why the engine was chosen, or the error of `shunt up`. Generic XDP is not used on any driver: it\n\
         copies each packet and costs more than tc. Guests are emulated, so no times were measured. Guests have one CPU,\n\
         or two if their NICs have several queues: virtio_net then receives on two pairs of queues, and on four while an XDP program is attached. The\n\
         wires are QEMU's hubs, or TAP devices on bridges for NICs with several queues.\n\n\
         The external engine copies packets on these NICs, except on the 82576, which QEMU has from version 8 on: `make zero-copy-test` has it forward\n\
         with zero copy between two of them, and with copies between one and a veth. That was tried with QEMU 10.0.2.\n\n\
         The instructions per packet are those of the threads that poll the router's two NICs, in a guest that counts instructions: for bursts of\n\
         32 UDP packets from both sides, and for a TCP stream in bursts of 32 frames of the MTU, which the router's GRO merges unless XDP takes\n\
         them. They include the driver's instructions, but say nothing about the cost of the hardware.\n\n\
         The last column has the outcomes of the [cases](guide/check.md) of `shunt check` between two NICs. The\n\
         failures are real: QEMU 7.2 cuts aggregates of e1000e and vmxnet3 into IP fragments instead of TCP segments, and its vmxnet3 receives 802.1ad\n\
         tags as 802.1Q tags; virtio_net without mergeable buffers accepts an MTU of 9000, but loses such frames; 8139cp counts received bytes without\n\
         the Ethernet header; tulip loses frames while multicast groups change. The 82540EM passed `pause` in one of three runs.\n\n{}",
        WITH_DRIVERS.package,
        WITH_DRIVERS.suite.name,
        today(),
        table(seen)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_engines_cell_has_the_engine_the_share_and_the_reason() {
        let status = |fast, slow, reason: &str| {
            let port = json!({"engine": "tc", "engine_reason": reason});
            json!({"ports": [port], "packets": {"fast": fast, "slow": slow, "dropped": 0}})
        };
        let line = |reason| format!("{}\t{}", status(10, 5, reason), status(1000, 15, reason));
        assert_eq!(cell(&line("chosen by configuration")).unwrap(), "tc: 99.0 % fast");
        assert_eq!(
            cell(&line("e1000 has no native XDP")).unwrap(),
            "tc: 99.0 % fast (e1000 has no native XDP)"
        );
        assert_eq!(cell("shunt: port r0: no native XDP ").unwrap(), "port r0: no native XDP");
        assert!(cell("a\tb").is_err());
    }

    #[test]
    fn the_cost_is_divided_by_the_packets() {
        let line = |name: &str, rest: &str| (name.to_owned(), rest.to_owned());
        let lines = [line("linux udp", "100000\t10"), line("linux tcp", "7\t1"), line("tc udp", "60040\t10")];
        assert_eq!(cost(&lines, "udp").unwrap(), "linux 10000, tc 6004");
        assert_eq!(cost(&lines, "tcp").unwrap(), "linux 7");
        assert!(cost(&[line("linux udp", "1\t0")], "udp").is_err());
    }

    #[test]
    fn the_cell_of_the_checks_names_what_did_not_pass() {
        let case = |case: &str, outcome: &str| json!({"case": case, "outcome": outcome});
        let report = json!({"cases": [
            case("link", "pass"), case("mtu", "fail"), case("rings", "impossible"), case("pause", "impossible"),
        ]});
        assert_eq!(checked(&report.to_string()).unwrap(), "1 pass; FAIL: mtu; impossible: rings, pause");
        assert!(checked("{}").is_err());
    }
}
