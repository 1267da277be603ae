use super::*;
use tempfile::TempDir;

const DEFAULTS: StreamDefaults = StreamDefaults { time: None, warm_up: Duration::from_millis(200) };

fn read_text(text: &str) -> Result<Vec<StreamSpec>, String> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("s.toml");
    fs::write(&file, text).unwrap();
    read(&file, DEFAULTS).map_err(|failure| {
        assert_eq!(failure.code, shunt_api::FailureCode::BadConfig);
        let before = format!("{}: ", file.display());
        failure.message.strip_prefix(&before).unwrap_or_else(|| panic!("{failure}")).to_owned()
    })
}

#[test]
fn each_stream_has_its_options_and_those_of_all() {
    let specs = read_text(
        "[common]\ntime = \"5s\"\nsize = 128\n\
         [[stream]]\nname = \"voice\"\nrate = \"100pps\"\ndscp = 46\nvlan = [5, 6]\nsport = \"10-19\"\n\
         [[stream]]\nname = \"bulk\"\nsize = \"imix\"\nramp-from = \"1kpps\"\nramp-time = \"2s\"\nramp-steps = 4\nwarm-up = \"0s\"\n\
         [[stream]]\nname = \"back\"\nreverse = true\ntime = \"1s\"\ncount = 70\ndelay = \"1s\"\ntcp = true\n",
    )
    .unwrap();
    let [voice, bulk, back] = &specs[..] else { panic!("{specs:?}") };
    assert_eq!((voice.shape.dscp, voice.shape.tags.len(), voice.shape.source_ports.count), (46, 2, 10));
    assert_eq!((voice.duration, voice.warm_up), (Some(Duration::from_secs(5)), DEFAULTS.warm_up));
    let ramp = bulk.ramp.unwrap();
    assert_eq!(
        (ramp.from, ramp.time, ramp.steps),
        (Some(Rate::Pps(1000.0)), Duration::from_secs(2), Some(4))
    );
    assert_eq!(
        (bulk.rate, bulk.warm_up, bulk.shape.sizes.largest()),
        (Rate::Pps(10_000.0), Duration::ZERO, 1518)
    );
    assert_eq!((back.reverse, back.packets, back.shape.tcp.is_some()), (true, Some(70), true));
    let plain = read_text("[[stream]]\nname = \"a\"\n[[stream]]\nname = \"b\"\ncount = 3\n").unwrap();
    assert_eq!((plain[0].duration, plain[1].duration), (Some(DURATION), None));
}

#[test]
fn a_message_about_a_wrong_file_names_stream_and_key() {
    for (text, why) in [
        ("", "no stream; add one as [[stream]]"),
        ("[[streams]]\n", "line 1: unknown key `streams`; did you mean `stream`?"),
        ("[[stream]]\nrate = \"1kpps\"\n", "stream 1: name: missing; reports call the stream by it"),
        (
            "[[stream]]\nname = \"a\"\nrate = \"fast\"\n",
            "stream 1 (`a`): rate: invalid value 'fast' for '--rate <RATE>'",
        ),
        (
            "[[stream]]\nname = \"a\"\nframe = 64\n",
            "stream 1 (`a`): frame: a stream has no such option; its options are name, rate",
        ),
        (
            "[[stream]]\nname = \"a\"\nrate = [1, 2]\n",
            "stream 1 (`a`): rate: expected one value, not a list; make a stream for each value",
        ),
        ("[[stream]]\nname = \"a\"\nramp-from = \"1pps\"\n", "stream 1 (`a`): ramp-time"),
        ("[[stream]]\nname = \"a\"\ndscp = 64\n", "stream 1 (`a`): dscp: invalid value '64'"),
        ("[[stream]]\nname = \"a\"\nvlan = [1, 2, 3]\n", "stream 1 (`a`): vlan: --vlan: 3 tags given"),
    ] {
        let said = read_text(text).unwrap_err();
        assert!(said.starts_with(why), "{text}: {said}");
    }
}
