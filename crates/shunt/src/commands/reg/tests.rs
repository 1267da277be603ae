use super::{
    super::arguments::parse_args,
    change::{Write, example},
    *,
};
use shunt_inspect::reg::RegisterSource;
use std::io::Write as _;

#[derive(Debug, Args)]
struct Typed {
    #[command(flatten)]
    target: TargetArgs,
}

fn target(words: &str) -> Target {
    parse_args::<Typed>(words).unwrap().target.resolve().unwrap()
}

fn example_target(memory: &tempfile::NamedTempFile) -> Target {
    let mut target = target("");
    target.definitions = example();
    target.source = RegisterSource::Memory(memory.path().to_owned());
    target
}

fn memory(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.as_file().set_len(4096).unwrap();
    file
}

fn write(
    target: &Target,
    name: &str,
    value: u64,
    confirmed: bool,
) -> Result<crate::commands::reg::view::Written, String> {
    let write = Write::resolve(target, &name.parse().unwrap(), value, confirmed);
    write.and_then(|write| write.run(target)).map_err(|failure| failure.message)
}

#[test]
fn a_write_keeps_other_fields_and_does_not_clear_their_events() {
    let memory = memory(&[0b0101_0011, 0, 0, 0, 0b11, 0, 0, 0]);
    let target = example_target(&memory);
    let dry = write(&target, "B_MIX.MODE", 2, false).unwrap();
    assert_eq!((dry.written, dry.value.value, dry.after), (false, 0b0010_0010, None));
    let done = write(&target, "B_MIX.MODE", 2, true).unwrap();
    // DONE is cleared by a 1, so it is written as 0.
    assert_eq!(
        (done.before.unwrap().value, done.value.value, done.took),
        (0b0101_0011, 0b0010_0010, Some(true))
    );
    // Only the bit that was named is cleared. A file keeps what is written, so the bit stays.
    let event = write(&target, "B_EV.B", 1, true).unwrap();
    assert_eq!((event.value.value, event.took), (0b10, Some(false)));
    let out = write(&target, "B_OUT", 7, true).unwrap();
    assert_eq!((out.before, out.after, out.took), (None, None, None));
}

#[test]
fn writes_that_would_do_something_else_are_refused() {
    let memory = memory(&[0; 16]);
    let target = example_target(&memory);
    let refusal = |name: &str, value| write(&target, name, value, true).unwrap_err();
    assert_eq!(
        refusal("B_*", 1),
        "`B_*` matches 4 registers (B_MIX, B_EV, B_OUT, B_IN); name one to write it"
    );
    assert_eq!(refusal("B_IN", 1), "B_IN can only be read");
    assert_eq!(refusal("B_MIX.MODE", 8), "B_MIX.MODE: 0x8 is too large; the maximum is 0x7");
    assert_eq!(refusal("B_MIX", 1 << 32), "B_MIX: 0x100000000 is too large; the maximum is 0xffffffff");
    assert!(refusal("B_NOPE", 1).starts_with("no register `B_NOPE`"));
    let mut dump = example_target(&memory);
    dump.source = RegisterSource::File(memory.path().to_owned(), None);
    assert!(write(&dump, "B_MIX", 1, true).unwrap_err().contains("can only be read"));
    assert_eq!(std::fs::read(memory.path()).unwrap()[..16], [0; 16]);
}

#[test]
fn a_pattern_leaves_out_what_reading_would_change() {
    let gem = |words: &str| target(&format!("--soc zynq {words}"));
    let names = |target: &Target, typed: &str, clear| {
        let typed = target.checked(vec![typed.parse().unwrap()]).unwrap();
        chosen(target, &typed, clear).map(|all| all.iter().map(|one| one.name.clone()).collect::<Vec<_>>())
    };
    let live = gem("");
    assert_eq!(
        names(&live, "GEM0_RX_*", false).unwrap(),
        ["GEM0_RX_QBAR", "GEM0_RX_STATUS", "GEM0_RX_PAUSEQ"]
    );
    assert!(names(&live, "GEM0_RX_*", true).unwrap().len() > 3);
    assert_eq!(names(&live, "GEM0_RX_OVERRUN_ERRORS", false).unwrap(), ["GEM0_RX_OVERRUN_ERRORS"]);
    assert!(names(&gem("--from file:x"), "GEM0_RX_*", false).unwrap().len() > 3);
    assert_eq!(
        names(&live, "GEM0_INTR_EN", false).unwrap_err().to_string(),
        "GEM0_INTR_EN can only be written"
    );
    let phy = names(&live, "PHY_BMCR", false).unwrap_err().to_string();
    assert_eq!(phy, "--from mem cannot reach PHY_BMCR");
    assert_eq!(names(&gem("--from mdio:eth0"), "*CR", false).unwrap(), ["PHY_BMCR"]);
}

#[test]
fn without_a_chip_the_message_says_how_to_name_one() {
    let failure = target("")
        .not_found("ENET_RCR".parse::<Selector>().unwrap().only(&target("").definitions).unwrap_err());
    assert!(failure.message.contains("give --soc CHIP or --defs FILE"), "{failure}");
    let unknown = parse_args::<Typed>("--soc pdp11").unwrap().target.resolve().unwrap_err();
    assert!(unknown.message.starts_with("--soc pdp11: no definitions; known are "), "{unknown}");
}

#[test]
fn numbers_are_hexadecimal_binary_or_decimal() {
    assert_eq!(["0x05ee_0264", "0b101", "1518"].map(number), [Ok(0x05ee_0264), Ok(5), Ok(1518)]);
    assert!(["", "5e", "0x", "-1", "0x1_0000_0000_0000_0000"].iter().all(|text| number(text).is_err()));
}
