use super::{super::builtin, *};
use std::io::Write;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read(all: &Definitions, from: &str, names: &[&str]) -> Vec<Result<u64, String>> {
    let registers: Vec<&Register> = names.iter().map(|name| all.register(name).unwrap()).collect();
    let source: RegisterSource = from.parse().unwrap();
    assert_eq!(source.to_string(), from);
    let values = source.read(all, &registers).unwrap();
    values.into_iter().map(|value| value.map_err(|why| why.0)).collect()
}

#[test]
fn a_file_is_an_image_of_the_block_or_of_memory() {
    let all = builtin("imx6q").unwrap();
    let mut bytes = vec![0; 0x100];
    bytes[0x84..0x88].copy_from_slice(&0x05ee_0264u32.to_le_bytes());
    let image = file(&bytes);
    let path = image.path().display();
    let beyond = Err("not in the dump".to_owned());
    let want = [Ok(0x05ee_0264), beyond.clone()];
    assert_eq!(read(&all, &format!("file:{path}"), &["ENET_RCR", "ENET_TFWR"]), want);
    assert_eq!(read(&all, &format!("file:{path}@0x2188000"), &["ENET_RCR", "ENET_TFWR"]), want);
    assert_eq!(read(&all, &format!("file:{path}@0x2188084"), &["ENET_RCR", "ENET_ECR"]), [Ok(0), beyond]);
}

#[test]
fn the_dump_of_each_driver_has_its_own_layout() {
    let text = |words: &[u32]| -> String {
        let row = |(n, word): (usize, &u32)| {
            let [a, b, c, d] = word.to_le_bytes();
            format!("0x{:04x}:\t\t{a:02x} {b:02x} {c:02x} {d:02x} \n", n * 4)
        };
        words.iter().enumerate().map(row).collect()
    };
    // The driver of the GEM writes the registers that it chose one after the other.
    let mut words: Vec<u32> = (0..16).collect();
    words[13] = 0x0018_0704;
    let dump = file(text(&words).as_bytes());
    let all = builtin("zynqmp").unwrap();
    let from = format!("dump:{}", dump.path().display());
    let got =
        read(&all, &from, &["GEM0_NET_CFG", "GEM0_TX_STATUS", "GEM0_DMA_CFG", "GEM0_RX_OVERRUN_ERRORS"]);
    assert_eq!(got, [Ok(1), Ok(3), Ok(0x0018_0704), Err("not in the dump".to_owned())]);
    // That of the FEC writes each at its offset.
    let words: Vec<u32> = (0..64).map(|n| if n == 0x84 / 4 { 0x05ee_0244 } else { n }).collect();
    let dump = file(text(&words).as_bytes());
    let from = format!("dump:{}", dump.path().display());
    assert_eq!(read(&builtin("imx8mq").unwrap(), &from, &["ENET_RCR", "ENET_ECR"]), [Ok(0x05ee_0244), Ok(9)]);
}

#[test]
fn a_regmap_names_what_the_kernel_could_not_read() {
    let map = file(b"004: 00000001\n084: 05ee0264\n0c4: XXXXXXXX\n");
    let all = builtin("imx6q").unwrap();
    let got = read(&all, &format!("regmap:{}", map.path().display()), &["ENET_RCR", "ENET_TCR", "ENET_ECR"]);
    let missing = |why: &str| Err(why.to_owned());
    assert_eq!(got, [Ok(0x05ee_0264), missing("the kernel could not read it"), missing("not in the dump")]);
}

#[test]
fn memory_is_read_and_written_by_address_and_other_sources_are_not_written() {
    let mut all = builtin("imx6q").unwrap();
    all.blocks.get_mut("ENET").unwrap().base = 0x1000;
    let image = file(&vec![0; 0x3000]);
    let from = format!("mem:{}", image.path().display());
    let source: RegisterSource = from.parse().unwrap();
    source.write(&all, all.register("ENET_RCR").unwrap(), 0x05ee_0264).unwrap().unwrap();
    assert_eq!(read(&all, &from, &["ENET_RCR", "ENET_ECR"]), [Ok(0x05ee_0264), Ok(0)]);
    let file: RegisterSource = format!("file:{}", image.path().display()).parse().unwrap();
    let refusal = file.write(&all, all.register("ENET_RCR").unwrap(), 1).unwrap_err().to_string();
    assert!(refusal.ends_with("can only be read; `mem` and `mdio:PORT` can be written"), "{refusal}");
}

#[test]
fn a_source_that_cannot_be_used_says_why() {
    let all = builtin("imx6q").unwrap();
    let why = |from: &str| {
        let source: RegisterSource = from.parse().unwrap();
        source.read(&all, &[all.register("ENET_RCR").unwrap()]).unwrap_err().to_string()
    };
    assert!(why("regmap:nosuchregmap").contains("/sys/kernel/debug/regmap/nosuchregmap/registers"));
    assert!(why("ethtool:nosuchport").starts_with("ethtool -d nosuchport: "));
    assert!(why("mdio:lo").starts_with("lo: "));
    let empty = file(b"");
    assert!(why(&format!("dump:{}", empty.path().display())).contains("no values"));
    for wrong in ["", "men", "file:", "regmap:", "mdio:eth0@32", "mdio:eth0@x", "file:x@y", "ethtool:"] {
        assert!(wrong.parse::<RegisterSource>().is_err(), "{wrong}");
    }
    assert_eq!("mdio:eth0@3".parse(), Ok(RegisterSource::Mdio("eth0".to_owned(), Some(3))));
}
