//! The program that looks ahead, where the memory that it takes for a driver's ring is something else: a test run has
//! no ring.

use crate::rig::{pairs, with_rig};
use shunt_bpf::{XdpForm, attach::Hook};
use shunt_traffic::testrun::{TestRun, XDP_PASS, XDP_REDIRECT};
use shunt_wire::Tag;
use std::os::fd::AsFd;

#[test]
fn it_forwards_the_same_whatever_it_finds_ahead() {
    let tags = [vec![], vec![Tag::vlan(9)], vec![Tag::vlan(9), Tag::vlan(5)]];
    with_rig(|rig| {
        let program = rig.plane.xdp_source(XdpForm::LookingAhead).unwrap().load().unwrap();
        let ahead = TestRun::of(program.as_fd(), Hook::Xdp, rig.port);
        let (mut forwarded, mut number) = (0, 0);
        for pair in pairs() {
            for (from, to) in tags.iter().flat_map(|from| tags.iter().map(move |to| (from, to))) {
                number += 1;
                let pair = pair.retagged(number, from, to);
                rig.learn(&pair);
                let frame = pair.before.to_bytes();
                for wrong in 0..frame.len() {
                    let mut frame = frame.clone();
                    frame[wrong] ^= 1;
                    let (with, without) = (ahead.run(&frame).unwrap(), rig.xdp(&frame));
                    assert_eq!((with.verdict, with.frame), (without.verdict, without.frame), "{frame:?}");
                    let verdicts = [XDP_PASS, XDP_REDIRECT];
                    assert!(verdicts.contains(&with.verdict), "{}", with.verdict);
                    forwarded += u32::from(with.verdict == XDP_REDIRECT);
                }
                let good = ahead.run(&frame).unwrap();
                assert_eq!((good.verdict, good.frame), (XDP_REDIRECT, pair.after.to_bytes()));
            }
        }
        assert!(forwarded > 1000, "only {forwarded} frames were forwarded");
    });
}
