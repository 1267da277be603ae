use super::*;
use crate::{Doubt, Limit, Position, Run, Spread, SpreadKind};
use std::{fs::Permissions, os::unix::fs::PermissionsExt};

fn begun(path: &Path) -> ResultsFile {
    ResultsFile::begin(path.to_owned(), Results::new("throughput", Conditions::of_this_machine())).unwrap()
}

fn refusal(text: &str) -> String {
    Results::parse(text).unwrap_err().to_string()
}

fn some_json() -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut file = begun(&path);
    file.add("rate", "pps", 12.5).unwrap();
    file.add_doubt("rate", Doubt::Clock { cpu: 1, percent: 83.0 });
    file.finish().unwrap();
    fs::read_to_string(path).unwrap()
}

#[test]
fn results_are_on_disk_after_each_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut file = begun(&path);
    assert_eq!(Results::read(&path).unwrap().readings.len(), 0);
    for (n, value) in [2.0, 9.0, 4.0].into_iter().enumerate() {
        file.add("rate", "pps", value).unwrap();
        file.add_doubt("rate", Doubt::OneCore);
        file.set_limit("rate", Limit { value: 10.0, of: "100 Mbit/s".to_owned() });
        // A run has several values, and one write.
        assert_eq!(Results::read(&path).unwrap().readings.get("rate").map_or(0, |rate| rate.runs.len()), n);
        file.save().unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!((read.readings["rate"].runs.len(), read.complete), (n + 1, false));
    }
    // Interrupted here, this is what there is.
    let reading = &Results::read(&path).unwrap().readings["rate"];
    assert_eq!((reading.value, reading.spread.high, &reading.doubts[..]), (4.0, 9.0, &[Doubt::OneCore][..]));
    assert_eq!(reading.share(5.0), Some(0.5));
    file.add_missing("latency", "no clock".to_owned());
    let whole = file.finish().unwrap();
    assert!(whole.complete);
    assert_eq!(Results::read(&path).unwrap(), whole);
    // Nothing but the file stays.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_measurement_that_fails_within_a_run_keeps_the_values_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut file = begun(&path);
    file.add("rate", "pps", 12.5).unwrap();
    drop(file);
    let kept = Results::read(&path).unwrap();
    assert_eq!((kept.readings["rate"].value, kept.complete), (12.5, false));
}

#[test]
fn the_file_has_its_format_and_version() {
    let value: serde_json::Value = serde_json::from_str(&some_json()).unwrap();
    assert_eq!((&value["format"], &value["version"]), (&"shunt-result".into(), &1.into()));
    let reading = &value["readings"]["rate"];
    assert_eq!(
        (&reading["value"], &reading["unit"], &reading["spread"]["kind"]),
        (&12.5.into(), &"pps".into(), &"range".into())
    );
    assert_eq!(reading["doubts"][0], serde_json::json!({"kind": "clock", "cpu": 1, "percent": 83.0}));
    let run = &reading["runs"][0];
    assert_eq!(
        (&run["value"], run["at"].as_str().map(str::len)),
        (&12.5.into(), Some("2026-01-01T00:00:00.000Z".len()))
    );
}

#[test]
fn a_file_cut_at_any_byte_is_reported_as_truncated() {
    let text = some_json();
    let whole = text.trim_end();
    for end in 1..whole.len() {
        let why = refusal(&whole[..end]);
        assert!(why.starts_with("the file ends early, after "), "{end}: {why}");
    }
    assert!(Results::parse(whole).is_ok());
}

#[test]
fn other_files_and_other_versions_have_distinct_errors() {
    let text = some_json();
    let newer = text.replacen("\"version\": 1", "\"version\": 2", 1);
    assert_eq!(
        refusal(&newer),
        "format version 2; this Shunt reads version 1: use the Shunt that wrote the file"
    );
    let no_result = "not a Shunt result file, but other JSON: `format` is missing or has another value; \
                     name a file that `--keep` of a measurement wrote";
    for text in ["{}", "[]", "{\"format\": \"other\", \"version\": 1}", "{\"format\": \"shunt-result\"}"] {
        assert_eq!(refusal(text), no_result, "{text}");
    }
    assert!(
        refusal(&text.replacen("\"complete\"", "\"compleat\"", 1))
            .contains("or a damaged one: missing field")
    );
    assert!(refusal("{,}").starts_with("not a file of results, "));
    let missing = Results::read(Path::new("/nonexistent.json")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent.json: No such file"), "{missing}");
}

#[test]
fn additions_of_a_newer_version_are_ignored() {
    let text = some_json().replacen("\"kind\": \"clock\"", "\"kind\": \"full-moon\"", 1);
    let text = text.replacen("\"what\"", "\"weather\": [1], \"what\"", 1);
    assert_eq!(Results::parse(&text).unwrap().readings["rate"].doubts, [Doubt::Unknown]);
}

#[test]
fn a_run_in_another_unit_is_refused_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let mut file = begun(&path);
    file.add("rate", "pps", 1.0).unwrap();
    let why = file.add("rate", "Mbit/s", 1.0).unwrap_err().to_string();
    assert_eq!(why, "rate: a run in Mbit/s after runs in pps");
    assert!(file.add("rate", "pps", f64::NAN).is_err());
    file.save().unwrap();
    assert_eq!(Results::read(&path).unwrap().readings["rate"].runs.len(), 1);
    let nowhere =
        ResultsFile::begin(dir.path().join("no/r.json"), file.results().clone()).unwrap_err().to_string();
    assert!(nowhere.contains("/no/r.json: No such file"), "{nowhere}");
}

#[test]
fn runs_are_added_to_a_file_of_the_same_measurement_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let new = |what| Results::new(what, Conditions::of_this_machine());
    for value in [1.0, 2.0] {
        let mut file = ResultsFile::resume(path.clone(), new("throughput")).unwrap();
        assert!(!file.results().complete);
        file.add("rate", "pps", value).unwrap();
        file.finish().unwrap();
    }
    let values: Vec<_> =
        Results::read(&path).unwrap().readings["rate"].runs.iter().map(|run| run.value).collect();
    assert_eq!(values, [1.0, 2.0]);
    let why = ResultsFile::resume(path, new("load")).unwrap_err().to_string();
    assert_eq!(why, "the file has runs of `throughput`, not of `load`: name another file");
}

#[test]
fn an_existing_file_keeps_its_mode_and_its_link() {
    let dir = tempfile::tempdir().unwrap();
    let new = || Results::new("throughput", Conditions::default());
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let (path, link) = (dir.path().join("r.json"), dir.path().join("link.json"));
    ResultsFile::resume(path.clone(), new()).unwrap().finish().unwrap();
    // As other files that are made here, which those can read for whom the umask leaves it.
    fs::write(dir.path().join("other"), "").unwrap();
    assert_eq!(mode(&path), mode(&dir.path().join("other")));
    fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut file = ResultsFile::resume(link.clone(), new()).unwrap();
    file.add("rate", "pps", 1.0).unwrap();
    file.save().unwrap();
    assert!(link.is_symlink());
    assert_eq!((mode(&path), Results::read(&path).unwrap().readings.len()), (0o660, 1));
}

#[test]
fn a_path_that_is_not_a_regular_file_is_refused() {
    let why = |path: &str| {
        ResultsFile::resume(path.into(), Results::new("throughput", Conditions::default()))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        why("/dev/full"),
        "not a regular file: results are rewritten after each run; name another file"
    );
    assert_eq!(why("/no/r.json"), "/no/r.json: No such file or directory (os error 2)");
}

#[test]
fn an_interval_of_an_earlier_version_is_calculated_again_from_its_runs() {
    let kind = |runs: usize| {
        let values = vec![1.0; runs];
        let reading = Reading::from_runs("1", values.into_iter().map(Run::from).collect()).unwrap();
        let spread = Spread { low: 0.9, high: 1.1, kind: SpreadKind::Confidence95 };
        let mut results = Results::new("bench", Conditions::default());
        results.readings.insert("ratio".to_owned(), Reading { spread, ..reading });
        Results::parse(&results.to_json().unwrap()).unwrap().readings["ratio"].spread
    };
    assert_eq!(kind(2), Spread { low: 1.0, high: 1.0, kind: SpreadKind::Range });
    assert_eq!(kind(6), Spread { low: 1.0, high: 1.0, kind: SpreadKind::Confidence95 });
}

#[test]
fn the_state_of_the_machine_is_recorded_once_a_run() {
    let mut file = ResultsFile::in_memory(Results::new("throughput", Conditions::default()));
    file.add("rate", "pps", 1.0).unwrap();
    assert!(file.results().machine.is_empty());
    file.record_machine();
    for run in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(30));
        file.save().unwrap();
        file.add("rate", "pps", 1.0).unwrap();
        file.add("loss", "%", 1.0).unwrap();
        assert_eq!(file.results().machine.len(), run + 1);
    }
    let read = Results::parse(&file.results().to_json().unwrap()).unwrap();
    assert_eq!(read.machine.len(), 2);
    assert!(read.machine[1].at <= read.readings["rate"].runs[2].at.clone().unwrap());
}

#[test]
fn runs_of_an_earlier_version_have_the_position_that_their_names_say() {
    let mut results = Results::new("traffic", Conditions::default());
    for (name, unit, value) in [
        ("offered g0 to g1", "pps", 5000.0),
        ("latency p99 g0 to g1", "us", 20.0),
        ("offered at 450 kpps", "pps", 450_000.0),
        ("loss at 450 kpps", "%", 1.0),
        ("latency p50 of the generator alone", "us", 2.0),
    ] {
        let reading = Reading::from_runs(unit, vec![Run::from(value)]).unwrap();
        results.readings.insert(name.to_owned(), reading);
    }
    let read = Results::parse(&results.to_json().unwrap()).unwrap();
    let place = |name: &str| {
        let position = read.readings[name].position.as_ref()?;
        Some((position.of.as_str(), position.line.as_str(), position.value))
    };
    assert_eq!(place("latency p99 g0 to g1"), Some(("latency", "p99 g0 to g1", 5000.0)));
    assert_eq!(place("offered g0 to g1"), Some(("offered", "g0 to g1", 5000.0)));
    assert_eq!(place("loss at 450 kpps"), Some(("loss", "loss", 450_000.0)));
    assert_eq!(place("latency p50 of the generator alone"), None);
}

#[test]
fn runs_at_two_rates_have_no_place_together() {
    let mut file = ResultsFile::in_memory(Results::new("traffic", Conditions::default()));
    let at = |pps: f64| {
        let reading = Reading::from_runs("pps", vec![Run::from(pps)]).unwrap();
        Reading { position: Some(Position::at_offered_rate("received", "g0 to g1", pps)), ..reading }
    };
    let place = |file: &ResultsFile| file.results().readings["a"].position.as_ref().map(|at| at.value);
    file.add_all("a", &at(1000.0)).unwrap();
    file.add_all("a", &at(1000.0)).unwrap();
    assert_eq!(place(&file), Some(1000.0));
    file.add_all("a", &at(2000.0)).unwrap();
    assert_eq!(place(&file), None);
}
