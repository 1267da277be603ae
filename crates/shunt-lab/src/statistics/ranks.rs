//! How many of the ordered values lie beyond each end of an interval of 95 % confidence.

/// Share of the cases beyond each end, of all intervals together.
const BEYOND: f64 = 0.025;

/// The number of values to leave out at each end of `n` ordered values, so that the rest covers the median of their
/// distribution: each value is below it with probability 1/2. This many intervals `together` cover their medians with
/// 95 % (Bonferroni). None if all `n` together are not enough.
pub(super) fn runs_beyond(n: usize, together: usize) -> Option<usize> {
    let beyond = BEYOND / together.max(1) as f64;
    // Logarithms: 0.5^n underflows with many values.
    let mut log_of_term = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut terms = 0;
    for k in 0..n {
        below += log_of_term.exp();
        if below > beyond {
            break;
        }
        terms += 1;
        log_of_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    usize::checked_sub(terms, 1)
}

/// The number of ratios to leave out at each end of all `n` x `m` ordered ratios of two samples, so that the rest
/// covers the ratio of their distributions; otherwise as [`runs_beyond`].
pub(super) fn pairs_beyond(n: usize, m: usize, together: usize) -> Option<usize> {
    let beyond = BEYOND / together.max(1) as f64;
    let mut below = 0.0;
    let fits = |share: &&f64| {
        below += **share;
        below <= beyond
    };
    usize::checked_sub(mann_whitney(n, m).iter().take_while(fits).count(), 1)
}

/// The distribution of the number of pairs whose first value is the greater one, for two samples of the same
/// distribution: the coefficients of the Gaussian binomial, up to the middle.
fn mann_whitney(n: usize, m: usize) -> Vec<f64> {
    let mut shares = vec![0.0; n * m / 2 + 1];
    shares[0] = 1.0;
    for i in 1..=n {
        // Multiply by (1 - q^(m+i)) / (1 - q^i), and keep the sum at 1.
        for at in (m + i..shares.len()).rev() {
            shares[at] -= shares[at - (m + i)];
        }
        for at in i..shares.len() {
            shares[at] += shares[at - i];
        }
        let scale = i as f64 / (m + i) as f64;
        shares.iter_mut().for_each(|share| *share *= scale);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        // R: qbinom(0.025, n, 0.5) - 1, where pbinom(0, n, 0.5) <= 0.025.
        for (n, beyond) in [(0, None), (5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (100, Some(39))] {
            assert_eq!(runs_beyond(n, 1), beyond, "{n}");
        }
        assert_eq!(runs_beyond(5000, 1), Some(2430));
        // Critical values of the U test, two-sided 5 %: 0 for 4 and 4, 5 for 6 and 6, 23 for 10 and 10.
        for (n, m, beyond) in [
            (0, 4, None),
            (3, 3, None),
            (4, 4, Some(0)),
            (6, 6, Some(5)),
            (7, 7, Some(8)),
            (5, 9, Some(7)),
            (10, 10, Some(23)),
            (20, 20, Some(127)),
        ] {
            assert_eq!((pairs_beyond(n, m, 1), pairs_beyond(m, n, 1)), (beyond, beyond), "{n} and {m}");
        }
    }

    #[test]
    fn intervals_that_hold_together_are_wider() {
        // Of the 924 orders of 6 and 6 values, 1 has no pair the other way round, 1 has one, 2 have two.
        let six = |together| pairs_beyond(6, 6, together);
        assert_eq!([1, 9, 10, 23, 24].map(six), [Some(5), Some(1), Some(1), Some(0), None]);
        // All of 9 values lie on one side of their median in 1 of 512 cases.
        assert_eq!([1, 12, 13].map(|together| runs_beyond(9, together)), [Some(1), Some(0), None]);
    }

    #[test]
    fn the_shares_of_two_samples_are_counted_orders() {
        // Of the 20 orders of 3 and 3 values, 1, 1, 2, 3, 3 have 0 to 4 pairs the other way round.
        let want = [1.0, 1.0, 2.0, 3.0, 3.0].map(|orders| orders / 20.0);
        assert!(mann_whitney(3, 3).iter().zip(want).all(|(share, want)| (share - want).abs() < 1e-12));
        let whole: f64 = mann_whitney(61, 60).iter().sum();
        assert!((whole - 0.5).abs() < 0.01 && mann_whitney(61, 60).iter().all(|share| *share >= 0.0));
    }
}
