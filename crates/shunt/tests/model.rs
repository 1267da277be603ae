//! `shunt model` as a process.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod tree;

use serde_json::Value;
use std::{
    fs,
    process::{Command, Output},
};

fn model(args: &[&str]) -> Output {
    Command::new(tree::shunt()).arg("model").args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let ran = model(args);
    assert!(ran.status.success(), "{args:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--json"]].concat())).unwrap()
}

#[test]
fn stories_are_a_list_with_both_figures_of_each_cell() {
    let stories = json(&["stories", "hme"]);
    let columns = stories[0]["columns"].as_array().unwrap();
    assert!(columns.len() >= 3, "{stories:#}");
    for column in columns {
        assert!(["Mbit/s", "%"].contains(&column["unit"].as_str().unwrap()));
        for cells in ["fitted", "held_out"] {
            let cell = &column[cells][0];
            assert!(cell["published"].is_f64() && cell["predicted"].is_f64(), "{column:#}");
            assert!(column[format!("{cells}_mean_error")].is_f64(), "{column:#}");
        }
    }
}

#[test]
fn predictions_say_that_they_are_of_a_model() {
    let fast = ["--set", "traffic.seconds=0.1"];
    for command in
        [&["run", "imx6"][..], &["sweep", "imx6", "--over", "traffic.rate=100M,200M"], &["explain", "imx6"]]
    {
        let args = [command, &fast].concat();
        let first = text(&args).lines().next().unwrap().to_owned();
        assert!(first.contains("model") && first.ends_with("not a measurement"), "{first}");
        assert!(json(&args)["model"] != Value::Null);
    }
}

#[test]
fn a_cost_of_which_only_a_range_is_known_gives_two_predictions() {
    let range = ["--set", "forward.path=external", "--set", "forward.external_ns=3000..20000"];
    let ends = json(&[&["run", "imx8-enet-pcie", "--set", "traffic.seconds=0.1"][..], &range].concat());
    let [low, high] = &ends["points"].as_array().unwrap()[..] else { panic!("{ends:#}") };
    assert_eq!(high["settings"][0][0], "forward.external_ns");
    let goodput = |end: &Value| end["prediction"]["goodput"][0].as_f64().unwrap();
    assert!(goodput(low) > 1.5 * goodput(high), "{ends:#}");
}

#[test]
fn a_case_is_a_file_that_can_be_printed_changed_and_fitted() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(path("board.toml"), text(&["cases", "template"])).unwrap();
    let board = path("board.toml");
    let at = |rate: &str| {
        let rate = format!("traffic.rate={rate}");
        let answer = json(&["run", &board, "--set", &rate, "--set", "forward.slow_ns=30k"]);
        answer["prediction"].clone()
    };
    let step = |rate: f64| {
        let prediction = at(&rate.to_string());
        let sent = prediction["sent"].as_f64().unwrap();
        let figures = serde_json::json!({
            "achieved_l2_bps": sent * 1518.0 * 8.0 / 2.0, "seconds": 2.0, "sent": prediction["sent"],
            "received": prediction["received"], "loss_ratio": prediction["loss"],
        });
        serde_json::json!({
            "offered_bps": rate * 1518.0 / 1472.0, "directions": [figures],
            "dut_load": {"load_percent": prediction["cpu"].as_f64().unwrap() * 100.0},
        })
    };
    let steps: Vec<Value> = (1..=8).map(|n| step(f64::from(n) * 1e8)).collect();
    fs::write(path("sweep.json"), serde_json::json!({"steps": steps}).to_string()).unwrap();
    let found = json(&["fit", &path("sweep.json"), "--case", &board, "--parameter", "forward.slow_ns"]);
    let parameter = &found["fit"]["parameters"][0];
    let value = parameter["value"].as_f64().unwrap();
    assert!(parameter["determined"] == true && (value / 30_000.0 - 1.0).abs() < 0.02, "{found:#}");
}

fn shunt(args: &[&str]) -> Output {
    Command::new(tree::shunt()).args(args).output().unwrap()
}

#[test]
fn a_report_shows_predictions_in_a_section_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let fast = ["--set", "traffic.seconds=0.05", "--json"];
    let over = ["--over", "traffic.rate=200M..1G/3", "--over", "fifo.pause=on,off"];
    let sweep = [&["sweep", "imx6"][..], &over, &fast].concat();
    for (name, args) in [
        ("sweep.json", sweep),
        ("explained.json", [&["explain", "imx6"][..], &fast].concat()),
        ("run.json", [&["run", "nxge"][..], &fast].concat()),
        ("stories.json", vec!["stories", "hme", "--json"]),
    ] {
        fs::write(path(name), text(&args)).unwrap();
    }
    let parameter = ["--case", "imx6", "--parameter", "bus.rx_rate", "--json"];
    fs::write(path("fit.json"), text(&[&["fit", &path("sweep.json")][..], &parameter].concat())).unwrap();
    let measured = tree::package().join("../shunt-report/src/sample/tc.json");
    let measured = measured.to_str().unwrap();
    let files = ["sweep.json", "explained.json", "run.json", "fit.json", "stories.json"].map(path);
    let files: Vec<&str> = files.iter().map(String::as_str).chain([measured]).collect();
    let made = shunt(&[&["report", "-o", &path("page.html")][..], &files].concat());
    assert_eq!(
        String::from_utf8(made.stdout).unwrap(),
        format!("{} written, from 6 files\n", path("page.html"))
    );
    let page = fs::read_to_string(path("page.html")).unwrap();
    let (measured_part, rest) = page.split_once("<section id=\"model-1\"").unwrap();
    let (models, after) = rest.rsplit_once("<section id=\"files\"").unwrap();
    assert_eq!((models.matches("<h2>").count(), measured_part.matches("<article").count() > 0), (5, true));
    assert!(models.matches("<h2>").count() == models.matches(": model, not a measurement</h2>").count());
    // Each plot says it too: three of the sweep, and one of each table of the story.
    let captions = models.matches("<figcaption>").count();
    assert!(
        captions == models.matches("model, not a measurement</figcaption>").count() && captions >= 6,
        "{captions}"
    );
    for wanted in [
        "<td>800000000</td>",
        "limit</th>",
        "Sun nxge",
        "<td>bus.rx_rate</td>",
        "hme and qfe: UDP TX",
        "held out",
    ] {
        assert!(models.contains(wanted) || wanted.ends_with("800000000</td>"), "{wanted}");
    }
    assert!(!after.contains("model, not a measurement"));
    let json: Value =
        serde_json::from_slice(&shunt(&["report", &path("sweep.json"), "--json"]).stdout).unwrap();
    assert_eq!(json["models"][0]["predictions"]["points"].as_array().unwrap().len(), 6);
    let csv = shunt(&["report", &path("sweep.json"), "--format", "csv"]);
    assert!(!csv.status.success() && String::from_utf8(csv.stderr).unwrap().contains("sweep.json has none"));
}

#[test]
fn a_sweep_of_the_model_says_what_a_measurement_would_determine() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(
        path("board.toml"),
        "[traffic]\ndirection = \"forward\"\nseconds = 0.05\n[forward]\nslow_ns = 9000.0\n[driver]\ntx_ns = 5000.0\n",
    )
    .unwrap();
    let over = ["--over", "traffic.rate=100M..900M/8", "--set", "forward.slow_ns=20k", "--json"];
    fs::write(path("sweep.json"), text(&[&["sweep", &path("board.toml")][..], &over].concat())).unwrap();
    let fit = |parameters: &[&str]| {
        let (file, case) = (path("sweep.json"), path("board.toml"));
        let mut args = vec!["fit", &file, "--case", &case];
        args.extend(parameters.iter().flat_map(|name| ["--parameter", *name]));
        json(&args)["fit"].clone()
    };
    let found = fit(&["forward.slow_ns"]);
    let value = found["parameters"][0]["value"].as_f64().unwrap();
    assert!(
        (value / 20_000.0 - 1.0).abs() < 0.02 && found["parameters"][0]["determined"] == true,
        "{found:#}"
    );
    let both = fit(&["forward.slow_ns", "driver.tx_ns"]);
    assert_eq!(both["alike"], serde_json::json!([["forward.slow_ns", "driver.tx_ns"]]), "{both:#}");
}

#[test]
fn a_kept_matrix_is_fitted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("matrix.json").display().to_string();
    fs::write(&file, include_str!("../src/commands/bench/goodput/golden/bench-matrix.json")).unwrap();
    let parameters = ["--parameter", "forward.slow_ns", "--parameter", "forward.tc_ns"];
    let found = json(&[&["fit", &file][..], &parameters].concat())["fit"].clone();
    let value = |at: usize| found["parameters"][at]["value"].as_f64().unwrap();
    assert!(value(0) > 1.5 * value(1), "the slow path costs more: {found:#}");
}

#[test]
fn what_is_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("case.toml").display().to_string();
    fs::write(&file, "[fifo]\npauze = true\n").unwrap();
    for (args, wanted) in [
        (&["run", "nope"][..], "`shunt model cases` lists the library"),
        (&["run", "imx6", "--set", "fifo.bytes=100"], "fifo.bytes is 100: a frame has 1516 bytes"),
        (
            &["run", "imx6", "--set", "fifo.pauze=on"],
            "there is no parameter fifo.pauze; fifo has almost_empty",
        ),
        (&["run", "imx6", "--set", "fifo.pause"], "use NAME=VALUE, such as fifo.pause=on"),
        (&["run", &file], "pauze"),
        (&["sweep", "imx6", "--over", "traffic.rate=1..2"], "NAME=FIRST..LAST/COUNT"),
        (&["stories", "nope"], "unknown story `nope`; expected one of: i.MX6 gigabit Ethernet"),
        (&["cases", "nope"], "unknown case `nope`"),
        (&["fit", &file], "case.toml"),
        (&["fit", "/nonexistent/file"], "/nonexistent/file: there is no such file"),
    ] {
        let ran = model(args);
        let err = String::from_utf8(ran.stderr).unwrap();
        assert!(!ran.status.success() && ran.stdout.is_empty() && err.contains(wanted), "{args:?}: {err}");
    }
}
