//! The minimum of a function of several numbers: by the simplex method of Nelder and Mead, or of Levenberg and
//! Marquardt if the function is a sum of squares.

/// Finds a minimum near `start`, with a first step of `step` in each direction.
pub(crate) fn minimum(
    start: &[f64],
    step: f64,
    evaluations: usize,
    mut cost: impl FnMut(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let mut used = 0;
    let mut eval = |at: &[f64]| {
        used += 1;
        let cost = cost(at);
        (if cost.is_finite() { cost } else { f64::MAX }, used)
    };
    let mut simplex: Vec<(Vec<f64>, f64)> = vec![(start.to_vec(), eval(start).0)];
    for axis in 0..start.len() {
        let mut at = start.to_vec();
        at[axis] += step;
        let cost = eval(&at).0;
        simplex.push((at, cost));
    }
    let dimensions = start.len() as f64;
    loop {
        simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, worst) = (simplex[0].1, simplex[simplex.len() - 1].1);
        let (last, rest) = simplex.split_last_mut().expect("a simplex has corners");
        if rest.is_empty() {
            return last.clone();
        }
        let centre: Vec<f64> = (0..start.len())
            .map(|axis| rest.iter().map(|(at, _)| at[axis]).sum::<f64>() / dimensions)
            .collect();
        let towards = |factor: f64| -> Vec<f64> {
            centre.iter().zip(&last.0).map(|(centre, worst)| centre + factor * (centre - worst)).collect()
        };
        let reflected = towards(1.0);
        let (cost, used) = eval(&reflected);
        if used >= evaluations || (worst - best).abs() <= 1e-9 * best.abs().max(1e-12) {
            return simplex.swap_remove(0);
        }
        if cost < best {
            let expanded = towards(2.0);
            let further = eval(&expanded).0;
            *last = if further < cost { (expanded, further) } else { (reflected, cost) };
        } else if rest.last().is_some_and(|second| cost < second.1) {
            *last = (reflected, cost);
        } else {
            let contracted = towards(if cost < last.1 { 0.5 } else { -0.5 });
            let inside = eval(&contracted).0;
            if inside < last.1.min(cost) {
                *last = (contracted, inside);
            } else {
                let (first, others) = simplex.split_first_mut().expect("a simplex has corners");
                for (at, cost) in others {
                    for (number, best) in at.iter_mut().zip(&first.0) {
                        *number = (*number + best) / 2.0;
                    }
                    *cost = eval(at).0;
                }
            }
        }
    }
}

/// Inverts a symmetric matrix. A direction without information gets a very large variance.
pub(crate) fn inverse(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let size = matrix.len();
    let largest = (0..size).map(|i| matrix[i][i]).fold(0.0, f64::max);
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += 1e-9 * largest.max(1e-9);
        row.extend((0..size).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    for pivot in 0..size {
        let row = (pivot..size).max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()));
        matrix.swap(pivot, row.unwrap_or(pivot));
        let by = matrix[pivot][pivot];
        for number in &mut matrix[pivot] {
            *number /= by;
        }
        let pivot_row = matrix[pivot].clone();
        for (other, row) in matrix.iter_mut().enumerate() {
            if other != pivot {
                let factor = row[pivot];
                for (number, by) in row.iter_mut().zip(&pivot_row) {
                    *number -= factor * by;
                }
            }
        }
    }
    matrix.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// Finds numbers near `start` that make the sum of the squared residuals small. Slopes are taken over twice `step`,
/// which must be wide enough to rise above the noise of the function. Points without residuals are avoided.
pub(crate) fn least_squares(
    start: &[f64],
    step: f64,
    iterations: usize,
    mut residuals: impl FnMut(&[f64]) -> Option<Vec<f64>>,
) -> (Vec<f64>, f64) {
    let sum = |all: &[f64]| all.iter().map(|one| one * one).sum::<f64>();
    let mut best = start.to_vec();
    let Some(mut at_best) = residuals(&best) else { return (best, f64::INFINITY) };
    let mut damping = 1e-2;
    for _ in 0..iterations {
        let mut slopes = Vec::with_capacity(best.len());
        for axis in 0..best.len() {
            let mut moved = |by: f64| {
                let mut at = best.clone();
                at[axis] += by;
                residuals(&at).unwrap_or_else(|| at_best.clone())
            };
            let (above, below) = (moved(step), moved(-step));
            slopes.push(above.iter().zip(&below).map(|(a, b)| (a - b) / (2.0 * step)).collect::<Vec<_>>());
        }
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let gradient: Vec<f64> = slopes.iter().map(|slope| dot(slope, &at_best)).collect();
        let mut better = false;
        for _ in 0..4 {
            let mut matrix: Vec<Vec<f64>> =
                slopes.iter().map(|a| slopes.iter().map(|b| dot(a, b)).collect()).collect();
            for (axis, row) in matrix.iter_mut().enumerate() {
                row[axis] += damping * row[axis].max(1e-6);
            }
            let inverse = inverse(matrix);
            let next: Vec<f64> = best
                .iter()
                .zip(&inverse)
                .map(|(at, row)| at - dot(row, &gradient).clamp(-1.0, 1.0))
                .collect();
            let found = residuals(&next).filter(|found| sum(found) < sum(&at_best));
            if let Some(found) = found {
                better = sum(&found) < 0.999 * sum(&at_best);
                (best, at_best) = (next, found);
                damping = (damping / 5.0).max(1e-6);
                break;
            }
            damping *= 6.0;
        }
        if !better {
            break;
        }
    }
    let cost = sum(&at_best);
    (best, cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_a_narrow_valley_is_found() {
        // Rosenbrock's function.
        let residuals = |at: &[f64]| Some(vec![1.0 - at[0], 10.0 * (at[1] - at[0] * at[0])]);
        let sum = |at: &[f64]| residuals(at).unwrap().iter().map(|one| one * one).sum();
        let (at, cost) = minimum(&[-1.2, 1.0], 0.5, 2000, sum);
        assert!(cost < 1e-8 && (at[0] - 1.0).abs() < 1e-3, "{at:?} {cost}");
        let (at, cost) = least_squares(&[-1.2, 1.0], 1e-4, 100, residuals);
        assert!(cost < 1e-8 && (at[0] - 1.0).abs() < 1e-3, "{at:?} {cost}");
    }
}
