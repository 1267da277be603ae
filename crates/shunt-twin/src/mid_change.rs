//! Packets sent during a change: each must leave as before the change or as after it.

use crate::{
    compare::{Discrepancy, Fault, is_unasked, masked},
    packet::Identity,
    worker::Frame,
};
use std::collections::BTreeMap;

/// The frames that Linux alone makes of each packet, sent once.
#[derive(Debug, Default)]
pub(crate) struct ExpectedFrames(BTreeMap<u32, Vec<Frame>>);

impl ExpectedFrames {
    pub(crate) fn from_frames(frames: Vec<Frame>) -> Self {
        let mut way: BTreeMap<u32, Vec<Frame>> = BTreeMap::new();
        for frame in frames.into_iter().filter(|frame| !is_unasked(&frame.bytes)) {
            if let Some(identity) = Identity::find(&frame.bytes) {
                way.entry(identity.number).or_default().push(masked(frame));
            }
        }
        Self(way)
    }

    fn frames(&self, number: u32) -> &[Frame] {
        self.0.get(&number).map_or(&[], Vec::as_slice)
    }
}

/// Judges the frames that left while packets of these numbers were sent `rounds` times each. Faults are a frame that is
/// in none of `ways`, fewer frames than each of `ways` gives, and more frames than any gives.
pub(crate) fn judge(
    ways: &[ExpectedFrames],
    numbers: &[u32],
    rounds: usize,
    left: &ExpectedFrames,
) -> Vec<Discrepancy> {
    let mut found = Vec::new();
    for number in numbers {
        let known = |frame: &Frame| ways.iter().any(|way| way.frames(*number).contains(frame));
        let frames = left.frames(*number);
        let mut report = |kind, reference: Option<&Frame>, subject: Option<&Frame>| {
            let either = reference.or(subject);
            found.push(Discrepancy {
                kind,
                identity: either.and_then(|frame| Identity::find(&frame.bytes)),
                reference: reference.cloned(),
                subject: subject.cloned(),
            });
        };
        let some = ways.iter().find_map(|way| way.frames(*number).first());
        for strange in frames.iter().filter(|frame| !known(frame)) {
            report(if some.is_some() { Fault::Different } else { Fault::Extra }, some, Some(strange));
        }
        let counts = ways.iter().map(|way| way.frames(*number).len() * rounds);
        if counts.clone().min().is_some_and(|least| frames.len() < least) {
            report(Fault::Lost, some, None);
        }
        if counts.max().is_some_and(|most| frames.len() > most) {
            report(Fault::Duplicated, some, frames.first());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Site;
    use std::slice;

    fn frame(site: Site, number: u8) -> Frame {
        let mut bytes = vec![0; 60];
        bytes[42..46].copy_from_slice(b"TWIN");
        bytes[53] = number;
        Frame { site, bytes }
    }

    fn faults(ways: &[&[Frame]], rounds: usize, left: &[Frame]) -> Vec<Fault> {
        let ways: Vec<ExpectedFrames> =
            ways.iter().map(|way| ExpectedFrames::from_frames(way.to_vec())).collect();
        judge(&ways, &[1], rounds, &ExpectedFrames::from_frames(left.to_vec()))
            .into_iter()
            .map(|d| d.kind)
            .collect()
    }

    #[test]
    fn either_way_is_right_and_no_third_one() {
        let (old, new, third) = (frame(Site::Wan, 1), frame(Site::Wan2, 1), frame(Site::Dmz, 1));
        let ways = [slice::from_ref(&old), slice::from_ref(&new)];
        assert_eq!(faults(&ways, 2, &[old.clone(), new.clone()]), []);
        assert_eq!(faults(&ways, 2, &[old.clone(), third.clone()]), [Fault::Different]);
        assert_eq!(faults(&ways, 2, slice::from_ref(&old)), [Fault::Lost]);
        assert_eq!(faults(&ways, 1, &[old.clone(), new.clone()]), [Fault::Duplicated]);
        // After the change, the packet is dropped.
        assert_eq!(faults(&[slice::from_ref(&old), &[]], 2, slice::from_ref(&old)), []);
        assert_eq!(faults(&[&[], &[]], 1, &[third]), [Fault::Extra, Fault::Duplicated]);
    }
}
