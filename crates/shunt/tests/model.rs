//! `shunt model` as a process.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use serde_json::Value;
use std::{
    fs,
    process::{Command, Output},
};

fn model(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shunt")).arg("model").args(args).output().unwrap()
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
            "offered_bps": rate * 1518.0 / 1472.0, "directions": [{"figures": figures}],
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
        (&["stories", "nope"], "there are: i.MX6 gigabit Ethernet"),
        (&["cases", "nope"], "unknown case `nope`"),
        (&["fit", &file], "case.toml"),
        (&["fit", "/nonexistent/file"], "/nonexistent/file: No such file"),
    ] {
        let ran = model(args);
        let err = String::from_utf8(ran.stderr).unwrap();
        assert!(!ran.status.success() && ran.stdout.is_empty() && err.contains(wanted), "{args:?}: {err}");
    }
}
