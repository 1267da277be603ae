/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A packet at egress, and the candidate that ingress kept of it. */
#ifndef SHUNT_EGRESS_H
#define SHUNT_EGRESS_H

#include "core/tcp.h"
#include "include/learn/conntrack.h"
#include "include/learn/watch.h"

enum { SHUNT_NO_ENTRY = -1 };

/* Too large for the stack. */
struct scratch {
	__u32 busy; /* with PREEMPT_RT, another program may preempt this one on the same CPU */
	__u32 entry; /* that was inserted or renewed, or SHUNT_NO_ENTRY */
	struct shunt_candidate candidate; /* a copy, made when the packet reached egress */
	struct shunt_headers expected; /* the candidate's headers after the derived action */
	struct shunt_headers seen; /* the headers at egress */
	struct shunt_flow flow; /* the derived action */
	__u8 to[32]; /* the new addresses of the derived action */
	union shunt_key key; /* the key of the derived action */
	__u8 connection[SHUNT_CT_MAX] __attribute__((aligned(8))); /* a copy of conntrack's entry */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} shunt_scratch SEC(".maps");

struct egress {
	struct __sk_buff *skb;
	const struct shunt_candidate *c; /* the copy in `scratch` */
	struct shunt_counters *counters; /* of the ingress port */
	struct shunt_port *port; /* the egress port */
	struct scratch *scratch;
	__u32 now;
};

/* Returns the source address; the destination address follows. */
static __always_inline const __u32 *shunt_header_addrs(__u32 family, const struct shunt_headers *h)
{
	__u32 at = family == 4 ? __builtin_offsetof(struct iphdr, saddr) : __builtin_offsetof(struct ipv6hdr, saddr);

	return (const __u32 *)(h->l3 + at);
}

/* The key that the candidate has at its ingress port. */
static __always_inline void shunt_candidate_key(__u32 family, const struct shunt_candidate *c, union shunt_key *key)
{
	const __be16 *ports = (const __be16 *)c->headers.l4;

	if (family == 4) {
		key->v4 = (struct shunt_key4){
			.sport_be = ports[0],
			.dport_be = ports[1],
			.ifindex = c->ifindex,
			.l4_proto = c->l4_proto,
		};
		__builtin_memcpy(&key->v4.src_be, shunt_header_addrs(4, &c->headers), 8);
		shunt_key_tags_from_l2(c->headers.l2, shunt_tags_in(c->headers.l2_bytes), key->v4.tags);
	} else {
		key->v6 = (struct shunt_key6){
			.sport_be = ports[0],
			.dport_be = ports[1],
			.ifindex = c->ifindex,
			.l4_proto = c->l4_proto,
		};
		__builtin_memcpy(key->v6.src_be, shunt_header_addrs(6, &c->headers), 32);
		shunt_key_tags_from_l2(c->headers.l2, shunt_tags_in(c->headers.l2_bytes), key->v6.tags);
	}
}

/* The TCP position of the packet at ingress; 0 for UDP. */
static __always_inline __u64 shunt_candidate_position(const struct shunt_candidate *c)
{
	const __be16 *l3 = (const __be16 *)c->headers.l3;
	const struct tcphdr *tcp = (const struct tcphdr *)c->headers.l4;
	__u32 l4_bytes = c->family == 4 ? shunt_ntohs(l3[1]) - sizeof(struct iphdr) : shunt_ntohs(l3[2]);

	if (c->l4_proto != IPPROTO_TCP)
		return 0;
	return shunt_tcp_position(shunt_ntohl(tcp->seq) + l4_bytes - (c->headers.l4[12] >> 4) * 4, tcp->ack_seq);
}

/* The entry of a key whose flow is not static, or -1. Global functions, which the verifier checks once each. */
__noinline __s64 shunt_find_learned4(const struct shunt_key4 *key, __u64 hash)
{
	__u32 entry = 0;

	return key && shunt_find_by(4, (const union shunt_key *)key, hash, &entry) ? (__s64)entry : -1;
}

__noinline __s64 shunt_find_learned6(const struct shunt_key6 *key, __u64 hash)
{
	__u32 entry = 0;

	return key && shunt_find_by(6, (const union shunt_key *)key, hash, &entry) ? (__s64)entry : -1;
}

/* Finds the flow of the reverse direction of the derived action. */
static __always_inline struct shunt_flow *shunt_find_reverse(const struct egress *s, __u32 family)
{
	union shunt_key back;
	__s64 entry;
	__u64 *words;

	shunt_reverse_key(family, &s->scratch->flow, s->scratch->to, s->c->l4_proto, s->skb->ifindex, &back);
	entry = family == 4 ? shunt_find_learned4(&back.v4, shunt_hash(4, &back)) :
			      shunt_find_learned6(&back.v6, shunt_hash(6, &back));
	if (entry < 0)
		return 0;
	words = shunt_words_at(family, entry);
	return words ? shunt_flow_at(family, words) : 0;
}

static __always_inline int shunt_mark_excluded(__u32 mark, __u32 value, __u32 mask)
{
	return mask && (mark & mask) == value;
}

#endif
