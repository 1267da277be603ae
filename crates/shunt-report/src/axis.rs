//! Axes: their range, their ticks and labels. The ticks are few enough that no two labels overlap.

/// The longest unit that fits below a plot, in characters.
const UNIT_CHARS: usize = 24;

/// A numeric axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<f64>,
    factor: f64,
    decimals: usize,
    /// The unit of the labels, with its prefix.
    pub(crate) unit: String,
}

impl Axis {
    /// A linear axis that contains all values, with about this many ticks. None if the values have no finite range.
    pub(crate) fn around(values: &[f64], unit: &str, ticks: usize) -> Option<Self> {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let most = low.abs().max(high.abs());
        // Do not magnify differences below a thousandth of the values.
        let span = (high - low).max(most * 1e-3);
        let span = if span == 0.0 { 1.0 } else { span };
        let step = step(span / ticks as f64);
        if !(step.is_normal() && low.is_finite() && high.is_finite()) {
            return None;
        }
        // Extend to the next tick on both sides, so that points and labels stay within the plot.
        let (first, last) = ((low / step).floor(), (high / step).ceil().max((low / step).floor() + 1.0));
        let ticks = (0..=(last - first) as usize).map(|n| (first + n as f64) * step).collect();
        let (factor, unit) = scale(unit, most);
        // 1e-9: rounding may make a step of 1 a little less than 1.
        let decimals = (-((step / factor).log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
        Some(Self { low: first * step, high: last * step, ticks, factor, decimals, unit })
    }

    /// An axis of whole numbers from 1 to `to`.
    pub(crate) fn counting(to: usize, ticks: usize) -> Self {
        let step = step(to as f64 / ticks as f64).max(1.0);
        let ticks =
            (1..=to).filter(|n| to <= 6 || (*n as f64 / step).fract() == 0.0).map(|n| n as f64).collect();
        Self::marked(0.5, to as f64 + 0.5, ticks)
    }

    /// An axis with these ticks and without a unit.
    pub(crate) fn marked(low: f64, high: f64, ticks: Vec<f64>) -> Self {
        Self { low, high, ticks, factor: 1.0, decimals: 0, unit: String::new() }
    }

    /// A logarithmic axis: its ends and ticks are decimal logarithms. Values below 1 count as 1. None without values.
    pub(crate) fn logarithmic(values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?.max(1.0).log10().floor();
        let high = values.iter().copied().reduce(f64::max)?.max(1.0).log10().ceil().max(low + 1.0);
        let decades = high - low;
        let fine: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let ticks = (0..=decades as usize)
            .flat_map(|n| fine.iter().map(move |digit| low + n as f64 + digit.log10()))
            .filter(|tick| *tick <= high)
            .collect();
        Some(Self::marked(low, high, ticks))
    }

    pub(crate) fn label(&self, tick: f64) -> String {
        // Adding 0.0 turns -0 into 0.
        format!("{:.*}", self.decimals, tick / self.factor + 0.0)
    }

    /// The label of a logarithmic tick, short: `20k`.
    pub(crate) fn power_label(tick: f64) -> String {
        let value = 10_f64.powf(tick).round();
        match value {
            1e9.. => format!("{}G", value / 1e9),
            1e6.. => format!("{}M", value / 1e6),
            1e3.. => format!("{}k", value / 1e3),
            _ => value.to_string(),
        }
    }
}

/// The smallest of 1, 2 or 5 times a power of ten that is not less than `least`.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// The divisor of the labels, and the unit with its prefix.
fn scale(unit: &str, most: f64) -> (f64, String) {
    let prefixed = |unit: &str| match most {
        1e9.. => (1e9, format!("G{unit}")),
        1e6.. => (1e6, format!("M{unit}")),
        1e3.. => (1e3, format!("k{unit}")),
        _ => (1.0, unit.to_owned()),
    };
    // The unit `1` means a ratio.
    let unit = if unit == "1" { "" } else { unit };
    let short: String = unit.chars().take(UNIT_CHARS).collect();
    let unit = if short == unit { short } else { short + "..." };
    match unit.as_str() {
        "pps" | "bit/s" => prefixed(&unit),
        _ if most >= 1e6 => {
            let power = (most.log10() / 3.0).floor() as i32 * 3;
            (10_f64.powi(power), format!("1e{power} {unit}").trim_end().to_owned())
        }
        _ => (1.0, unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], unit: &str) -> (Vec<String>, String) {
        let axis = Axis::around(values, unit, 4).unwrap();
        (axis.ticks.iter().map(|tick| axis.label(*tick)).collect(), axis.unit)
    }

    #[test]
    fn ticks_are_round_and_enclose_all_values() {
        let (ticks, unit) = labels(&[0.0, 1_488_095.0], "pps");
        assert_eq!((ticks.join(" ").as_str(), unit.as_str()), ("0.0 0.5 1.0 1.5", "Mpps"));
        let (ticks, unit) = labels(&[996_800.0, 999_100.0], "pps");
        assert_eq!((ticks.join(" ").as_str(), unit.as_str()), ("996 997 998 999 1000", "kpps"));
        assert_eq!(labels(&[-3.0, 3.0], "points").0.join(" "), "-4 -2 0 2 4");
        assert_eq!(labels(&[0.0], "ns").0.join(" "), "0.0 0.5");
        let (ticks, unit) = labels(&[0.0, 3e300], "ns");
        assert_eq!((ticks.join(" ").as_str(), unit.as_str()), ("0 1 2 3", "1e300 ns"));
        assert_eq!([labels(&[0.0, 1.5], "1").1, labels(&[0.0, 3e9], "1").1], ["", "1e9"]);
        assert_eq!(labels(&[0.0, 1.5], "1/s").1, "1/s");
    }

    #[test]
    fn no_two_labels_are_equal() {
        for values in [[5.0, 5.0], [1e9, 1e9 + 1.0], [0.1, 0.3], [1e-7, 3e-7], [-1e6, 7.0]] {
            let (ticks, _) = labels(&values, "pps");
            assert!((2..=6).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.windows(2).all(|two| two[0] != two[1]), "{ticks:?}");
        }
    }

    #[test]
    fn values_without_a_finite_range_have_no_axis() {
        for values in [&[][..], &[f64::MAX, f64::MIN], &[f64::NAN, f64::INFINITY]] {
            assert_eq!(Axis::around(values, "pps", 4), None, "{values:?}");
        }
    }

    #[test]
    fn an_axis_of_runs_has_ticks_at_whole_numbers() {
        assert_eq!(Axis::counting(3, 6).ticks, [1.0, 2.0, 3.0]);
        assert_eq!(Axis::counting(30, 6).ticks, [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
    }

    #[test]
    fn logarithmic_labels_are_short() {
        let axis = Axis::logarithmic(&[700.0, 9_000.0]).unwrap();
        let labels: Vec<_> = axis.ticks.iter().map(|tick| Axis::power_label(*tick)).collect();
        assert_eq!(labels.join(" "), "100 200 500 1k 2k 5k 10k");
        assert_eq!(Axis::logarithmic(&[0.0, 5e7]).unwrap().ticks.len(), 9);
    }
}
