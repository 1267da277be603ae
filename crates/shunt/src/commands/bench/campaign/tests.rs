use super::*;
use tempfile::TempDir;

fn resolve(dir: &TempDir, text: &str) -> anyhow::Result<Campaign> {
    let file = dir.path().join("c.toml");
    fs::write(&file, text).unwrap();
    let output = Some(dir.path().join("out"));
    Campaign::resolve(&RunArgs { file: Some(file), output, no_report: false })
}

fn words(text: &str) -> Vec<String> {
    let campaign = resolve(&TempDir::new().unwrap(), text).unwrap();
    campaign.steps.iter().map(|(planned, _)| planned.words[2..].join(" ")).collect()
}

fn refusal(text: &str) -> Failure {
    let dir = TempDir::new().unwrap();
    let failure = resolve(&dir, text).unwrap_err().downcast::<Failure>().unwrap();
    let before = format!("{}: ", dir.path().join("c.toml").display());
    assert!(failure.message.starts_with(&before), "{failure}");
    Failure::new(failure.code, failure.message[before.len()..].to_owned())
}

#[test]
fn keys_become_options_of_the_command() {
    let lines = words(
        "[[step]]\nbench = \"size\"\nsize = [64, 1518]\nboth = true\nruns = 3\nengine = [\"slow\", \"tc\"]\n\
         [[step]]\nbench = \"ndr\"\nquick = false\nrfc2544 = true\nmin-load = 1000.5\n\
         [[step]]\nname = \"one\"\nbench = \"ndr\"\nrfc2544 = \"2s\"\nsize = \"64:7,570:4\"\n",
    );
    assert_eq!(
        lines,
        [
            "size --both --engine=slow --engine=tc --runs=3 --size=64 --size=1518",
            "ndr --min-load=1000.5 --rfc2544",
            "ndr --rfc2544=2s --size=64:7,570:4",
        ]
    );
}

#[test]
fn common_keys_apply_to_steps_whose_command_has_the_option() {
    let lines = words(
        "[common]\nruns = 2\ntime = \"1s\"\n[[step]]\nbench = \"size\"\n[[step]]\nbench = \"sweep\"\n\
         [[step]]\nname = \"n\"\nbench = \"ndr\"\nruns = 7\n",
    );
    assert_eq!(lines, ["size --runs=2 --time=1s", "sweep --time=1s", "ndr --runs=7"]);
}

#[test]
fn a_message_about_a_wrong_campaign_names_file_step_and_key() {
    let size = "[[step]]\nname = \"s\"\nbench = \"size\"\n";
    for (text, why) in [
        ("", "no step; add one as [[step]]"),
        ("[[steps]]\n", "line 1: unknown key `steps`; did you mean `step`?"),
        ("[[step]]\nname = \"s\"\n", "the key `bench` is missing"),
        (
            "[[step]]\nbench = \"run\"\n",
            "step 1 (`run`): bench: unknown command `run`; expected one of: card, ndr, nat, tcp, size, sweep",
        ),
        ("[[step]]\nname = \"a/b\"\nbench = \"size\"\n", "step 1 (`a/b`): name: "),
        (
            &format!("{size}tiem = 1\n"),
            "step 1 (`s`): tiem: `shunt bench size` has no such option; its options are size, ",
        ),
        (
            &format!("{size}time = \"soon\"\n"),
            "step 1 (`s`): time: invalid value 'soon' for '--time <TIME>': expected a time such as",
        ),
        (&format!("{size}both = 1\n"), "step 1 (`s`): both: expected true or false"),
        (&format!("{size}runs = true\n"), "step 1 (`s`): runs: expected a value, not"),
        (
            &format!("{size}runs = [1, 2]\n"),
            "step 1 (`s`): runs: expected one value, not a list; make a step for each",
        ),
        (&format!("{size}runs = 0\n"), "step 1 (`s`): runs: invalid value '0'"),
        (&format!("{size}engine = \"fast\"\n"), "step 1 (`s`): engine: invalid value 'fast'"),
        (
            &format!("{size}quick = true\nruns = 2\n"),
            "step 1 (`s`): quick: the argument '--quick' cannot be used with",
        ),
        (
            &format!("{size}keep = \"x\"\n"),
            "step 1 (`s`): keep: not allowed in a campaign, which keeps its results in",
        ),
        (&format!("{size}json = true\n"), "step 1 (`s`): json: `shunt bench size` has no such option"),
        (&format!("{size}size = {{}}\n"), "step 1 (`s`): size: expected a string, number or list, got table"),
        (&format!("[common]\nsede = 1\n{size}"), "common: sede: no command of any step has this option"),
        (&format!("{size}{size}from = \"1G\"\n"), "step 2 (`s`): from: "),
        (
            &format!("{size}[[step]]\nbench = \"sweep\"\nto = \"1M\"\n"),
            "step 2 (`sweep`): --from 50.0 Mbit/s --to 1.00 Mbit/s: ",
        ),
    ] {
        let failure = refusal(text);
        assert!(failure.message.contains(why), "{text}: {failure}");
        assert!(!failure.message.contains('\n'), "{failure}");
    }
    let missing = refusal(&format!("[common]\ntx = \"nosuch0\"\nrx = \"lo\"\n{size}"));
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (
            FailureCode::PortMissing,
            "step 1 (`s`): nosuch0: no such device in this network namespace; see `ip link`"
        )
    );
}

#[test]
fn the_default_campaign_takes_less_than_ten_minutes() {
    let dir = TempDir::new().unwrap();
    let output = Some(dir.path().join("out"));
    let campaign = Campaign::resolve(&RunArgs { file: None, output, no_report: false }).unwrap();
    assert!(campaign.steps.len() > 2, "{campaign:?}");
    let all = Remaining::new(&campaign.steps).total;
    assert!(all < Duration::from_secs(600), "{all:?}");
}

const SIMULATED: &str = "[[step]]\nname = \"a\"\nbench = \"ndr\"\nquick = true\nsimulate = \"capacity_pps=7e5\"\n\
     [[step]]\nname = \"b\"\nbench = \"ndr\"\nquick = true\nsimulate = \"capacity_pps=6e5\"\n";

/// Runs a campaign; returns its outcome and the last answer that it showed.
fn run(campaign: Campaign) -> (anyhow::Result<()>, serde_json::Value) {
    let mut last = serde_json::Value::Null;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(campaign.run(&mut |answer| {
        last = serde_json::from_str(&answer.json()?)?;
        Ok(())
    }));
    (ended, last)
}

fn states(summary: &serde_json::Value) -> Vec<&str> {
    summary["steps"].as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect()
}

#[test]
fn a_second_run_measures_only_the_steps_that_are_missing() {
    let dir = TempDir::new().unwrap();
    let (ended, summary) = run(resolve(&dir, SIMULATED).unwrap());
    ended.unwrap();
    assert_eq!(states(&summary), ["measured", "measured"], "{summary:#}");
    let out = dir.path().join("out");
    let first = out.join("01-a.json");
    let mut results = Results::read(&first).unwrap();
    let step = results.conditions.campaign.clone().unwrap();
    assert_eq!((step.step.as_str(), step.text.as_str()), ("a", SIMULATED));
    // The known digest of `sha256sum`.
    assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(
        (step.sha256, fs::read_to_string(out.join(COPY)).unwrap()),
        (sha256(SIMULATED), SIMULATED.to_owned())
    );
    assert_eq!(
        results.conditions.command,
        ["shunt", "bench", "ndr", "--quick", "--simulate=capacity_pps=7e5"]
    );
    assert!(results.complete && fs::read_to_string(out.join(PAGE)).unwrap().contains("ndr simulated-1"));

    // The state that an interrupt leaves.
    results.complete = false;
    fs::write(&first, results.to_json().unwrap()).unwrap();
    let (ended, summary) = run(resolve(&dir, SIMULATED).unwrap());
    ended.unwrap();
    assert_eq!(states(&summary), ["measured", "there"], "{summary:#}");
    assert_eq!(Results::read(&first).unwrap().readings["ndr simulated-1"].runs.len(), 1);
    assert_eq!(Results::read(&out.join("01-a.interrupted-1.json")).unwrap(), results);
}

#[test]
fn a_directory_with_other_files_or_another_campaign_is_refused() {
    let dir = TempDir::new().unwrap();
    run(resolve(&dir, SIMULATED).unwrap()).0.unwrap();
    let why = resolve(&dir, &format!("{SIMULATED}# changed\n")).unwrap_err().to_string();
    assert!(why.contains("has results of another campaign (sha256 ") && why.contains("--output"), "{why}");
    fs::remove_file(dir.path().join("out").join(COPY)).unwrap();
    let why = resolve(&dir, SIMULATED).unwrap_err().to_string();
    assert!(why.contains("has other files in it; choose a new or empty one"), "{why}");
    fs::write(dir.path().join("out").join(COPY), SIMULATED).unwrap();
    fs::write(dir.path().join("out/02-b.json"), "{").unwrap();
    let why = resolve(&dir, SIMULATED).unwrap_err().to_string();
    assert!(why.contains("02-b.json: ") && why.ends_with("; or remove the file"), "{why}");
}
