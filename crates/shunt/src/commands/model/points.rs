//! The points of a sweep over parameters.

use crate::failure::usage;
use shunt_api::Failure;
use shunt_model::parse_number;
use std::str::FromStr;

/// More points than anybody waits for.
const POINTS_MAX: usize = 10_000;

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Over {
    name: String,
    values: Vec<String>,
}

fn number(text: &str) -> Result<f64, String> {
    parse_number(text).ok_or_else(|| format!("`{text}` is not a number"))
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "use NAME=VALUE,VALUE or NAME=FIRST..LAST/COUNT, such as traffic.rate=50M..1G/20";
        let (name, values) = text.split_once('=').ok_or(example)?;
        let values = match values.split_once("..") {
            None => values.split(',').map(|value| value.trim().to_owned()).collect(),
            Some((first, rest)) => {
                let (last, count) = rest.split_once('/').ok_or(example)?;
                let count: usize = count.parse().map_err(|_| format!("`{count}` is not a count"))?;
                if !(2..=POINTS_MAX).contains(&count) {
                    return Err(format!("{count} values: use 2 to {POINTS_MAX}"));
                }
                let (first, last) = (number(first)?, number(last)?);
                let step = (last - first) / (count - 1) as f64;
                (0..count).map(|n| (first + step * n as f64).to_string()).collect()
            }
        };
        Ok(Self { name: name.trim().to_owned(), values })
    }
}

/// All combinations of the values, the last parameter changing first.
pub(super) fn settings_of(over: &[Over]) -> Result<Vec<Vec<(String, String)>>, Failure> {
    let count: usize = over.iter().map(|one| one.values.len()).product();
    if count > POINTS_MAX {
        return Err(usage(format!("{count} points: at most {POINTS_MAX} are predicted at once")));
    }
    let mut all = vec![Vec::new()];
    for Over { name, values } in over {
        let with = |settings: &Vec<(String, String)>| {
            let settings = settings.clone();
            let one = move |value: &String| [settings.clone(), vec![(name.clone(), value.clone())]].concat();
            values.iter().map(one).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        text.parse::<Over>().unwrap().values
    }

    #[test]
    fn values_are_listed_or_at_equal_distances() {
        assert_eq!(values("traffic.rate=100M,200M"), ["100M", "200M"]);
        assert_eq!(values("traffic.rate=50M..1G/20")[..2], ["50000000", "100000000"]);
        assert_eq!(values("ring.rx=1..3/3"), ["1", "2", "3"]);
        assert_eq!(values("fifo.pause=on,off"), ["on", "off"]);
        for wrong in ["traffic.rate", "traffic.rate=1..2", "traffic.rate=1..x/3", "a.b=1..2/1"] {
            assert!(wrong.parse::<Over>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn parameters_are_combined() {
        let over: Vec<Over> = ["a.x=1,2", "b.y=3,4"].iter().map(|text| text.parse().unwrap()).collect();
        let all = settings_of(&over).unwrap();
        let text = |settings: &Vec<(String, String)>| {
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            all.iter().map(text).collect::<Vec<_>>(),
            ["a.x=1 b.y=3", "a.x=1 b.y=4", "a.x=2 b.y=3", "a.x=2 b.y=4"]
        );
        let many: Vec<Over> = (0..3).map(|_| "a.x=1..100/100".parse().unwrap()).collect();
        assert!(settings_of(&many).unwrap_err().message.contains("1000000 points"));
    }
}
