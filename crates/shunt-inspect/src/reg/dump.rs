//! Parses register dumps of other programs: `ethtool -d`, and regmap's files in debugfs.

use std::collections::BTreeMap;

/// Why a dump cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// A line has the wrong form.
    #[error("line {line}: {reason}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The expected form.
        reason: String,
    },
    /// The dump has no values.
    #[error("no values: {0}")]
    Empty(&'static str),
}

/// Largest accepted dump: `ethtool -d` is at most a BAR, and a regmap has as many lines as registers.
const BYTES_MAX: usize = 16 << 20;

/// Bytes of `ethtool -d PORT hex on`: lines of `0x0010:  00 11 ...`, after two lines of headings.
///
/// # Errors
/// The first line that is not of this form, or leaves a gap.
pub fn parse_ethtool_dump(text: &str) -> Result<Vec<u8>, DumpError> {
    let mut bytes = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let wrong = |reason: String| DumpError::Line { line, reason };
        let Some((offset, values)) = content.trim().split_once(':') else { continue };
        let Some(digits) = offset.trim().strip_prefix("0x") else { continue };
        let offset =
            usize::from_str_radix(digits, 16).map_err(|_| wrong(format!("`{offset}` is not an offset")))?;
        if offset != bytes.len() {
            return Err(wrong(format!("offset {offset:#x} follows {:#x} bytes", bytes.len())));
        }
        for value in values.split_whitespace() {
            let byte = u8::from_str_radix(value, 16).ok().filter(|_| value.len() == 2);
            bytes.push(
                byte.ok_or_else(|| wrong(format!("`{value}` is not a byte of two hexadecimal digits")))?,
            );
        }
        if bytes.len() > BYTES_MAX {
            return Err(wrong(format!("more than {BYTES_MAX} bytes")));
        }
    }
    match bytes.is_empty() {
        true => Err(DumpError::Empty("expected `0x0000: 00 11 ...`, as `ethtool -d PORT hex on` prints")),
        false => Ok(bytes),
    }
}

/// Values by offset, from `registers` of a regmap in debugfs: lines of `084: 05ee0264`. Registers that the kernel could
/// not read, `XXXXXXXX`, are None.
///
/// # Errors
/// The first line that is not of this form.
pub fn parse_regmap(text: &str) -> Result<BTreeMap<u64, Option<u64>>, DumpError> {
    let mut all = BTreeMap::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() {
            continue;
        }
        let wrong = |reason: &str| DumpError::Line { line, reason: format!("{reason}: `{content:.40}`") };
        let (offset, value) = content.split_once(':').ok_or_else(|| wrong("expected OFFSET: VALUE"))?;
        let offset =
            u64::from_str_radix(offset.trim(), 16).map_err(|_| wrong("the offset is not hexadecimal"))?;
        let value = value.trim();
        let unreadable = !value.is_empty() && value.bytes().all(|byte| byte == b'X');
        let number = || u64::from_str_radix(value, 16).map_err(|_| wrong("the value is not hexadecimal"));
        all.insert(offset, if unreadable { None } else { Some(number()?) });
    }
    if all.is_empty() { Err(DumpError::Empty("expected lines of OFFSET: VALUE")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_of_ethtool_is_its_bytes() {
        let text = "Offset\t\tValues\n------\t\t------\n0x0000:\t\t44 02 ee 05 \n0x0004:\t\tff 00\n";
        assert_eq!(parse_ethtool_dump(text).unwrap(), [0x44, 2, 0xee, 5, 0xff, 0]);
        let reason = |text: &str| parse_ethtool_dump(text).unwrap_err().to_string();
        assert_eq!(reason("0x0000: 44 2"), "line 1: `2` is not a byte of two hexadecimal digits");
        assert_eq!(reason("x\n0x0000: 44\n0x0010: 00"), "line 3: offset 0x10 follows 0x1 bytes");
        assert!(reason("Cannot get register dump: Operation not supported").starts_with("no values: "));
    }

    #[test]
    fn a_regmap_has_values_and_registers_that_cannot_be_read() {
        let got = parse_regmap("00: 1140\n1f: XXXX\n\n84: 05ee0264\n").unwrap();
        assert_eq!(got, BTreeMap::from([(0, Some(0x1140)), (0x1f, None), (0x84, Some(0x05ee_0264))]));
        let reason = |text: &str| parse_regmap(text).unwrap_err().to_string();
        assert_eq!(reason("0: 1\nzz: 1"), "line 2: the offset is not hexadecimal: `zz: 1`");
        assert_eq!(reason("0: q"), "line 1: the value is not hexadecimal: `0: q`");
        assert_eq!(reason(" "), "no values: expected lines of OFFSET: VALUE");
    }

    #[test]
    fn a_dump_reads_back() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let bytes: Vec<u8> = (0..random.usize(1..100)).map(|_| random.u8(..)).collect();
            let row = |(n, row): (usize, &[u8])| {
                let values: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("0x{:04x}:\t\t{}\n", n * 16, values.join(" "))
            };
            let text: String = bytes.chunks(16).enumerate().map(row).collect();
            assert_eq!(parse_ethtool_dump(&text).unwrap(), bytes);
        }
    }
}
