//! Which sets are looked up by addresses of packets alone.

use super::*;
use crate::nftables::lookups::address_sets;

const IPV6: u8 = 10;
/// NFT_SET_INTERVAL, NFT_SET_MAP, NFT_SET_CONCAT.
const INTERVAL: u32 = 0x4;
const MAP: u32 = 0x8;
const CONCAT: u32 = 0x80;
/// NFT_REG_1, NFT_REG32_01.
const R1: u32 = 1;
const R32_1: u32 = 9;

fn numbers(values: &'static [(u16, u32)]) -> impl Fn(&mut Batch) {
    move |b| values.iter().for_each(|(kind, value)| b.put(*kind, &value.to_be_bytes()))
}

/// Loads bytes of a header: 1 for IP, 2 for TCP and UDP.
fn load(register: u32, base: u32, offset: u32, bytes: u32) -> impl Fn(&mut Batch) {
    expression("payload", move |b| {
        for (kind, value) in [(1, register), (2, base), (3, offset), (4, bytes)] {
            b.put(kind, &value.to_be_bytes());
        }
    })
}

fn source4(register: u32) -> impl Fn(&mut Batch) {
    load(register, 1, 12, 4)
}

fn lookup(set: &'static str, register: u32) -> impl Fn(&mut Batch) {
    expression("lookup", move |b| {
        b.put(1, &text(set));
        b.put(2, &register.to_be_bytes());
    })
}

type Expression = Box<dyn Fn(&mut Batch)>;

/// `meta nfproto`, compared with a family.
fn protocol(family: u8) -> [Expression; 2] {
    let compare = move |b: &mut Batch| {
        numbers(&[(1, R1), (2, 0)])(b);
        b.nest(3, |b| b.put(1, &[family]));
    };
    [Box::new(expression("meta", numbers(&[(1, R1), (2, 15)]))), Box::new(expression("cmp", compare))]
}

fn keyed(bytes: u32, flags: u32) -> impl Fn(&mut Batch) {
    move |b| {
        b.put(3, &flags.to_be_bytes());
        b.put(5, &bytes.to_be_bytes());
    }
}

/// The sets found, as `name v6 offset key_bytes intervals`.
fn found(answer: &Answer) -> Vec<String> {
    let mut sets: Vec<String> = address_sets(&answer.ruleset())
        .iter()
        .map(|s| format!("{} {} {} {} {}", s.name, s.v6, s.offset, s.key_bytes, s.intervals))
        .collect();
    sets.sort();
    sets
}

fn one_rule(family: u8, expressions: &[&dyn Fn(&mut Batch)], bytes: u32, flags: u32) -> Vec<String> {
    found(&forward(family).rule(family, "forward", 1, expressions).set(family, "set", keyed(bytes, flags)))
}

#[test]
fn a_set_of_addresses_is_found_in_every_family_that_says_what_the_packet_is() {
    let known = ["set false 0 4 false"];
    let (v4, v6) = (protocol(IPV4), protocol(IPV6));
    let rule: [&dyn Fn(&mut Batch); 2] = [&source4(R1), &lookup("set", R1)];
    assert_eq!(one_rule(IPV4, &rule, 4, 0), known);
    assert_eq!(one_rule(INET, &[&v4[0], &v4[1], rule[0], rule[1]], 4, 0), known);
    assert_eq!(one_rule(INET, &rule, 4, 0), [""; 0], "the packet may be IPv6");
    assert_eq!(one_rule(INET, &[&v6[0], &v6[1], rule[0], rule[1]], 4, 0), [""; 0], "a part of an address");
    assert_eq!(one_rule(BRIDGE, &rule, 4, 0), [""; 0]);
    let destination6: [&dyn Fn(&mut Batch); 2] = [&load(R1, 1, 24, 16), &lookup("set", R1)];
    assert_eq!(one_rule(IPV6, &destination6, 16, 0), ["set true 0 16 false"]);
    assert_eq!(
        one_rule(INET, &[&v6[0], &v6[1], destination6[0], destination6[1]], 16, 0),
        ["set true 0 16 false"]
    );
}

#[test]
fn an_address_is_found_anywhere_in_a_key() {
    let port_then_address: [&dyn Fn(&mut Batch); 3] =
        [&load(R1, 2, 2, 2), &source4(R32_1), &lookup("set", R1)];
    assert_eq!(one_rule(IPV4, &port_then_address, 8, CONCAT | INTERVAL), ["set false 4 8 false"]);
    assert_eq!(one_rule(IPV4, &port_then_address, 4, 0), [""; 0], "the key ends before the address");
    let both: [&dyn Fn(&mut Batch); 2] = [&load(R1, 1, 12, 8), &lookup("set", R1)];
    assert_eq!(one_rule(IPV4, &both, 8, CONCAT), ["set false 0 8 false"]);
}

#[test]
fn a_set_of_intervals_is_found_if_its_key_is_an_address() {
    let rule: [&dyn Fn(&mut Batch); 2] = [&source4(R1), &lookup("set", R1)];
    assert_eq!(one_rule(IPV4, &rule, 4, INTERVAL), ["set false 0 4 true"]);
    assert_eq!(one_rule(IPV4, &rule, 8, INTERVAL), [""; 0]);
    assert_eq!(one_rule(IPV4, &rule, 4, MAP), ["set false 0 4 false"], "a map of other data than verdicts");
}

#[test]
fn what_is_looked_up_must_be_the_address_itself() {
    let (source, look_up, clobber) = (source4(R1), lookup("set", R1), load(R1, 2, 0, 2));
    let mark = expression("meta", numbers(&[(1, R1), (2, 3)]));
    let original = expression("ct", numbers(&[(1, R1), (2, 8)]));
    let masked = plain("bitwise");
    for changed in
        [&clobber as &dyn Fn(&mut Batch), &mark, &original, &masked, &plain("rt"), &plain("numgen")]
    {
        assert_eq!(one_rule(IPV4, &[&source, changed, &look_up], 4, 0), [""; 0]);
    }
    assert_eq!(one_rule(IPV4, &[&load(R1, 1, 14, 4), &look_up], 4, 0), [""; 0], "halves of both addresses");
    assert_eq!(one_rule(IPV4, &[&load(R1, 3, 12, 4), &look_up], 4, 0), [""; 0], "an inner header");
    assert_eq!(one_rule(IPV4, &[&load(R1, 1, 12, 3), &look_up], 4, 0), [""; 0], "three bytes of an address");
    assert_eq!(one_rule(IPV4, &[&look_up], 4, 0), [""; 0], "registers of another rule");
    let kept = plain("counter");
    assert_eq!(one_rule(IPV4, &[&source, &kept, &look_up], 4, 0), ["set false 0 4 false"]);
}

#[test]
fn every_use_of_a_set_counts() {
    let with = |other: &dyn Fn(&mut Batch)| {
        let answer = forward(IPV4)
            .rule(IPV4, "forward", 1, &[&source4(R1), &lookup("set", R1)])
            .rule(IPV4, "forward", 2, &[&load(R1, 1, 16, 4), &lookup("set", R1)])
            .rule(IPV4, "elsewhere", 3, &[other])
            .set(IPV4, "set", keyed(4, 0))
            .set(IPV4, "unused", keyed(4, 0));
        found(&answer)
    };
    assert_eq!(with(&plain("counter")), ["set false 0 4 false"]);
    let no_address = lookup("set", R32_1);
    let update = named("dynset", 1, "set");
    let object = named("objref", 4, "set");
    for other in [&no_address as &dyn Fn(&mut Batch), &update, &object] {
        assert_eq!(with(other), [""; 0]);
    }
    let rewrite = expression("payload", numbers(&[(5, R1), (2, 1), (3, 16), (4, 4)]));
    assert_eq!(with(&rewrite), [""; 0], "later rules may see another address");
    let ttl = expression("payload", numbers(&[(5, R1), (2, 1), (3, 8), (4, 2)]));
    assert_eq!(with(&ttl), ["set false 0 4 false"], "the TTL is no part of an address");
    assert_eq!(with(&named("target", 1, "DNPT")), [""; 0]);
    let verdicts =
        forward(IPV4).rule(IPV4, "forward", 1, &[&source4(R1), &lookup("set", R1)]).set(IPV4, "set", |b| {
            keyed(4, MAP)(b);
            b.put(6, &0xffff_ff00_u32.to_be_bytes());
        });
    assert_eq!(found(&verdicts), [""; 0], "verdicts may lead to chains");
}
