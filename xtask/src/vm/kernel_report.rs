//! `cargo xtask kernels`: runs Shunt and some of the tests on each kernel of the list, and writes docs/kernels.md.

mod selection;

use super::{
    in_guest,
    kernels::{KERNELS, Kernel},
    require_all, today,
};
use crate::arch::AMD64;
use anyhow::{Context, ensure};
use selection::{SHORT, TESTS, TestsOfPrograms, XDP_ONLY};
use serde_json::Value;
use std::{collections::BTreeMap, env, fmt::Write, fs, io, thread};

/// Run Shunt and some of the tests on every kernel of the list and write docs/kernels.md.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Time limit for all tests of one test program on one kernel, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
    /// Use only kernels for this architecture.
    #[arg(long)]
    arch: Option<String>,
    /// Run only the tests that are not `ok` in docs/kernels.md, and keep the results of the others.
    #[arg(long)]
    again: bool,
    /// Run only the tests that `make test` runs on this kernel, the oldest or the newest, and write nothing.
    #[arg(long, value_name = "K")]
    short: Option<String>,
}

/// The probe of what tests need that need XDP.
const XDP_PROBE: &str = "XDP feature events";
/// Result of a test that did not end.
const NOT_RUN: &str = "not run";
/// Number of guests that run at a time.
const GUESTS: usize = 3;
/// The results on one kernel.
struct KernelResults {
    kernel: &'static Kernel,
    release: String,
    date: String,
    /// A missing feature, and the exit code and error of `shunt up` without it.
    without: Vec<(String, String)>,
    status: Value,
    tests: BTreeMap<String, String>,
}

/// Runs the tests on all kernels, or with `--short` some of them on one.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(kernel) = &options.short {
        let tests = SHORT.into_iter().find_map(|(name, tests)| (name == kernel).then_some(tests));
        let tests = tests.with_context(|| format!("--short has no tests for the kernel {kernel}"))?;
        return try_short(Kernel::named(kernel, &AMD64)?, tests, options.timeout);
    }
    let is_meant =
        |kernel: &&Kernel| options.arch.as_ref().is_none_or(|arch| kernel.arch.name == arch.as_str());
    let kernels: Vec<&'static Kernel> = KERNELS.iter().filter(is_meant).collect();
    let path = crate::vm::docs("kernels.md");
    let kept = if options.again { fs::read_to_string(&path)? } else { String::new() };
    let mut seen = Vec::new();
    for some in kernels.chunks(GUESTS) {
        let some: anyhow::Result<Vec<KernelResults>> = thread::scope(|scope| {
            let run = |kernel: &&'static Kernel| {
                let (kernel, known) = (*kernel, known(&kept, &kernel.to_string()));
                scope.spawn(move || KernelResults::on(kernel, options.timeout, known))
            };
            let runs: Vec<_> = some.iter().map(run).collect();
            let ends = runs.into_iter().map(|run| run.join());
            ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        seen.extend(some?);
        fs::write(&path, page(&seen)).with_context(|| path.display().to_string())?;
    }
    ensure!(!seen.is_empty(), "no kernel in the list for this architecture");
    let failed = seen.iter().flat_map(|seen| seen.tests.values()).filter(|result| *result != "ok").count();
    ensure!(failed == 0, "{failed} tests failed: see {}", path.display());
    Ok(())
}

fn try_short(kernel: &Kernel, tests: TestsOfPrograms, timeout: u64) -> anyhow::Result<()> {
    let is_set = |name: &str| env::var(name).is_ok_and(|value| value == "1");
    if let Err(why) = require_all(kernel) {
        let may_skip = is_set("SHUNT_SKIP_FETCHED") || !is_set("SHUNT_NO_SKIP");
        ensure!(may_skip, "cannot test on kernel {kernel}, and SHUNT_NO_SKIP=1: {why:#}");
        eprintln!("SKIP kernel {kernel}: {why:#}");
        return Ok(());
    }
    for (program, tests) in tests {
        let arguments = [&["--exact"], *tests].concat();
        let options = super::Options::on_kernel(kernel, timeout, Some(program), &arguments);
        let code = in_guest(&options, &mut io::stdout())?;
        ensure!(code == 0, "tests of {program} failed on kernel {kernel}");
    }
    Ok(())
}

impl KernelResults {
    /// Runs Shunt and the tests on a kernel, except the tests whose result in `tests` is `ok`.
    fn on(
        kernel: &'static Kernel,
        timeout: u64,
        mut tests: BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        eprintln!("kernel {kernel}");
        let mut output = Vec::new();
        let script = super::Options::on_kernel(
            kernel,
            timeout,
            None,
            &["sh", "-c", include_str!("../../../tests/vm/kernel.sh")],
        );
        let code = in_guest(&script, &mut output)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        ensure!(code == 0, "kernel {kernel}: the script ended with {code}: {output}");
        let (release, rest) = output.split_once('\n').context("no output from the guest")?;
        let (rows, status): (Vec<&str>, Vec<&str>) = rest.lines().partition(|line| line.contains('\t'));
        let without = rows.into_iter().filter_map(|row| row.split_once('\t'));
        let without = without.map(|(what, end)| (what.to_owned(), end.trim().to_owned())).collect();
        let status = serde_json::from_str(&status.concat()).context("shunt status --json")?;
        for (program, program_tests) in TESTS {
            let names = program_tests.iter().map(|(_, name)| *name);
            let left: Vec<&str> =
                names.filter(|name| tests.get(*name).is_none_or(|result| result != "ok")).collect();
            if !left.is_empty() {
                tests.extend(run_tests(kernel, timeout, program, &left));
            }
        }
        Ok(Self { kernel, release: release.to_owned(), date: today(), without, status, tests })
    }

    /// A field of the first port in the status.
    fn port(&self, field: &str) -> String {
        self.status["ports"][0][field].as_str().unwrap_or("?").to_owned()
    }

    /// The answer of a probe, with its detail.
    fn probe(&self, name: &str) -> String {
        let probes = self.status["kernel"].as_array().into_iter().flatten();
        let found = probes.into_iter().find(|probe| probe["name"] == name);
        let field = |field: &str| found.and_then(|probe| probe[field].as_str()).unwrap_or_default();
        match field("detail") {
            "" => field("answer").to_owned(),
            detail => format!("{}: {detail}", field("answer")),
        }
    }

    /// How `shunt up` ends without a feature.
    fn ends_without(&self, what: &str) -> String {
        let end = self.without.iter().find(|(missing, _)| missing == what).map_or("", |(_, end)| end);
        match end.split_once(' ') {
            // On a busy machine, the daemon may still be starting.
            Some(("0", _)) => "runs".to_owned(),
            None if end == "0" => "runs".to_owned(),
            Some((code, error)) => format!("ends with {code}: {error}"),
            None => format!("ends with {end}"),
        }
    }
}

/// Runs tests of a program on a kernel; returns the result by test name.
fn run_tests(
    kernel: &'static Kernel,
    timeout: u64,
    program: &str,
    names: &[&str],
) -> BTreeMap<String, String> {
    let mut tests: BTreeMap<String, String> =
        names.iter().map(|name| ((*name).to_owned(), NOT_RUN.to_owned())).collect();
    let arguments = [&["--exact"], names].concat();
    let mut output = Vec::new();
    let options = super::Options::on_kernel(kernel, timeout, Some(program), &arguments);
    let end = in_guest(&options, &mut output);
    let output = String::from_utf8_lossy(&output);
    match end {
        Ok(0) => {}
        Ok(_) => eprintln!("kernel {kernel}: {output}"),
        Err(why) => eprintln!("kernel {kernel}: {why:#}\n{output}"),
    }
    tests.extend(results(&output));
    tests
}

/// The results in a kernel's column of the page, by test name.
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

/// The results in the output of libtest, whose lines are `test NAME ... ok`.
fn results(output: &str) -> BTreeMap<String, String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let ended = lines.filter(|(_, result)| !result.is_empty());
    ended.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
}

fn page(seen: &[KernelResults]) -> String {
    let mut page = "<!-- @generated by `cargo xtask kernels` -->\n# Kernels\n\n\
        Results of Shunt on each kernel of the list (`cargo xtask vm --list`), in QEMU without KVM. Probes are those of `shunt status`.\n\
        A test compares the packets that leave a router with Shunt with those that leave it without, or the rates and delays behind a\n\
        qdisc, by each engine that the kernel has.\n\n"
        .to_owned();
    let mut row = |name: &str, cell: &dyn Fn(&KernelResults) -> String| {
        let cells: Vec<String> = seen.iter().map(cell).collect();
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    };
    row("", &|seen| seen.kernel.to_string());
    row("---", &|_| "---".to_owned());
    row("release", &|seen| seen.release.clone());
    row("supported until", &|seen| seen.kernel.supported_until.to_owned());
    row("tried on", &|seen| seen.date.clone());
    row("tc programs attached by", &|seen| seen.port("attach"));
    row("engine that `auto` takes for a veth at first", &|seen| seen.port("engine"));
    row("its reason", &|seen| seen.port("engine_reason"));
    let probes = seen[0].status["kernel"].as_array().into_iter().flatten();
    for name in probes.filter_map(|probe| probe["name"].as_str()) {
        row(&format!("probe: {name}"), &|seen| seen.probe(name));
    }
    for (what, _) in &seen[0].without {
        row(what, &|seen| seen.ends_without(what));
    }
    for (name, test) in TESTS.iter().flat_map(|(_, program_tests)| *program_tests) {
        row(&format!("{name} (`{test}`)"), &|seen| {
            let no_xdp = XDP_ONLY.contains(test) && !seen.probe(XDP_PROBE).starts_with("yes");
            if no_xdp { "no XDP".to_owned() } else { seen.tests.get(*test).cloned().unwrap_or_default() }
        });
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{known, results};

    #[test]
    fn results_are_read_from_the_column_of_a_kernel() {
        let page = "# Kernels\n\n|  | 6.1 | newest |\n| --- | --- | --- |\n| release | 6.1.0 | 7.3 |\n\
            | QinQ to one tag (`vlans::two`) | ok | FAILED |\n";
        assert_eq!(known(page, "6.1")["vlans::two"], "ok");
        assert_eq!(known(page, "newest")["vlans::two"], "FAILED");
        assert!(known(page, "6.12").is_empty());
    }

    #[test]
    fn the_result_of_a_test_is_the_end_of_its_line() {
        let output = "\nrunning 2 tests\ntest nat::plain ... ok\ntest vlans::two ... FAILED\n\ntest result: FAILED. 1 passed";
        let tests = results(output);
        assert_eq!(tests.len(), 2);
        assert_eq!((tests["nat::plain"].as_str(), tests["vlans::two"].as_str()), ("ok", "FAILED"));
    }
}
