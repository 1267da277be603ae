//! Definitions and dumps of registers.

use shunt_inspect::reg::{
    Decoded, DumpError, parse_dat, parse_ethtool_dump, parse_regmap, parse_svd, parse_toml,
};

/// A letter for the format (A to E: dat, SVD, TOML, `ethtool -d`, regmap) and a text: it is parsed or refused. Fields
/// of what is parsed fit into their register; a reason names a line that exists.
pub fn registers(bytes: &[u8]) -> bool {
    let Some((kind, text)) = bytes.split_first() else { return false };
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().count();
    // TOML ends after its last line, and XML may lack an end: there, a problem may be of the whole file.
    let (parsed, named) = match kind % 5 {
        0 => (parse_dat(&text), 1..=lines),
        1 => (parse_svd(&text), 0..=usize::MAX),
        2 => (parse_toml(&text), 0..=lines + 1),
        3 => return is_dump(parse_ethtool_dump(&text), lines),
        _ => return is_dump(parse_regmap(&text), lines),
    };
    match parsed {
        Ok(all) => {
            for register in &all.registers {
                assert!(
                    register
                        .fields
                        .iter()
                        .all(|field| field.low <= field.high && field.high < register.width)
                );
                Decoded::new(&all, register, u64::MAX);
            }
            true
        }
        Err(problems) => {
            assert!(!problems.0.is_empty());
            assert!(problems.0.iter().all(|problem| named.contains(&problem.line)), "{problems:?}");
            false
        }
    }
}

fn is_dump<T>(parsed: Result<T, DumpError>, lines: usize) -> bool {
    if let Err(DumpError::Line { line, .. }) = &parsed {
        assert!((1..=lines).contains(line), "{line} of {lines}");
    }
    parsed.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{accepted, corpus, corpus_and_changes};
    use fastrand::Rng;

    const DAT: &[u8] = b" \t:/#._0123456789abcdefABCDEFGHIJKLMNOPQRSTUVWXYZxlw-";
    const DUMP: &[u8] = b"0123456789abcdefxXz: \t";
    const XML: &[u8] = b"<>/abcdefghijklmnopqrstuvwxyz0123456789&;%[]";

    /// Lines of these characters.
    fn lines(random: &mut Rng, alphabet: &[u8], longest: usize) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..random.usize(..=8) {
            text.extend((0..random.usize(..=longest)).map(|_| *random.choice(alphabet).unwrap()));
            text.push(b'\n');
        }
        text
    }

    fn characters(random: &mut Rng, most: usize) -> Vec<u8> {
        (0..random.usize(..=most)).map(|_| random.char(..)).collect::<String>().into_bytes()
    }

    #[test]
    fn any_text_is_parsed_or_refused_with_lines_that_exist() {
        let parsed = accepted(2_000, registers, |random| {
            let kind = *random.choice(b"AADE").unwrap();
            let text = match random.bool() {
                true => characters(random, 80),
                false if kind == b'A' => lines(random, DAT, 12),
                false => lines(random, DUMP, 24),
            };
            [&[kind][..], &text].concat()
        });
        assert!(parsed > 40, "only {parsed} texts were parsed, which tests little");
    }

    #[test]
    fn a_file_with_any_change_is_parsed_or_refused() {
        let files = corpus("registers");
        let parsed = accepted(1_000, registers, |random| {
            let mut bytes = random.choice(&files).unwrap().clone();
            let at = random.usize(1..bytes.len());
            let cut = random.usize(1..30).min(bytes.len() - at);
            let with = match random.bool() {
                true => characters(random, 6),
                false => (0..random.usize(..=10)).map(|_| *random.choice(XML).unwrap()).collect(),
            };
            bytes.splice(at..at + cut, with);
            bytes
        });
        assert!(parsed > 100, "only {parsed} files were parsed, which tests little");
        corpus_and_changes("registers", 1_000, registers);
    }
}
