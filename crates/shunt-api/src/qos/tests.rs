use super::*;
use crate::Config;

const FILE: &str = r#"
[qos.wan0]
rate = "100M"
burst = "32k"
overhead = 18
police = "1Gbit/s"
default_class = "bulk"

[[qos.wan0.class]]
name = "voice"
dscp = ["ef", 40]
mark = ["0x10/0xf0"]

[[qos.wan0.class]]
name = "bulk"
priority = 1
quantum = 3000
target = "0s"
"#;

fn qos(text: &str) -> Result<QosTable, String> {
    Config::parse(text).map(|config| config.qos)
}

fn why(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    qos(&FILE.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn a_table_of_the_file_has_units_names_and_defaults() {
    let table = qos(FILE).unwrap();
    let wan = &table["wan0"];
    assert_eq!((wan.rate, wan.burst, wan.overhead), (BitRate(100_000_000), Bytes(32_000), 18));
    assert_eq!((wan.police, wan.police_burst), (BitRate(1_000_000_000), Bytes(128_000)));
    assert_eq!(wan.default_class(), 1);
    let [voice, bulk] = &wan.class[..] else { panic!("{wan:?}") };
    assert_eq!(voice.dscp, [Dscp(46), Dscp(40)]);
    assert_eq!(voice.mark, [MarkMatch { value: 0x10, mask: 0xf0 }]);
    assert_eq!((voice.priority, voice.target), (0, Duration::from_millis(5)));
    assert_eq!((bulk.priority, bulk.quantum, bulk.target), (1, Bytes(3000), Duration::ZERO));
}

#[test]
fn messages_carry_all_of_it() {
    let table = qos(FILE).unwrap();
    let text = serde_json::to_string(&table).unwrap();
    assert!(text.contains(r#""rate":"100M""#) && text.contains(r#""dscp":["ef","cs5"]"#), "{text}");
    assert_eq!(serde_json::from_str::<QosTable>(&text).unwrap(), table);
}

#[test]
fn without_classes_there_is_one_queue() {
    let table = qos("[qos.wan0]\nrate = 50000000\n").unwrap();
    let wan = &table["wan0"];
    assert_eq!((wan.rate, wan.classes().len(), wan.default_class()), (BitRate(50_000_000), 1, 0));
}

#[test]
fn an_error_names_the_port_the_key_and_what_is_possible() {
    for (from, to, expected) in [
        (
            "rate = \"100M\"",
            "rate = \"10MBps\"",
            "rate: `10MBps`: rates are in bits, not bytes: write 80Mbit/s",
        ),
        (
            "rate = \"100M\"",
            "rate = \"80%\"",
            "rate: `80%` is not a rate in bit/s: expected a form such as 300M, 2.5G or 1Gbit/s",
        ),
        ("rate = \"100M\"", "rate = 100", "qos.wan0: rate: expected 8k or more, or 0 for no limit, got 100"),
        (
            "burst = \"32k\"",
            "burst = 100",
            "qos.wan0: burst: expected 1600 or more, the size of a packet, got 100",
        ),
        ("overhead = 18", "overhead = 9999", "qos.wan0: overhead: expected -64 to 512, got 9999"),
        ("name = \"voice\"", "name = \"bulk\"", "qos.wan0: two classes have the name `bulk`"),
        ("name = \"voice\"", "", "qos.wan0: a class has no name: expected a line such as name = \"voice\""),
        (
            "dscp = [\"ef\", 40]",
            "dscp = [\"ef\", 46]",
            "class `voice`: another class, or this one, already has the DSCP ef",
        ),
        (
            "dscp = [\"ef\", 40]",
            "dscp = [\"eff\"]",
            "`eff` is not a DSCP; expected a number from 0 to 63, or a name such as ef, af41 or cs1",
        ),
        ("dscp = [\"ef\", 40]", "dscp = [64]", "`64` is not a DSCP"),
        (
            "default_class = \"bulk\"",
            "default_class = \"x\"",
            "default_class: no class has the name `x`; the classes: voice, bulk",
        ),
        ("priority = 1", "priority = 16", "qos.wan0: class `bulk`: priority: expected 0 to 15, got 16"),
        ("quantum = 3000", "quantum = 10", "class `bulk`: quantum: expected 256 to 16777216, got 10"),
        (
            "target = \"0s\"",
            "target = \"1s\"",
            "class `bulk`: target: expected less than the interval, which is 100ms, got 1s",
        ),
        ("[qos.wan0]", "[qos.\"wan 0\"]", "`wan 0` is not a valid name of a network device"),
        ("police", "polise", "unknown key `polise`; did you mean `police`?"),
    ] {
        let message = why(from, to);
        assert!(message.contains(expected) && !message.contains('\n'), "{to}: {message}");
    }
    let many = |what: &str| (0..17).map(|n| what.replace('#', &n.to_string())).collect::<String>();
    let classes = qos(&many("[[qos.wan0.class]]\nname = \"c#\"\n")).unwrap_err();
    assert_eq!(classes, "qos.wan0: 17 classes; a port has 16 at most");
    let marks =
        qos(&format!("[[qos.wan0.class]]\nname = \"c\"\nmark = [{}]", many("\"#\",").trim_end_matches(',')));
    assert_eq!(marks.unwrap_err(), "qos.wan0: 17 marks; the classes of a port have 16 at most");
}
