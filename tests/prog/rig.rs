//! A loaded data plane with two ports in a namespace of its own, with flows and counters.

use shunt_bpf::{
    DataPlane, Entry, Key, LoadOptions, Size, TypesSource,
    abi::{self, Counters, Plain},
    attach::Hook,
    wire::flow_between,
};
use shunt_testkit::{NetNs, require_root};
use shunt_traffic::testrun::{Outcome, TestRun};
use shunt_wire::{Mac, Packet, Tag, Tcp};
use shunt_xsk as external;
use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

/// The epoch of the rig.
pub(crate) const EPOCH: u32 = 7;
/// How often flows are re-proved.
pub(crate) const REPROVE: Duration = Duration::from_secs(100);
const HOST: Mac = Mac([2, 0, 0, 0, 1, 2]);
/// Destination MAC of packets that come in.
pub(crate) const ROUTER: Mac = Mac([2, 0, 0, 0, 1, 1]);
const ROUTER_OUT: Mac = Mac([2, 0, 0, 0, 2, 1]);
const NEXT_HOP: Mac = Mac([2, 0, 0, 0, 2, 2]);

/// A packet as it comes in and as it leaves.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) before: Packet,
    pub(crate) after: Packet,
}

/// The data plane, loaded and attached to `i0` and `o0`, whose peers are `i1` and `o1`.
pub(crate) struct Rig<'n> {
    pub(crate) ns: &'n NetNs,
    pub(crate) plane: DataPlane,
    pub(crate) port: u32,
    pub(crate) out: u32,
    /// The data plane's clock when the rig was set up.
    pub(crate) now: u32,
    /// The tc program on ingress of a data plane that rests, if it is the one to run.
    at_rest: Option<OwnedFd>,
}

/// Runs a test on a rig whose links are down, so that no other packets are counted. Skips the test if it is not root.
pub(crate) fn with_rig(test: impl FnOnce(&mut Rig<'_>) + Send) {
    with_xdp(false, test);
}

/// As [`with_rig`], twice: also with the program on ingress of a data plane that rests.
pub(crate) fn with_both_on_ingress(test: impl Fn(&mut Rig<'_>) + Sync) {
    for at_rest in [false, true] {
        with_rig(|rig| {
            rig.rest(at_rest);
            test(rig);
        });
    }
}

/// As [`with_rig`], with the XDP program that can verify L4 checksums.
pub(crate) fn with_verifying_rig(test: impl FnOnce(&mut Rig<'_>) + Send) {
    with_xdp(true, test);
}

fn with_xdp(verify_xdp: bool, test: impl FnOnce(&mut Rig<'_>) + Send) {
    if !require_root() {
        return;
    }
    let ns = NetNs::new("prog");
    ns.sysctl("ipv6/conf/default/disable_ipv6", 1);
    for (near, far) in [("i0", "i1"), ("o0", "o1")] {
        ns.run(&format!("ip link add {near} type veth peer name {far}"));
    }
    let (port, out) = (ns.ifindex("i0"), ns.ifindex("o0"));
    ns.within(|| {
        let expected = LoadOptions {
            types: TypesSource::Kernel,
            learning: true,
            xdp: true,
            verify_xdp,
            external: false,
        };
        let mut plane = DataPlane::load(Size { max_flows: 1024, seed: 1 }, expected).unwrap();
        plane.control().set_epoch(EPOCH);
        plane.control().set_heartbeat_max(Duration::from_secs(3600));
        plane.control().set_proof(REPROVE, 2 * REPROVE);
        plane.beat().unwrap();
        plane.attach(port, 0, true).unwrap();
        plane.attach(out, abi::PORT_XDP_OUT, true).unwrap();
        let now = plane.sweep(REPROVE, false).unwrap().now_ticks;
        test(&mut Rig { ns: &ns, plane, port, out, now, at_rest: None });
    });
}

impl Rig<'_> {
    /// A learned flow from one packet to the other, active, for both engines. The flow is not yet in the table.
    pub(crate) fn learned(&self, pair: &Pair) -> (Key, Entry) {
        let (key, mut entry) = flow_between(&pair.before, &pair.after, self.port).unwrap();
        entry.flow.flags = entry.flow.flags & !abi::FLOW_STATIC | abi::FLOW_XDP;
        entry.flow.epoch = EPOCH;
        entry.flow.reprove_at_ticks = self.ahead(REPROVE);
        entry.flow.prove_by_ticks = self.ahead(2 * REPROVE);
        entry.flow.in_slot = self.plane.slot(self.port).unwrap();
        entry.flow.out_slot = self.plane.slot(self.out).unwrap();
        entry.flow.mark = 0x1234;
        entry.flow.priority = 0x0001_0002;
        (key, entry)
    }

    /// A time after the rig was set up.
    pub(crate) fn ahead(&self, span: Duration) -> u32 {
        self.now.wrapping_add(self.plane.control().ticks(span))
    }

    /// A time before the rig was set up.
    pub(crate) fn ago(&self, span: Duration) -> u32 {
        self.now.wrapping_sub(self.plane.control().ticks(span))
    }

    /// Adds a learned flow.
    pub(crate) fn learn(&self, pair: &Pair) -> Key {
        self.learn_as(pair, |_| {})
    }

    /// Adds a learned flow after `change`.
    pub(crate) fn learn_as(&self, pair: &Pair, change: impl FnOnce(&mut Entry)) -> Key {
        let (key, mut entry) = self.learned(pair);
        change(&mut entry);
        self.plane.put_flow(&key, &entry).unwrap();
        key
    }

    /// The reply direction of a connection, whose packets come in at the egress port. The flow is not yet in the table.
    pub(crate) fn back(&self, pair: &Pair) -> (Key, Entry) {
        let (key, mut entry) = self.learned(&pair.reply());
        std::mem::swap(&mut entry.flow.in_slot, &mut entry.flow.out_slot);
        let key = match key {
            Key::V4(key) => Key::V4(abi::Key4 { ifindex: self.out, ..key }),
            Key::V6(key) => Key::V6(abi::Key6 { ifindex: self.out, ..key }),
        };
        (key, entry)
    }

    /// Reads the flow from the table.
    pub(crate) fn flow(&self, key: &Key) -> abi::Flow {
        self.plane.flow(key).unwrap().unwrap().flow
    }

    /// Chooses the tc program on ingress: that of a data plane that rests, or the usual one.
    pub(crate) fn rest(&mut self, rests: bool) {
        self.at_rest = rests.then(|| self.plane.program_at_rest().unwrap());
    }

    /// Runs the program of a hook on a frame that comes in at the port.
    pub(crate) fn run(&self, hook: Hook, frame: &[u8]) -> Outcome {
        TestRun::new(&self.plane, hook, self.port).unwrap().run(frame).unwrap()
    }

    pub(crate) fn tc(&self, frame: &[u8]) -> Outcome {
        if let Some(program) = &self.at_rest {
            return TestRun::of(program.as_fd(), Hook::Ingress, self.port).run(frame).unwrap();
        }
        self.run(Hook::Ingress, frame)
    }

    pub(crate) fn xdp(&self, frame: &[u8]) -> Outcome {
        self.run(Hook::Xdp, frame)
    }

    /// What the external engine does with a frame that comes in at the port, given the frame's flow in the table.
    pub(crate) fn external(&self, frame: &[u8]) -> external::Outcome {
        let mut tables = external::Tables::new(Size { max_flows: 8, seed: 1 });
        tables.change_control(|control| {
            (control.epoch, control.flags) = (EPOCH, abi::CONTROL_STATICS);
            (control.heartbeat_ticks, control.heartbeat_max_ticks) = (self.now.into(), 1);
        });
        let (_, key) = shunt_bpf::core::parse(frame, self.port).unwrap();
        tables.put(&key, &self.plane.flow(&key).unwrap().unwrap()).unwrap();
        tables.forward(&[frame], self.port, u64::MAX, self.now.into()).remove(0)
    }

    /// Runs a function; returns the increase of the port's counters.
    pub(crate) fn counted<T>(&self, work: impl FnOnce() -> T) -> (T, Counters) {
        let before = self.plane.counters(self.port).unwrap();
        let done = work();
        (done, difference(&before, &self.plane.counters(self.port).unwrap()))
    }
}

fn difference(before: &Counters, after: &Counters) -> Counters {
    let words = |counters: &Counters| -> Vec<u64> {
        counters.bytes().chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    };
    let bytes: Vec<u8> =
        words(before).iter().zip(words(after)).flat_map(|(b, a)| (a - b).to_ne_bytes()).collect();
    Counters::from_bytes(&bytes).unwrap()
}

/// The index of a reason, by its name.
pub(crate) fn reason(name: &str) -> usize {
    abi::Reason::named(name).unwrap().number
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// UDP and TCP over both families behind a source NAT.
pub(crate) fn pairs() -> [Pair; 4] {
    let v4 = ["192.168.1.2:5001", "198.18.0.2:443", "198.18.0.1:61001"].map(address);
    let v6 = ["[fd00:1::2]:5001", "[2001:db8::2]:443", "[2001:db8::1]:61001"].map(address);
    [
        (Packet::udp_between(v4[0], v4[1]), v4[2]),
        (Packet::tcp_between(v4[0], v4[1], Tcp::ACK), v4[2]),
        (Packet::udp_between(v6[0], v6[1]), v6[2]),
        (Packet::tcp_between(v6[0], v6[1], Tcp::ACK), v6[2]),
    ]
    .map(|(packet, source)| {
        let before = packet.payload(*b"enough to need no padding on any of the links").macs(HOST, ROUTER);
        let after = before.clone().with_source(source).with_hop_limit(63).macs(ROUTER_OUT, NEXT_HOP);
        Pair { before, after }
    })
}

/// The same packet, bridged between the same tags.
pub(crate) fn bridged(pair: &Pair) -> Pair {
    let tags = &pair.after.ethernet.tags;
    Pair { before: pair.before.clone(), after: pair.before.clone().with_tags(tags) }
}

impl Pair {
    /// The pair with these tags before and after, and a tuple of its own, since the table has eight slots per tuple.
    pub(crate) fn retagged(&self, number: usize, from: &[Tag], to: &[Tag]) -> Self {
        let port = 1000 + number as u16;
        let numbered = |packet: &Packet| {
            let to = packet.destination().unwrap();
            packet.clone().with_destination(SocketAddr::new(to.ip(), port))
        };
        Self { before: numbered(&self.before).with_tags(from), after: numbered(&self.after).with_tags(to) }
    }

    /// The pair of an answer.
    pub(crate) fn reply(&self) -> Self {
        let turned = |packet: &Packet, hops| {
            let (source, destination) = (packet.source().unwrap(), packet.destination().unwrap());
            let macs = (packet.ethernet.destination, packet.ethernet.source);
            packet
                .clone()
                .with_source(destination)
                .with_destination(source)
                .macs(macs.0, macs.1)
                .with_hop_limit(hops)
        };
        Self { before: turned(&self.after, 64), after: turned(&self.before, 63) }
    }

    /// The pair of a packet with other values in the fields that forwarding does not change.
    pub(crate) fn map(&self, change: impl Fn(Packet) -> Packet) -> Self {
        Self { before: change(self.before.clone()), after: change(self.after.clone()) }
    }
}
