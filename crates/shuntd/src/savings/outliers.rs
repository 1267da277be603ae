//! Measurements that something else disturbed, such as the host of a virtual machine.

/// A measurement is left out if it is so many times further from the median than half of the others.
const OUTLIER: f64 = 6.0;
/// At most one measurement in this number is left out.
const OUTLIERS: usize = 4;

/// The measurements without those whose value is far from that of the others.
pub(super) fn without<T: Clone>(measurements: &[T], value: impl Fn(&T) -> f64) -> Vec<T> {
    let middle = median(measurements.iter().map(&value).collect());
    let distance = |measurement: &T| (value(measurement) - middle).abs();
    let usual = median(measurements.iter().map(distance).collect());
    let mut kept = measurements.to_vec();
    kept.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let least = measurements.len() - measurements.len() / OUTLIERS;
    while kept.len() > least && kept.last().is_some_and(|last| distance(last) > OUTLIER * usual) {
        kept.pop();
    }
    kept
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
