/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a change of a set's elements concerns flows: those that have the addresses of the elements, if every rule
 * that uses the set looks up an address of the packet. The daemon reads the rules and lists these sets in shunt_sets.
 */
#ifndef SHUNT_ELEMENTS_H
#define SHUNT_ELEMENTS_H

#include "include/changes/dependencies.h"
#include <linux/netlink.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>

enum {
	SHUNT_ELEMENTS_MAX = 128, /* of a message */
	SHUNT_ELEMENT_ATTRS_MAX = 12,
	SHUNT_ELEMENT_KEY_END = 10, /* NFTA_SET_ELEM_KEY_END */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SHUNT_SETS_MAX);
	__type(key, struct shunt_rules_name);
	__type(value, struct shunt_set);
} shunt_sets SEC(".maps");

/* What is known of the commit in progress. */
struct shunt_commit {
	__u64 start_hi; /* the last element, if it begins an interval */
	__u64 start_lo;
	__u32 start_of; /* the set and the kind of message that it belongs to; 0 if there is none */
	__u32 judged; /* number of changes that were looked at */
	__u32 aside; /* it changes rules that no forwarded packet meets */
	__u32 concerns; /* something in it may concern a flow */
	struct shunt_rules_name name; /* of the chain or set whose message is read */
};

struct shunt_commit shunt_commit SEC(".bss.commit");

static __always_inline int shunt_is_attr(const struct nlattr *attr, __u32 type)
{
	return (attr->nla_type & NLA_TYPE_MASK) == type;
}

/* Records a change of all addresses from the first to the last. */
static __always_inline void shunt_note_elements(__u32 family, __u64 from_hi, __u64 from_lo, __u64 to_hi, __u64 to_lo)
{
	if (shunt_note_addresses(family, from_hi, from_lo, to_hi, to_lo))
		shunt_commit.concerns = 1;
}

/*
 * An element of a set of intervals, which begins an interval or ends one. `of` identifies the set and the kind of
 * message. Anything but complete intervals may concern every flow.
 */
static __always_inline void shunt_note_boundary(__u32 family, __u64 hi, __u64 lo, int ends, __u32 of)
{
	if (!ends) {
		if (shunt_commit.start_of)
			shunt_commit.concerns = 1;
		shunt_commit.start_hi = hi;
		shunt_commit.start_lo = lo;
		shunt_commit.start_of = of;
		return;
	}
	if (shunt_commit.start_of != of) {
		/* At the lowest address, an end ends no interval; nft adds one to an empty set. */
		if (hi || lo)
			shunt_commit.concerns = 1;
		return;
	}
	shunt_commit.start_of = 0;
	/* The end is the first address behind the interval. */
	if (family == 4)
		hi -= 1ULL << 32;
	else if (!lo--)
		hi--;
	if (hi < shunt_commit.start_hi || (hi == shunt_commit.start_hi && lo < shunt_commit.start_lo))
		shunt_commit.concerns = 1;
	else
		shunt_note_elements(family, shunt_commit.start_hi, shunt_commit.start_lo, hi, lo);
}

/* Reads the address in the key of an element. `at` is where the attribute of the key begins. Returns -1 on failure. */
static __always_inline int shunt_element_address(struct __sk_buff *skb, __u32 at, __u32 type,
						 const struct shunt_set *set, __u64 *hi, __u64 *lo)
{
	struct nlattr attrs[2]; /* the key, and its value */
	__u32 address[4] = {};

	if (bpf_skb_load_bytes(skb, at, attrs, sizeof(attrs)) || !shunt_is_attr(&attrs[0], type) ||
	    !shunt_is_attr(&attrs[1], NFTA_DATA_VALUE) || attrs[1].nla_len != sizeof(struct nlattr) + set->key_bytes)
		return -1;
	at += sizeof(attrs) + set->offset;
	if (set->family == 4) {
		if (bpf_skb_load_bytes(skb, at, address, 4))
			return -1;
	} else if (bpf_skb_load_bytes(skb, at, address, 16)) {
		return -1;
	}
	shunt_address_words(set->family, address, hi, lo);
	return 0;
}

/*
 * Looks at an element of a set whose description, as a number, is `described`. Returns where the next element begins;
 * -1 on failure.
 */
__noinline int shunt_judge_element(struct __sk_buff *skb, __u32 at, __u64 described, __u32 deletes)
{
	struct shunt_set set;
	struct nlattr attr;
	__u64 hi, lo, to_hi, to_lo;
	__u32 end, family, flags = 0, is_range = 0;

	__builtin_memcpy(&set, &described, sizeof(set));
	family = set.family;
	if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || !shunt_is_attr(&attr, NFTA_LIST_ELEM) ||
	    shunt_element_address(skb, at + sizeof(attr), NFTA_SET_ELEM_KEY, &set, &hi, &lo))
		return -1;
	end = at + attr.nla_len;
	at += sizeof(attr);
	for (__u32 i = 0; i < SHUNT_ELEMENT_ATTRS_MAX && at < end; i++) {
		__be32 value_be;

		if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || attr.nla_len < sizeof(attr))
			return -1;
		if (shunt_is_attr(&attr, NFTA_SET_ELEM_FLAGS)) {
			if (bpf_skb_load_bytes(skb, at + sizeof(attr), &value_be, sizeof(value_be)))
				return -1;
			flags = shunt_ntohl(value_be);
		} else if (shunt_is_attr(&attr, SHUNT_ELEMENT_KEY_END)) {
			if (shunt_element_address(skb, at, SHUNT_ELEMENT_KEY_END, &set, &to_hi, &to_lo))
				return -1;
			is_range = 1;
		}
		at += NLA_ALIGN(attr.nla_len);
	}
	if (at < end || flags & ~NFT_SET_ELEM_INTERVAL_END)
		return -1;
	shunt_commit.judged++;
	if (is_range)
		shunt_note_elements(family, hi, lo, to_hi, to_lo);
	else if (set.flags & SHUNT_SET_INTERVALS)
		shunt_note_boundary(family, hi, lo, !!flags, set.number << 1 | deletes);
	else
		shunt_note_elements(family, hi, lo, hi, lo);
	return at;
}

/*
 * Looks at the elements from `at` to `end`, of the set shunt_commit.name. Returns -1 if the set is not described, or if
 * anything is unknown.
 */
__noinline int shunt_judge_elements(struct __sk_buff *skb, __u32 at, __u32 end, __u32 deletes)
{
	struct shunt_set *set;
	__u64 described;
	int next = at;

	if (*(volatile __u32 *)&shunt_control.sets_at != *(volatile __u32 *)&shunt_control.rule_changes)
		return -1;
	set = bpf_map_lookup_elem(&shunt_sets, &shunt_commit.name);
	if (!set)
		return -1;
	__builtin_memcpy(&described, set, sizeof(described));
	for (__u32 i = 0; i < SHUNT_ELEMENTS_MAX && (__u32)next < end; i++) {
		next = shunt_judge_element(skb, next, described, deletes);
		if (next < 0)
			return -1;
	}
	return (__u32)next < end ? -1 : 0;
}

/* Whether the data of an element, whose attribute begins at `at`, may lead packets to a chain. */
static __always_inline int shunt_data_leads(struct __sk_buff *skb, __u32 at)
{
	struct nlattr attrs[3]; /* the data, its verdict, and the code of that */
	__be32 code_be;
	int code;

	if (bpf_skb_load_bytes(skb, at, attrs, 2 * sizeof(attrs[0])))
		return 1;
	if (shunt_is_attr(&attrs[1], NFTA_DATA_VALUE))
		return 0;
	if (bpf_skb_load_bytes(skb, at, attrs, sizeof(attrs)) || !shunt_is_attr(&attrs[2], NFTA_VERDICT_CODE) ||
	    bpf_skb_load_bytes(skb, at + sizeof(attrs), &code_be, sizeof(code_be)))
		return 1;
	code = shunt_ntohl(code_be);
	return code == NFT_JUMP || code == NFT_GOTO;
}

/* Returns where the element behind this one begins; -1 if it may lead packets to a chain. */
__noinline int shunt_skip_element(struct __sk_buff *skb, __u32 at)
{
	struct nlattr attr;
	__u32 end;

	if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || !shunt_is_attr(&attr, NFTA_LIST_ELEM))
		return -1;
	end = at + attr.nla_len;
	at += sizeof(attr);
	for (__u32 i = 0; i < SHUNT_ELEMENT_ATTRS_MAX && at < end; i++) {
		if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || attr.nla_len < sizeof(attr))
			return -1;
		if (shunt_is_attr(&attr, NFTA_SET_ELEM_DATA) && shunt_data_leads(skb, at))
			return -1;
		at += NLA_ALIGN(attr.nla_len);
	}
	return at < end ? -1 : (int)at;
}

/* Whether elements from `at` to `end` may lead packets to chains. */
__noinline int shunt_elements_lead(struct __sk_buff *skb, __u32 at, __u32 end)
{
	int next = at;

	for (__u32 i = 0; i < SHUNT_ELEMENTS_MAX && (__u32)next < end; i++) {
		next = shunt_skip_element(skb, next);
		if (next < 0)
			return 1;
	}
	return (__u32)next < end;
}

#endif
