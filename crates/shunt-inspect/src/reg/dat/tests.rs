use super::*;

const IMX6Q: &str = "# i.MX6Q
ENET_RCR	0x02188084
	:MAX_FL:29-16
	:FCE:5 // flow control
	:LOW:0-3
/iomux_pad
	:HYS:16
	:DSE:5-3
IOMUXC_PAD	020E0620
	:iomux_pad/
	:MORE:31-0
HDMI_DESIGN_ID			0x00120000.b # a byte
	:REV:7-0
WIDE	0x02188004.W   
MIB	0x021882D8 # shunt: ro rc wrap=16
";

fn problems(text: &str) -> Vec<(usize, String)> {
    parse_dat(text).unwrap_err().0.into_iter().map(|problem| (problem.line, problem.reason)).collect()
}

#[test]
fn registers_fields_sets_widths_and_comments_are_read() {
    let all = parse_dat(IMX6Q).unwrap();
    let names: Vec<_> = all.registers.iter().map(|one| (one.name.as_str(), one.offset, one.width)).collect();
    let want = [
        ("ENET_RCR", 0x0218_8084, 32),
        ("IOMUXC_PAD", 0x020e_0620, 32),
        ("HDMI_DESIGN_ID", 0x0012_0000, 8),
        ("WIDE", 0x0218_8004, 16),
        ("MIB", 0x0218_82d8, 32),
    ];
    assert_eq!(names, want);
    let fields = |name: &str| -> Vec<(String, u8, u8)> {
        let register = all.register(name).unwrap();
        register.fields.iter().map(|field| (field.name.clone(), field.high, field.low)).collect()
    };
    let own = |name: &str, high, low| (name.to_owned(), high, low);
    assert_eq!(fields("enet_rcr"), [own("MAX_FL", 29, 16), own("FCE", 5, 5), own("LOW", 3, 0)]);
    // Fields may follow a set, and a field may have all 32 bits.
    assert_eq!(fields("IOMUXC_PAD"), [own("HYS", 16, 16), own("DSE", 5, 3), own("MORE", 31, 0)]);
    let mib = all.register("MIB").unwrap();
    assert_eq!((mib.access, mib.read_clears), (Access::ReadOnly, true));
    assert_eq!(mib.counter, Some(Counter { bits: 16, saturates: false }));
    assert_eq!(all.warnings, []);
}

#[test]
fn each_line_that_breaks_the_grammar_is_named_with_the_reason() {
    let cases = [
        (":FCE:5", "a field before the first register or set"),
        ("R", "`R` has no address: expected a hexadecimal number such as 0x02188084"),
        ("R 0xZZ", "`0xZZ` is not a hexadecimal address of up to 64 bits"),
        ("R 0x11223344556677889", "`0x11223344556677889` is not a hexadecimal address of up to 64 bits"),
        ("R 0x10 0x20", "`0x10 0x20` is not a hexadecimal address of up to 64 bits"),
        ("R 0x10.q", "unknown width `.q`: expected .b, .w or .l"),
        ("R 0x11.l", "0x11 is not aligned to 32 bits"),
        ("R-1 0x10", "a name has only letters, digits and `_`, but `-1 0x10` follows `R`"),
        ("R 0x10\n:F:32", "bit 32 of `F` is beyond the 32 bits of R"),
        ("R 0x10.b\n:F:8-3", "bit 8 of `F` is beyond the 8 bits of R"),
        ("R 0x10\n:F:5-", "`` is not a bit: expected a number from 0 to 31, or two with `-` between"),
        ("R 0x10\n:F:0x5", "`0x5` is not a bit: expected a number from 0 to 31, or two with `-` between"),
        ("R 0x10\n:F", "expected `:` and bits, or `/`, after `:F`, got ``"),
        ("R 0x10\n::5", "a field needs a name between two colons: `:NAME:BITS`"),
        ("/pad\n:F:1\n/b\n:pad/", "`:pad/` uses a set of fields, which only a register can"),
        ("/", "expected the name of a set of fields, of letters, digits and `_`, got ``"),
        ("/a b", "expected the name of a set of fields, of letters, digits and `_`, got `a b`"),
        ("R 0x10 # shunt: rq", "unknown attribute `rq`: expected ro, wo, w1c, rc or wrap=BITS"),
        ("R 0x10 # shunt: wrap=33", "unknown attribute `wrap=33`: expected ro, wo, w1c, rc or wrap=BITS"),
        ("R 0x10\n!", "expected a register (NAME 0xADDRESS), a field (:NAME:BITS) or a set (/NAME), got `!`"),
    ];
    for (text, reason) in cases {
        let last = text.lines().count();
        assert_eq!(problems(text), [(last, reason.to_owned())], "{text}");
    }
    // All of them, and no fields that are blamed for the register's line.
    let got = problems("R 0xZZ\n:F:1\n:G:99\nS 0x10\n?\n");
    assert_eq!(got.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 5]);
    let shown = parse_dat(&"?\n".repeat(12)).unwrap_err().to_string();
    assert!(shown.contains("line 10: ") && !shown.contains("line 11") && shown.ends_with("and 2 more lines"));
}

#[test]
fn what_is_legal_but_doubtful_is_kept_as_a_warning() {
    let all = parse_dat("R 0x10\n:F:1\n:F:2\nR 0x14\n/p\n/p\nS 0x18\n:nosuchset/\n").unwrap();
    let lines: Vec<_> = all.warnings.iter().map(|problem| problem.line).collect();
    assert_eq!((lines, all.registers.len()), (vec![3, 4, 6, 8], 3));
}

#[test]
fn a_register_that_is_defined_again_gets_further_fields() {
    let all = parse_dat("R 0x10\n:F:1\nS 0x14\nR 0x10\n:F:1\n:G:2\n").unwrap();
    let names: Vec<_> = all.registers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names, all.warnings.len()), (vec!["S", "R"], 0));
    let fields: Vec<_> = all.registers[1].fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(fields, ["F", "G"]);
}

#[test]
fn a_register_that_was_written_reads_back() {
    let mut random = fastrand::Rng::with_seed(1);
    let first: Vec<char> = ('A'..='Z').chain(['_']).collect();
    let rest: Vec<char> = first.iter().copied().chain('0'..='9').collect();
    for _ in 0..400 {
        let mut name = random.choice(&first).unwrap().to_string();
        name.extend((0..random.usize(..=20)).map(|_| random.choice(&rest).unwrap()));
        let address = random.u64(..=u64::MAX / 4) * 4;
        let (a, b) = (random.u8(..32), random.u8(..32));
        let all = parse_dat(&format!("{name}\t{address:#010X}\n\t:{name}F:{a}-{b}\n")).unwrap();
        let register = &all.registers[0];
        assert_eq!((&register.name, register.offset), (&name, address));
        assert_eq!((register.fields[0].high, register.fields[0].low), (a.max(b), a.min(b)));
    }
}
