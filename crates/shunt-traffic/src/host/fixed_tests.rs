use super::*;
use shunt_gen::{Shape, Sizes};
use shunt_wire::{Mac, Tag, Tcp};

const LABEL: u8 = 0xa7;
const BEGIN_NS: u64 = 1_000_000_000_007;

fn shape(v6: bool, bytes: u32) -> Shape {
    let (from, to) = match v6 {
        false => ("192.0.2.250:1024", "198.51.100.1:9"),
        true => ("[fd00::fffe]:1024", "[fd01::1]:9"),
    };
    Shape::udp(from.parse().unwrap(), to.parse().unwrap(), Sizes::fixed(bytes).unwrap())
}

/// The packets of a plan, one per nanosecond.
fn frames(traffic: &Traffic, plan: TrafficPlan, count: u64) -> Vec<Vec<u8>> {
    let mut maker = FrameMaker::of_plan(traffic, plan);
    let unpaced = Schedule { pps: None, burst: 1, packets: Some(count), duration: None };
    maker.schedule(&unpaced, 0, LABEL);
    (0..count).map_while(|n| maker.next(BEGIN_NS + n).map(<[u8]>::to_vec)).collect()
}

#[test]
fn packets_that_differ_little_are_written_as_any_others() {
    let qinq = vec![Tag::service(100), Tag { priority: 5, ..Tag::vlan(7) }];
    for v6 in [false, true] {
        for tcp in [None, Some(Tcp::ACK), Some(Tcp::SYN)] {
            for tags in [vec![], vec![Tag::vlan(4094)], qinq.clone()] {
                for checksum in [true, false] {
                    if !checksum && (v6 || tcp.is_some()) {
                        continue;
                    }
                    let shape = Shape { tcp, tags: tags.clone(), checksum, ..shape(v6, 99) };
                    let name = shape.encapsulation();
                    let traffic = shape.traffic(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).unwrap();
                    let (fixed, any) = (TrafficPlan::for_traffic(&traffic), TrafficPlan::varying(&traffic));
                    assert_eq!((fixed.fixed, any.fixed), (1, 0), "{name}");
                    // Once, more packets than the id has values.
                    let count = if v6 || tcp.is_some() { 300 } else { 66_000 };
                    let (fixed, any) = (frames(&traffic, fixed, count), frames(&traffic, any, count));
                    let differ = fixed.iter().zip(&any).position(|(fixed, any)| fixed != any);
                    assert_eq!(
                        (fixed.len() as u64, any.len() as u64, differ),
                        (count, count, None),
                        "{name}"
                    );
                }
            }
        }
    }
}

#[test]
fn only_packets_with_one_size_and_the_same_ends_are_fixed() {
    let plan = |shape: Shape| {
        let traffic = shape.traffic(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).unwrap();
        TrafficPlan::for_traffic(&traffic).fixed
    };
    assert_eq!(plan(shape(false, 64)), 1);
    assert_eq!(plan(Shape { sizes: "imix".parse().unwrap(), ..shape(false, 64) }), 0);
    assert_eq!(plan(Shape { source_ports: "1-2".parse().unwrap(), ..shape(false, 64) }), 0);
}
