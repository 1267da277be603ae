//! Engines in the names of readings. Each engine has its column and its colour wherever it appears.

use super::plot::COLOURS;

/// Engines and what they are compared with, in the order of their columns, each with the number of its colour.
const ENGINES: [(&str, usize); 9] = [
    ("slow", 5),
    ("linux", 5),
    ("tc", 0),
    ("xdp", 1),
    ("auto", 2),
    ("external", 3),
    ("nf_flowtable", 4),
    ("bare", 2),
    ("idle", 3),
];
/// Engines with which others are compared.
pub(crate) const BASELINES: [&str; 2] = ["slow", "linux"];
/// Names in the list above that are the state of a router rather than an engine.
const STATES: [&str; 2] = ["bare", "idle"];
const SEPARATORS: [char; 4] = [' ', ';', ':', ','];

/// The name of a reading whose engine is one of its words: `TCP IPv4 forward`, `tc`, `CPU`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EngineName<'n> {
    pub(crate) engine: &'static str,
    /// What the engines are compared in; empty if the name is that of the engine alone.
    pub(crate) row: &'n str,
    /// What was measured; empty for the main quantity.
    pub(crate) metric: &'n str,
}

impl<'n> EngineName<'n> {
    /// None without an engine, or with more than one. A state counts only if there is no engine: `idle RTT slow`.
    pub(crate) fn parse(name: &'n str) -> Option<Self> {
        let mut found: Vec<_> = words(name).filter_map(|(at, word)| Some((at, word, known(word)?))).collect();
        if found.len() > 1 {
            found.retain(|(_, word, _)| !STATES.contains(word));
        }
        let [(at, word, (engine, _))] = found[..] else { return None };
        let (before, after) = (trim(&name[..at]), trim(&name[at + word.len()..]));
        let (row, metric) = if before.is_empty() { (after, "") } else { (before, after) };
        Some(Self { engine, row, metric })
    }

    /// Parses the name of a ratio to a baseline, such as `TCP IPv4 forward tc to slow`.
    pub(crate) fn parse_ratio(name: &'n str) -> Option<Self> {
        let all: Vec<(usize, &str)> = words(name).collect();
        let [.., (at, engine), (_, "to"), (_, baseline)] = all[..] else { return None };
        let (engine, _) = known(engine)?;
        BASELINES.contains(&baseline).then(|| Self { engine, row: trim(&name[..at]), metric: "" })
    }
}

fn words(name: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = name.as_ptr() as usize;
    let all = name.split(SEPARATORS).filter(|word| !word.is_empty());
    all.map(move |word| (word.as_ptr() as usize - start, word))
}

fn trim(part: &str) -> &str {
    part.trim_matches(SEPARATORS)
}

fn known(word: &str) -> Option<(&'static str, usize)> {
    ENGINES.into_iter().find(|(engine, _)| *engine == word)
}

pub(crate) fn is_engine(word: &str) -> bool {
    known(word).is_some()
}

/// The place of an engine among the columns.
pub(crate) fn column(engine: &str) -> usize {
    ENGINES.iter().position(|(known, _)| *known == engine).unwrap_or(ENGINES.len())
}

/// The numbers of the colours of these lines, each given with the number of its file. Lines of engines have the
/// engine's colour, in another shade in further files. If there is one engine in several files, each file has its
/// colour.
pub(crate) fn colours<'l>(lines: impl Iterator<Item = (usize, &'l str)>) -> Vec<usize> {
    let lines: Vec<(usize, &str)> = lines.collect();
    let is_one_engine = lines.iter().all(|(_, line)| is_engine(line) && *line == lines[0].1);
    if is_one_engine && lines.len() > 1 {
        return lines.iter().map(|(file, _)| *file).collect();
    }
    let first_file = lines.iter().map(|(file, _)| *file).min();
    let engine_colour = |(file, line): &(usize, &str)| {
        let (_, colour) = known(line)?;
        Some(colour + if Some(*file) == first_file { 0 } else { COLOURS.len() })
    };
    let of_engines: Option<Vec<usize>> = lines.iter().map(engine_colour).collect();
    of_engines.unwrap_or_else(|| (0..lines.len()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(name: &str) -> Option<(&str, &str, &str)> {
        EngineName::parse(name).map(|name| (name.row, name.engine, name.metric))
    }

    #[test]
    fn an_engine_is_a_word_of_its_own() {
        assert_eq!(parts("TCP IPv6 forward slow CPU"), Some(("TCP IPv6 forward", "slow", "CPU")));
        assert_eq!(parts("xdp"), Some(("", "xdp", "")));
        assert_eq!(parts("bridged: tc"), Some(("bridged", "tc", "")));
        assert_eq!(
            parts("nf_flowtable; IPv4 NAT; 1000 flows"),
            Some(("IPv4 NAT; 1000 flows", "nf_flowtable", ""))
        );
        assert_eq!(parts("idle RTT median slow"), Some(("idle RTT median", "slow", "")));
        for name in ["cpu_tc_vs_slow", "slower", "tc to slow", "", "loss"] {
            assert_eq!(parts(name), None, "{name}");
        }
    }

    #[test]
    fn a_ratio_names_an_engine_and_a_baseline() {
        let ratio = EngineName::parse_ratio("UDP IPv4 NAT reverse xdp to slow").unwrap();
        assert_eq!((ratio.row, ratio.engine), ("UDP IPv4 NAT reverse", "xdp"));
        for name in ["lan0 to wan0", "tc to xdp", "slow", "x to slow"] {
            assert_eq!(EngineName::parse_ratio(name), None, "{name}");
        }
    }

    #[test]
    fn an_engine_has_the_same_colour_in_all_tables() {
        let colours_of = |lines: &[(usize, &str)]| colours(lines.iter().copied());
        assert_eq!(colours_of(&[(0, "slow"), (0, "tc"), (0, "xdp")]), [5, 0, 1]);
        assert_eq!(colours_of(&[(1, "tc"), (1, "xdp")]), [0, 1]);
        assert_eq!(colours_of(&[(0, "slow"), (0, "tc"), (1, "slow"), (1, "tc")]), [5, 0, 11, 6]);
        assert_eq!(colours_of(&[(0, "slow"), (1, "slow")]), [0, 1]);
        assert_eq!(colours_of(&[(0, "lan0 to wan0"), (0, "tc")]), [0, 1]);
    }
}
