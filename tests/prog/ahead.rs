//! The programs that look ahead: where the memory that they take for a driver's ring is something else, since a test
//! run has no ring, and what they find in the rings of drivers.

use crate::rig::{pairs, with_rig};
use shunt_bpf::{DriverRing, XdpForm, attach::Hook};
use shunt_gen::Grid;
use shunt_testkit::{NetNs, is_guest, require_root, skip_missing_feature, wait_for};
use shunt_traffic::{
    AheadCounts, Generator, RingReader, Sink,
    testrun::{TestRun, XDP_PASS, XDP_REDIRECT},
};
use shunt_wire::{Mac, Tag};
use std::{fs, os::fd::AsFd, process::Command, time::Duration};

/// Frames that are sent at a time: as many as a driver handles in one poll.
const BATCH: u64 = 64;
const FRAMES: u64 = 16 * BATCH;
/// More than a ring of QEMU's virtio-net has.
const BUFFERS: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn they_forward_the_same_whatever_they_find_ahead() {
    let tags = [vec![], vec![Tag::vlan(9)], vec![Tag::vlan(9), Tag::vlan(5)]];
    with_rig(|rig| {
        let load = |ring| rig.plane.xdp_source(XdpForm::LookingAhead(ring)).unwrap().load();
        // Where virtio_net is a module that is not loaded, the kernel lacks the types of the driver.
        let programs = [Some(load(DriverRing::Veth).unwrap()), load(DriverRing::Virtio).ok()];
        let (mut forwarded, mut number) = (0, 0);
        for program in programs.iter().flatten() {
            let ahead = TestRun::of(program.as_fd(), Hook::Xdp, rig.port);
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
        }
        assert!(forwarded > 1000, "only {forwarded} frames were forwarded");
    });
}

/// What is found in the ring of `to` when frames arrive there from `from`, the other end of a wire.
fn found(ns: &NetNs, from: &str, to: &str, ring: DriverRing) -> AheadCounts {
    for link in [from, to] {
        ns.run(&format!("ip link set {link} up promisc on"));
    }
    let (near, far) = (([192, 0, 2, 1], 1024).into(), ([192, 0, 2, 2], 9).into());
    let macs = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
    let frames = Grid { lows: 16, ..Grid::of_one_flow(near, far, macs) };
    ns.within(|| {
        // Drivers take the generator's frames only with a program attached.
        let _sink = Sink::attach(ns.ifindex(from)).unwrap();
        let reader = RingReader::attach(ns.ifindex(to), ring).unwrap();
        let mut generator = Generator::new(&frames.traffic().unwrap(), ns.ifindex(from)).unwrap();
        // The buffers that virtio_net had in its ring before have no room for XDP, and it copies their frames.
        let first = received(&reader, &mut generator, AheadCounts::default(), BUFFERS);
        received(&reader, &mut generator, first, FRAMES)
    })
}

/// Sends until `least` frames have been received since `before`, and returns how many.
fn received(reader: &RingReader, generator: &mut Generator, before: AheadCounts, least: u64) -> AheadCounts {
    let since = |now: AheadCounts| AheadCounts {
        right: now.right - before.right,
        wrong: now.wrong - before.wrong,
        unseen: now.unseen - before.unseen,
    };
    let enough = wait_for(PATIENCE, || {
        generator.run(BATCH).unwrap();
        let counts = since(reader.counts().unwrap());
        (counts.right + counts.wrong + counts.unseen >= least).then_some(counts)
    });
    enough.unwrap_or_else(|| panic!("too few frames: {:?}", reader.counts()))
}

#[test]
fn the_next_frames_are_found_in_the_ring_of_a_veth() {
    if !require_root() {
        return;
    }
    let ns = NetNs::new("ahead");
    ns.run("ip link add far type veth peer name near");
    let found = found(&ns, "far", "near", DriverRing::Veth);
    assert_eq!(found.wrong, 0, "{found:?}");
    assert!(found.right > 2 * found.unseen, "{found:?}");
}

/// The device with this MAC.
fn device(mac: &str) -> Option<String> {
    let devices = fs::read_dir("/sys/class/net").unwrap().map(|device| device.unwrap().path());
    let has_mac = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("address")).is_ok_and(|address| address.trim() == mac)
    };
    devices.filter(has_mac).find_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
}

/// A guest of `cargo xtask vm --nics` has a wire between these two.
#[test]
fn the_next_frames_are_found_in_the_ring_of_a_virtio_net_device() {
    if !require_root() {
        return;
    }
    if is_guest() {
        assert!(Command::new("modprobe").arg("virtio_net").status().unwrap().success());
    }
    let ends = ["02:10:00:00:01:01", "02:10:00:00:01:02"].map(device);
    let [Some(near), Some(far)] = ends else {
        let tests = "--kernel drivers --nics virtio-net-pci --test prog -- ahead";
        return skip_missing_feature("wire between two NICs", tests, &format!("{ends:?}"));
    };
    let ns = NetNs::new("ahead");
    for device in [&near, &far] {
        let moved = Command::new("ip").args(["link", "set", device, "netns", ns.name()]).status();
        assert!(moved.unwrap().success());
    }
    let found = found(&ns, &far, &near, DriverRing::Virtio);
    assert_eq!(found.wrong, 0, "{found:?}");
    assert!(found.right > found.unseen, "{found:?}");
}
