//! Sums by minute, hour and day, in bounded space.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::ops::RangeInclusive;

/// A size of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Minute,
    Hour,
    Day,
}

impl Step {
    pub(crate) const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }

    /// How many steps are kept, with the present one.
    pub(crate) const fn kept(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 7 * 24,
            Self::Day => 31,
        }
    }

    /// The number of the step, since 1970.
    pub(crate) fn index(self, at: u64) -> u32 {
        u32::try_from(at / self.seconds()).unwrap_or(u32::MAX)
    }

    /// When a step begins, in seconds since 1970.
    pub(crate) fn begin(self, index: u32) -> u64 {
        u64::from(index) * self.seconds()
    }
}

/// `N` sums for each step that is kept. A step has a place by its number; another step with the same place replaces it.
#[derive(Debug, Clone)]
struct Ring<const N: usize>(Box<[(u32, [u64; N])]>);

impl<const N: usize> Ring<N> {
    fn new(step: Step) -> Self {
        Self(vec![(0, [0; N]); step.kept() as usize].into())
    }

    fn add(&mut self, index: u32, sums: &[u64; N]) {
        let place = index as usize % self.0.len();
        let slot = &mut self.0[place];
        if slot.0 != index {
            *slot = (index, [0; N]);
        }
        add(&mut slot.1, sums);
    }

    fn get(&self, index: u32) -> [u64; N] {
        let (has, sums) = self.0[index as usize % self.0.len()];
        if has == index { sums } else { [0; N] }
    }

    fn used(&self) -> impl Iterator<Item = &(u32, [u64; N])> {
        self.0.iter().filter(|(_, sums)| *sums != [0; N])
    }
}

fn add<const N: usize>(to: &mut [u64; N], sums: &[u64; N]) {
    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = to.saturating_add(*sum));
}

/// The sums by minute, hour and day.
#[derive(Debug, Clone)]
pub(crate) struct Series<const N: usize>([Ring<N>; 3]);

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self(Step::ALL.map(Ring::new))
    }
}

impl<const N: usize> Series<N> {
    /// Adds to the steps of this time.
    pub(crate) fn add(&mut self, at: u64, sums: &[u64; N]) {
        for (ring, step) in self.0.iter_mut().zip(Step::ALL) {
            ring.add(step.index(at), sums);
        }
    }

    pub(crate) fn get(&self, step: Step, index: u32) -> [u64; N] {
        self.0[step as usize].get(index)
    }

    /// The sums over some steps.
    pub(crate) fn sum(&self, step: Step, steps: RangeInclusive<u32>) -> [u64; N] {
        let mut sum = [0; N];
        steps.for_each(|index| add(&mut sum, &self.get(step, index)));
        sum
    }

    /// Adds another series, except for steps whose places have later steps here.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (ring, other) in self.0.iter_mut().zip(&other.0) {
            for (index, sums) in other.used() {
                if ring.0[*index as usize % ring.0.len()].0 <= *index {
                    ring.add(*index, sums);
                }
            }
        }
    }

    /// Moves the steps of a time to those of another one.
    pub(crate) fn move_steps(&mut self, from: u64, to: u64) {
        for (ring, step) in self.0.iter_mut().zip(Step::ALL) {
            let (from, to) = (step.index(from), step.index(to));
            let sums = ring.get(from);
            if from != to && sums != [0; N] {
                ring.0[from as usize % ring.0.len()] = (0, [0; N]);
                ring.add(to, &sums);
            }
        }
    }

    /// The days with sums that are not 0, out of those kept at this time.
    pub(crate) fn days_in_use(&self, at: u64) -> usize {
        let today = Step::Day.index(at);
        let first = today.saturating_sub(Step::Day.kept() as u32 - 1);
        (first..=today).filter(|index| self.get(Step::Day, *index) != [0; N]).count()
    }
}

impl<const N: usize> Serialize for Series<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Used<'a, const N: usize>(&'a Ring<N>);
        impl<const N: usize> Serialize for Used<'_, N> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.used().map(|(index, sums)| (index, &sums[..])))
            }
        }
        serializer.collect_seq(self.0.iter().map(Used))
    }
}

/// Earlier versions kept fewer sums for each step; those that they did not have are 0.
impl<'de, const N: usize> Deserialize<'de> for Series<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut series = Self::default();
        let kept = <[Vec<(u32, Vec<u64>)>; 3]>::deserialize(deserializer)?;
        for (ring, kept) in series.0.iter_mut().zip(kept) {
            for (index, kept) in kept {
                let mut sums = [0; N];
                let known = sums.get_mut(..kept.len());
                let known = known.ok_or_else(|| D::Error::custom(format!("expected at most {N} sums")))?;
                known.copy_from_slice(&kept);
                ring.add(index, &sums);
            }
        }
        Ok(series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-10-09 08:53:20 UTC.
    const NOW: u64 = 1_760_000_000;

    #[test]
    fn a_step_is_kept_until_its_place_is_needed_again() {
        let mut series = Series::default();
        series.add(NOW, &[1, 10]);
        series.add(NOW + 60, &[2, 20]);
        series.add(NOW + 60 * 60, &[4, 40]);
        let minute = Step::Minute.index(NOW);
        assert_eq!(series.get(Step::Minute, minute), [0, 0]);
        assert_eq!(series.sum(Step::Minute, minute + 1..=minute + 60), [6, 60]);
        let hour = Step::Hour.index(NOW);
        assert_eq!((series.get(Step::Hour, hour), series.get(Step::Hour, hour + 1)), ([3, 30], [4, 40]));
        assert_eq!(series.get(Step::Day, Step::Day.index(NOW)), [7, 70]);
        series.add(NOW + 31 * 86_400, &[8, 80]);
        assert_eq!((series.get(Step::Day, Step::Day.index(NOW)), series.days_in_use(NOW)), ([0, 0], 0));
    }

    #[test]
    fn a_series_is_the_same_after_it_was_kept() {
        let mut series = Series::<2>::default();
        (0..400).for_each(|n| series.add(NOW + n * 3600, &[n, 1]));
        let text = serde_json::to_string(&series).unwrap();
        let again: Series<2> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        assert!(serde_json::from_str::<Series<1>>(&text).is_err());
        let wider: Series<3> = serde_json::from_str(&text).unwrap();
        assert_eq!(wider.get(Step::Hour, Step::Hour.index(NOW + 399 * 3600)), [399, 1, 0]);
    }

    #[test]
    fn merged_and_moved_steps_are_neither_lost_nor_counted_twice() {
        let (mut one, mut other) = (Series::<1>::default(), Series::<1>::default());
        one.add(NOW, &[1]);
        other.add(NOW, &[2]);
        other.add(NOW - 86_400, &[4]);
        one.merge(&other);
        let days = Step::Day.index(NOW) - 1..=Step::Day.index(NOW);
        assert_eq!(one.sum(Step::Day, days.clone()), [7]);
        one.move_steps(NOW - 86_400, NOW);
        assert_eq!((one.sum(Step::Day, days), one.get(Step::Day, Step::Day.index(NOW))), ([7], [7]));
    }
}
