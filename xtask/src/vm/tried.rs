//! docs/kernels.md: what Shunt does on each kernel of the list, as it was seen there.

use super::{
    demand_all, in_guest,
    kernels::{KERNELS, Kernel},
    today,
};
use crate::arch::AMD64;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write, fs, io, path::Path, thread};

/// Try Shunt on every kernel of the list, and write what came of it into docs/kernels.md.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long all tests of a program may take together on one kernel.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
    /// Only kernels for this architecture.
    #[arg(long)]
    arch: Option<String>,
    /// Run only the tests that are not `ok` in docs/kernels.md, which keeps the others' results.
    #[arg(long)]
    again: bool,
    /// Run only the tests that `make test` runs on the newest kernel, and write nothing.
    #[arg(long)]
    short: bool,
}

/// What is tried, by the tests' program: how it is called, and the test that tries it.
const TESTS: [(&str, &[(&str, &str)]); 3] = [
    (
        "forwarding",
        &[
            ("UDP over IPv4", "nat::plain_udp_is_the_same"),
            ("TCP over IPv6", "nat::plain_tcp_over_ipv6_is_the_same"),
            ("masquerading, TCP", "nat::masqueraded_tcp_is_the_same"),
            ("LAN on a VLAN device", "vlans::a_tagged_lan_and_an_untagged_wan"),
            ("WAN on a VLAN device", "vlans::an_untagged_lan_and_a_tagged_wan"),
            ("one VLAN to another", "vlans::a_tag_for_another"),
            ("QinQ to one tag", "vlans::two_tags_for_one"),
            ("QinQ to none", "vlans::two_tags_and_none"),
            ("none to QinQ", "vlans::none_and_two_tags"),
            ("tags beside the frame and in it", "vlans::tags_beside_the_frame_and_in_it"),
            ("priority tags", "vlans::priority_tags"),
            ("a bridge that knows VLANs, trunk port", "vlans::a_trunk_port_of_a_bridge_that_knows_vlans"),
            ("a bridge that knows VLANs, access port", "vlans::an_access_port_of_a_bridge_that_knows_vlans"),
            ("a bridge on top of a VLAN device", "vlans::a_bridge_on_top_of_a_vlan_device"),
            ("a qdisc of a VLAN device is not bypassed", "vlans::a_qdisc_of_a_vlan_device_is_not_bypassed"),
            (
                "`auto` goes by fq_codel, cake, prio, htb, fq",
                "forwarding_shapers::auto_goes_by_each_qdisc_that_somebody_asked_for",
            ),
            (
                "`auto` goes by a queue of mq",
                "forwarding_shapers::a_queue_of_mq_that_has_a_qdisc_of_its_own_is_not_bypassed",
            ),
            ("rates: htb with fq_codel", "forwarding_shapers::classes_of_htb_with_fq_codel_get_their_rates"),
            ("rates: cake", "forwarding_shapers::flows_get_their_share_of_cake"),
            ("rates: prio", "forwarding_shapers::bands_of_prio_go_before_one_another"),
            (
                "delay behind fq_codel",
                "forwarding_shapers::a_flow_that_hardly_sends_waits_no_longer_behind_fq_codel",
            ),
            (
                "cake on an ifb, for what comes in",
                "forwarding_shapers::what_an_ifb_shapes_on_the_way_in_stays_slow",
            ),
            ("static flows without BTF", "statics::flows_are_forwarded_without_btf"),
            ("nothing left behind", "a_daemon_that_ends_leaves_nothing_behind"),
        ],
    ),
    (
        "control",
        &[
            (
                "routed over a bridge, a station roams",
                "bridge::a_station_that_roams_gets_its_flows_where_it_is_at_once",
            ),
            (
                "routed over a bridge, states of its ports",
                "bridge::the_state_of_a_port_of_a_bridge_holds_at_once_for_what_is_routed",
            ),
            (
                "bridged, UDP and TCP of both families",
                "bridged::bytes::what_a_bridge_forwards_is_fast_and_the_same_to_the_last_byte",
            ),
            (
                "bridged, with br_netfilter",
                "bridged::bytes::what_conntrack_sees_of_a_bridge_is_fast_as_what_is_routed",
            ),
            (
                "bridged, a station roams",
                "bridged::changes::a_station_that_roams_is_reached_where_it_is_at_once",
            ),
            ("bridged, states of ports", "bridged::changes::the_state_of_a_port_holds_at_once"),
        ],
    ),
    (
        "twin",
        &[
            ("twins, VLANs, Linux alone", "linux_does_the_same_twice"),
            ("twins, VLANs, engine tc", "tc_is_not_to_be_told_from_linux"),
            ("twins, VLANs, engine xdp", "xdp_is_not_to_be_told_from_linux"),
            ("twins, VLANs, engine auto", "the_engine_that_is_chosen_is_not_to_be_told_from_linux"),
        ],
    ),
];
/// Those of them that are about XDP alone.
const OF_XDP: [&str; 2] = [
    "forwarding_shapers::a_queue_of_mq_that_has_a_qdisc_of_its_own_is_not_bypassed",
    "xdp_is_not_to_be_told_from_linux",
];
/// What has not come to an end.
const NOT_RUN: &str = "not run";
/// So many guests at a time.
const GUESTS: usize = 3;
/// Those of them that are worth minutes each time.
const SHORT: [&str; 3] = [
    "nat::masqueraded_tcp_is_the_same",
    "vlans::two_tags_for_one",
    "vlans::a_trunk_port_of_a_bridge_that_knows_vlans",
];

/// What was seen on one kernel.
struct Seen {
    kernel: &'static Kernel,
    release: String,
    date: String,
    /// What is missing, and how `shunt up` ends then.
    without: Vec<(String, String)>,
    status: Value,
    tests: BTreeMap<String, String>,
}

/// Runs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.short {
        let newest = Kernel::named("newest", &AMD64)?;
        return try_short(newest, options.timeout);
    }
    let is_meant =
        |kernel: &&Kernel| options.arch.as_ref().is_none_or(|arch| kernel.arch.name == arch.as_str());
    let kernels: Vec<&'static Kernel> = KERNELS.iter().filter(is_meant).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kernels.md");
    let kept = if options.again { fs::read_to_string(&path)? } else { String::new() };
    let mut seen = Vec::new();
    for some in kernels.chunks(GUESTS) {
        let some: anyhow::Result<Vec<Seen>> = thread::scope(|scope| {
            let run = |kernel: &&'static Kernel| {
                let (kernel, known) = (*kernel, known(&kept, &kernel.to_string()));
                scope.spawn(move || Seen::on(kernel, options.timeout, known))
            };
            let runs: Vec<_> = some.iter().map(run).collect();
            let ends = runs.into_iter().map(|run| run.join());
            ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        seen.extend(some?);
    }
    ensure!(!seen.is_empty(), "the list has no kernel for this architecture");
    fs::write(&path, page(&seen)).with_context(|| path.display().to_string())?;
    let failed = seen.iter().flat_map(|seen| seen.tests.values()).filter(|said| *said != "ok").count();
    ensure!(failed == 0, "{failed} tests have failed: see {}", path.display());
    Ok(())
}

fn try_short(kernel: &Kernel, timeout: u64) -> anyhow::Result<()> {
    if let Err(why) = demand_all(kernel) {
        eprintln!("SKIP kernel {kernel}: {why:#}");
        return Ok(());
    }
    let arguments = [&["--exact"], &SHORT[..]].concat();
    let options = super::Options::of(kernel, timeout, Some("forwarding"), &arguments);
    let code = in_guest(&options, &mut io::stdout())?;
    ensure!(code == 0, "tests have failed on kernel {kernel}");
    Ok(())
}

impl Seen {
    /// With the results of tests that are known already, and need not run again if they were good.
    fn on(
        kernel: &'static Kernel,
        timeout: u64,
        mut tests: BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        eprintln!("kernel {kernel}");
        let mut said = Vec::new();
        let script = super::Options::of(kernel, timeout, None, &["sh", "-c", include_str!("tried.sh")]);
        let code = in_guest(&script, &mut said)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        ensure!(code == 0, "kernel {kernel}: shunt has failed there ({code}): {said}");
        let (release, rest) = said.split_once('\n').context("the guest has said nothing")?;
        let (rows, status): (Vec<&str>, Vec<&str>) = rest.lines().partition(|line| line.contains('\t'));
        let without = rows.into_iter().filter_map(|row| row.split_once('\t'));
        let without = without.map(|(what, end)| (what.to_owned(), end.trim().to_owned())).collect();
        let status = serde_json::from_str(&status.concat()).context("shunt status --json")?;
        for (program, of_program) in TESTS {
            let names = of_program.iter().map(|(_, name)| *name);
            let left: Vec<&str> =
                names.filter(|name| tests.get(*name).is_none_or(|said| said != "ok")).collect();
            if !left.is_empty() {
                tests.extend(run_tests(kernel, timeout, program, &left));
            }
        }
        Ok(Self { kernel, release: release.to_owned(), date: today(), without, status, tests })
    }

    /// What the status says of the first port.
    fn port(&self, field: &str) -> String {
        self.status["ports"][0][field].as_str().unwrap_or("?").to_owned()
    }

    /// What a probe has answered.
    fn probe(&self, name: &str) -> String {
        let probes = self.status["kernel"].as_array().into_iter().flatten();
        let found = probes.into_iter().find(|probe| probe["name"] == name);
        let field = |field: &str| found.and_then(|probe| probe[field].as_str()).unwrap_or_default();
        match field("detail") {
            "" => field("answer").to_owned(),
            detail => format!("{}: {detail}", field("answer")),
        }
    }

    /// How `shunt up` ends where this is missing.
    fn ends_without(&self, what: &str) -> String {
        let end = self.without.iter().find(|(missing, _)| missing == what).map_or("", |(_, end)| end);
        match end.split_once(' ') {
            Some((code, said)) => format!("ends with {code}: {said}"),
            None if end == "0" => "runs".to_owned(),
            None => format!("ends with {end}"),
        }
    }
}

/// Runs the tests of a program on a kernel; by test, what came of it.
fn run_tests(
    kernel: &'static Kernel,
    timeout: u64,
    program: &str,
    names: &[&str],
) -> BTreeMap<String, String> {
    let mut tests: BTreeMap<String, String> =
        names.iter().map(|name| ((*name).to_owned(), NOT_RUN.to_owned())).collect();
    let arguments = [&["--exact"], names].concat();
    let mut said = Vec::new();
    let end = in_guest(&super::Options::of(kernel, timeout, Some(program), &arguments), &mut said);
    let said = String::from_utf8_lossy(&said);
    match end {
        Ok(0) => {}
        Ok(_) => eprintln!("kernel {kernel}: {said}"),
        Err(why) => eprintln!("kernel {kernel}: {why:#}\n{said}"),
    }
    tests.extend(results(&said));
    tests
}

/// What a page has in a kernel's column, by test.
fn known(page: &str, kernel: &str) -> BTreeMap<String, String> {
    let mut rows = page.lines().filter(|line| line.starts_with('|')).map(|line| line.split(" | "));
    let column =
        rows.next().and_then(|mut cells| cells.position(|cell| cell.trim_end_matches(" |") == kernel));
    let Some(column) = column else { return BTreeMap::new() };
    let of_test = |mut cells: std::str::Split<'_, &str>| {
        let test = cells.next()?.strip_suffix("`)")?.rsplit_once("(`")?.1;
        Some((test.to_owned(), cells.nth(column - 1)?.trim_end_matches(" |").to_owned()))
    };
    rows.filter_map(of_test).collect()
}

/// What the test harness says, by test: a line each, `test NAME ... ok`.
fn results(said: &str) -> BTreeMap<String, String> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let ended = lines.filter(|(_, result)| !result.is_empty());
    ended.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
}

fn page(seen: &[Seen]) -> String {
    let mut page = "<!-- @generated by `cargo xtask kernels` -->\n# Kernels\n\n\
        What was seen when Shunt ran on each kernel of the list (`cargo xtask vm --list`), in QEMU without KVM. Probes are those of\n\
        `shunt status`. A test compares the bytes that leave a router with Shunt with those that leave it without, or the rates and delays\n\
        behind a qdisc, by each engine that the kernel has.\n\n"
        .to_owned();
    let mut row = |name: &str, cell: &dyn Fn(&Seen) -> String| {
        let cells: Vec<String> = seen.iter().map(cell).collect();
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    };
    row("", &|seen| seen.kernel.to_string());
    row("---", &|_| "---".to_owned());
    row("release", &|seen| seen.release.clone());
    row("supported until", &|seen| seen.kernel.supported_until.to_owned());
    row("tried on", &|seen| seen.date.clone());
    row("tc programs attached by", &|seen| seen.port("attach"));
    row("engine that `auto` takes for a veth", &|seen| seen.port("engine"));
    row("its reason", &|seen| seen.port("engine_reason"));
    let probes = seen[0].status["kernel"].as_array().into_iter().flatten();
    for name in probes.filter_map(|probe| probe["name"].as_str()) {
        row(&format!("probe: {name}"), &|seen| seen.probe(name));
    }
    for (what, _) in &seen[0].without {
        row(what, &|seen| seen.ends_without(what));
    }
    for (name, test) in TESTS.iter().flat_map(|(_, of_program)| *of_program) {
        row(&format!("{name} (`{test}`)"), &|seen| {
            let has_none = OF_XDP.contains(test) && seen.port("engine") == "tc";
            if has_none { "no XDP".to_owned() } else { seen.tests.get(*test).cloned().unwrap_or_default() }
        });
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{known, results};

    #[test]
    fn a_page_has_the_results_of_each_kernel() {
        let page = "# Kernels\n\n|  | 6.1 | newest |\n| --- | --- | --- |\n| release | 6.1.0 | 7.3 |\n\
            | QinQ to one tag (`vlans::two`) | ok | FAILED |\n";
        assert_eq!(known(page, "6.1")["vlans::two"], "ok");
        assert_eq!(known(page, "newest")["vlans::two"], "FAILED");
        assert!(known(page, "6.12").is_empty());
    }

    #[test]
    fn each_test_has_the_result_that_its_line_ends_with() {
        let said = "\nrunning 2 tests\ntest nat::plain ... ok\ntest vlans::two ... FAILED\n\ntest result: FAILED. 1 passed";
        let tests = results(said);
        assert_eq!(tests.len(), 2);
        assert_eq!((tests["nat::plain"].as_str(), tests["vlans::two"].as_str()), ("ok", "FAILED"));
    }
}
