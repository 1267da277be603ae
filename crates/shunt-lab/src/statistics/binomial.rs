//! The interval of a share, such as that of lost packets.

use crate::spread::{Spread, SpreadKind};

/// Halvings of the interval from 0 to 1, down to the resolution of a double.
const HALVINGS: u32 = 60;
const BEYOND: f64 = 0.025;

/// The exact 95 % confidence interval (Clopper and Pearson) of the share that `hits` of `trials` estimate, from 0 to 1:
/// of packets that are lost independently of each other. None if there were no trials or fewer trials than hits.
pub fn share_interval(hits: u64, trials: u64) -> Option<Spread> {
    let misses = trials.checked_sub(hits).filter(|_| trials > 0)?;
    let (k, rest) = (hits as f64, misses as f64);
    let low = if hits == 0 { 0.0 } else { beta_quantile(BEYOND, k, rest + 1.0) };
    let high = if misses == 0 { 1.0 } else { beta_quantile(1.0 - BEYOND, k + 1.0, rest) };
    Some(Spread { low, high, kind: SpreadKind::Confidence95 })
}

fn beta_quantile(share: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if beta_share(middle, a, b) < share { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function.
fn beta_share(x: f64, a: f64, b: f64) -> f64 {
    // The continued fraction converges quickly on this side of the mean only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_share(1.0 - x, b, a);
    }
    if x <= 0.0 {
        return 0.0;
    }
    let log = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    log.exp() / a / continued_fraction(x, a, b)
}

/// The denominator of the continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const MOST_TERMS: u32 = 1_000_000;
    let nonzero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut fraction, mut c, mut d) = (1.0, 1.0, 0.0);
    for term in 1..MOST_TERMS {
        let m = f64::from(term / 2);
        let factor = if term % 2 == 0 {
            m * (b - m) / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / nonzero(1.0 + factor * x * d);
        c = nonzero(1.0 + factor * x / c);
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// The logarithm of the gamma function of a value from 1 on, by Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    // The series is exact to 1e-14 from 10 on; ln gamma(x) = ln gamma(x + 1) - ln x leads there.
    let (mut x, mut less) = (x, 0.0);
    while x < 10.0 {
        less += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - less
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) -> bool {
        (got - want).abs() <= 1e-6 * want.abs().max(1e-9)
    }

    #[test]
    fn the_interval_of_a_share_is_that_of_r() {
        // binom.test(hits, trials)$conf.int
        for (hits, trials, low, high) in [
            (0, 1, 0.0, 0.975),
            (0, 10, 0.0, 0.308_497_1),
            (1, 10, 0.002_528_579, 0.445_016_1),
            (5, 10, 0.187_086, 0.812_914),
            (10, 10, 0.691_502_9, 1.0),
        ] {
            let got = share_interval(hits, trials).unwrap();
            assert!(near(got.low, low) && near(got.high, high), "{hits} of {trials}: {got:?}");
        }
        let lost = share_interval(62, 1647).unwrap();
        assert_eq!(
            (format!("{:.1}", lost.low * 100.0), format!("{:.1}", lost.high * 100.0)),
            ("2.9".into(), "4.8".into())
        );
        assert_eq!((share_interval(0, 0), share_interval(2, 1)), (None, None));
    }

    #[test]
    fn millions_of_packets_have_a_narrow_interval() {
        // Without loss, the upper bound is 1 - 0.025^(1/n).
        let none = share_interval(0, 1_000_000_000).unwrap();
        assert!(none.low == 0.0 && near(none.high, 3.688_879_447e-9), "{none:?}");
        // With many losses, the interval is that of the normal distribution.
        let many = share_interval(10_000_000, 1_000_000_000).unwrap();
        let half = 1.959_964 * (0.01_f64 * 0.99 / 1e9).sqrt();
        assert!(
            (many.low - (0.01 - half)).abs() < 0.01 * half && (many.high - (0.01 + half)).abs() < 0.01 * half,
            "{many:?}"
        );
    }
}
