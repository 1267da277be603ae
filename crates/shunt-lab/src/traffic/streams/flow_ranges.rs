//! The flows of a receiver, divided among streams.

use std::ops::Range;

/// Ranges of flow numbers that are in use.
#[derive(Debug)]
pub(super) struct FlowRanges {
    all: u32,
    used: Vec<Range<u32>>,
    /// End of the range that was taken last: a range that was given back is used again as late as possible, because
    /// packets of its stream may still be under way.
    last: u32,
}

impl FlowRanges {
    pub(super) fn new(all: u32) -> Self {
        Self { all, used: Vec::new(), last: 0 }
    }

    /// Takes a range of free flows; None if there is none of this size.
    pub(super) fn take(&mut self, flows: u32) -> Option<Range<u32>> {
        let ends = self.used.iter().map(|used| used.end);
        let starts = ends.chain([0, self.last]).filter(|start| self.is_free(*start, flows));
        // The first behind the last one, or else the first.
        let start = starts.min_by_key(|start| (*start < self.last, *start))?;
        let range = start..start + flows;
        self.last = range.end;
        self.used.push(range.clone());
        Some(range)
    }

    pub(super) fn give_back(&mut self, range: &Range<u32>) {
        self.used.retain(|used| used != range);
    }

    fn is_free(&self, start: u32, flows: u32) -> bool {
        let end = u64::from(start) + u64::from(flows);
        end <= u64::from(self.all)
            && self.used.iter().all(|used| end <= u64::from(used.start) || used.end <= start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_are_used_again_late() {
        let mut ranges = FlowRanges::new(10);
        assert_eq!([ranges.take(3), ranges.take(3)], [Some(0..3), Some(3..6)]);
        ranges.give_back(&(0..3));
        assert_eq!([ranges.take(2), ranges.take(3)], [Some(6..8), Some(0..3)]);
        assert_eq!([ranges.take(3), ranges.take(2), ranges.take(1)], [None, Some(8..10), None]);
        assert_eq!(FlowRanges::new(10).take(11), None);
    }
}
