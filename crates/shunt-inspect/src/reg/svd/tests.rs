use super::*;

const CHIP: &str = r#"<?xml version="1.0"?>
<device><name>CHIP</name><size>32</size><access>read-write</access>
 <peripherals>
  <peripheral><name>ENET1</name><description>Ethernet
     MAC</description><baseAddress>0x402D8000</baseAddress>
   <registers>
    <register><name>EIR</name><addressOffset>0x4</addressOffset><modifiedWriteValues>oneToClear</modifiedWriteValues>
     <fields><field><name>TS</name><bitOffset>15</bitOffset><bitWidth>2</bitWidth></field></fields></register>
    <register><name>RCR</name><addressOffset>0x84</addressOffset>
     <fields>
      <field><name>MAX_FL</name><bitRange>[29:16]</bitRange></field>
      <field><name>FCE</name><lsb>5</lsb><msb>5</msb>
       <enumeratedValues><enumeratedValue><name>OFF</name><value>0</value></enumeratedValue>
        <enumeratedValue><name>ON</name><description>obey pause</description><value>#1</value></enumeratedValue></enumeratedValues></field>
     </fields></register>
    <register derivedFrom="RCR"><name>RCR2</name><addressOffset>0x88</addressOffset></register>
    <register><dim>2</dim><dimIncrement>8</dimIncrement><dimIndex>A-B</dimIndex><name>TC%s</name><addressOffset>0x600</addressOffset>
      <size>16</size><access>read-only</access><readAction>clear</readAction></register>
    <cluster><dim>2</dim><dimIncrement>0x10</dimIncrement><name>Q[%s]</name><addressOffset>0x700</addressOffset>
      <register><name>BASE</name><addressOffset>4</addressOffset></register></cluster>
   </registers></peripheral>
  <peripheral derivedFrom="ENET1"><name>ENET2</name><baseAddress>0x402D4000</baseAddress></peripheral>
 </peripherals></device>"#;

#[test]
fn arrays_clusters_derivation_and_the_three_notations_of_bits_are_read() {
    let all = parse_svd(CHIP).unwrap();
    let places: Vec<_> =
        all.registers.iter().map(|one| (one.name.as_str(), all.address(one).unwrap())).collect();
    let first = [
        ("ENET1_EIR", 0x402d_8004),
        ("ENET1_RCR", 0x402d_8084),
        ("ENET1_RCR2", 0x402d_8088),
        ("ENET1_TCA", 0x402d_8600),
        ("ENET1_TCB", 0x402d_8608),
        ("ENET1_Q0_BASE", 0x402d_8704),
        ("ENET1_Q1_BASE", 0x402d_8714),
    ];
    assert_eq!(places[..7], first);
    assert_eq!((places.len(), places[8]), (14, ("ENET2_RCR", 0x402d_4084)));
    let get = |name: &str| all.register(name).unwrap();
    assert_eq!(get("ENET1_EIR").access, Access::WriteOneToClear);
    let ts = get("ENET1_EIR").field("TS").unwrap();
    assert_eq!((ts.high, ts.low), (16, 15));
    let fce = get("ENET2_RCR2").field("FCE").unwrap();
    assert_eq!((fce.high, fce.low, fce.values[&1].as_str()), (5, 5, "obey pause"));
    assert_eq!(get("ENET1_RCR").field("MAX_FL").unwrap().extract(0x05ee_0264), 1518);
    let tc = get("ENET1_TCB");
    assert_eq!((tc.width, tc.access, tc.read_clears), (16, Access::ReadOnly, true));
    assert_eq!(all.blocks["ENET1"].title, "Ethernet MAC");
}

#[test]
fn mistakes_are_named_with_their_line() {
    let cases = [
        ("<size>32</size>", "<size>24</size>", 7, "register `EIR` has 24 bits: expected 8, 16, 32 or 64"),
        ("<lsb>5</lsb>", "<lsb>6</lsb>", 12, "the highest bit 5 is below the lowest bit 6"),
        ("[29:16]", "[99:16]", 11, "field `MAX_FL` is beyond the 32 bits of its register"),
        ("[29:16]", "29-16", 11, "`29-16` is not a bit range such as [7:0]"),
        (
            "<dim>2</dim><dimIncrement>8",
            "<dim>4294967295</dim><dimIncrement>8",
            17,
            "<dim> is 4294967295: expected 1 to 4096",
        ),
        (
            "<name>RCR</name><addressOffset>0x84",
            "<name>RCR</name><addressOffset>0xQQ",
            9,
            "`0xQQ` in <addressOffset> is not a number",
        ),
        ("<baseAddress>0x402D8000</baseAddress>", "", 4, "<peripheral> has no <baseAddress>"),
        ("<name>ENET2</name>", "<name>ENET1</name>", 22, "two peripherals are named `ENET1`"),
    ];
    for (right, wrong, line, reason) in cases {
        let text = CHIP.replacen(right, wrong, 1);
        assert_ne!(text, CHIP, "{right}");
        let problems = parse_svd(&text).unwrap_err().0;
        assert_eq!((problems[0].line, problems[0].reason.as_str()), (line, reason));
    }
    let cut = parse_svd(&CHIP[..400]).unwrap_err();
    assert!(cut.0[0].reason.starts_with("not well-formed XML"), "{cut}");
    assert!(parse_svd("<a/>").unwrap_err().to_string().contains("the root is <a>, not <device>"));
}

#[test]
fn what_is_derived_from_itself_ends() {
    let text = CHIP.replace("<register><name>RCR</name>", "<register derivedFrom=\"RCR2\"><name>RCR</name>");
    let text = text.replace("<fields>", "<nofields>").replace("</fields>", "</nofields>");
    assert!(parse_svd(&text).is_ok());
}
