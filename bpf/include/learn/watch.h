/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data that ingress leaves for egress: sightings and candidates.
 *
 * Sightings are hints. Candidates must be consistent, since egress derives an action from a candidate and proves
 * the action on it. A writer claims a slot by compare-and-swap, fills it, and publishes it under a new cookie. A
 * reader copies the candidate, then checks the state by compare-and-swap, and uses only the copy.
 *
 * The cookie in skb->tc_index finds the slot, but it is too short to tell a packet from all others. The candidate
 * therefore names its sk_buff, whose memory no other packet has until the packet is gone; docs/adr/0019 has the
 * argument.
 */
#ifndef SHUNT_WATCH_H
#define SHUNT_WATCH_H

#include "include/changes/dependencies.h"
#include "include/table/maps.h"
#include "include/skb.h"

enum {
	SHUNT_CANDIDATE_MS = 1000, /* a candidate expires after this time */
	/* The cookies of candidates are larger than these. */
	SHUNT_COOKIE_ENDS = 1, /* a FIN or RST of a tuple without a flow */
	SHUNT_COOKIE_DESCENDS = 2, /* a packet that has left a port without layer 2, and goes on to the one below */
	SHUNT_WINDOW_S = 10, /* packets of a tuple are counted within this window */
	/* For how long a refused tuple is not watched, by the reason. */
	SHUNT_QUIET_NONE_MS = 0,
	SHUNT_QUIET_SHORT_MS = 10, /* the reason will soon be gone */
	SHUNT_QUIET_USUAL_MS = 1000,
	SHUNT_QUIET_LONG_MS = 10000,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHUNT_CANDIDATES);
	__type(key, __u32);
	__type(value, struct shunt_candidate);
} shunt_candidates SEC(".maps");

/*
 * Upper devices (bridge, bond, VLAN device, ...) by ifindex, with a bit for the slot of each port below. Written by the
 * daemon.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SHUNT_UPPERS_MAX);
	__type(key, __u32);
	__type(value, struct shunt_slots);
} shunt_uppers SEC(".maps");

struct shunt_sighting shunt_sightings[SHUNT_SIGHTINGS] SEC(".bss.sightings");

static __always_inline __u32 shunt_sighting_index(__u64 hash)
{
	return hash % SHUNT_SIGHTINGS;
}

static __always_inline struct shunt_sighting *shunt_sighting_of(__u64 hash)
{
	struct shunt_sighting *s = &shunt_sightings[shunt_sighting_index(hash)];

	/* Keep clang from recomputing the address for each member. */
	asm("" : "+r"(s));
	return s;
}

/* Tells apart tuples that share a sighting; never 0. */
static __always_inline __u16 shunt_fingerprint(__u64 hash)
{
	__u32 bits = hash >> 48;

	/* Clang would compare the hash with a number of 64 bits. */
	shunt_keep(bits);
	return bits ?: 1;
}

/* Whether a device is the ingress port of a candidate, or stacked on it. */
static __always_inline int shunt_is_upper(__u32 ifindex, const struct shunt_candidate *c)
{
	const struct shunt_slots *slots;
	__u32 slot = c->in_slot % SHUNT_PORTS_MAX;

	if (ifindex == c->ifindex)
		return 1;
	slots = bpf_map_lookup_elem(&shunt_uppers, &ifindex);
	return slots && slots->words[slot / 64] >> (slot % 64) & 1;
}

/* Whether this tuple was refused recently. Ticks wrap, so a time further in the future is one long past. */
static __always_inline int shunt_is_quiet(const struct shunt_sighting *s, __u64 hash, __u32 now)
{
	return s->quiet_until_ticks && s->quiet_until_ticks - now - 1 < shunt_ticks(SHUNT_QUIET_LONG_MS) &&
	       s->refused_fingerprint == shunt_fingerprint(hash);
}

/* Counts a packet of a tuple within its window, unless its connection has ended. */
static __always_inline __u32 shunt_count_sighting(struct shunt_sighting *s, __u64 hash, __u32 now)
{
	__u16 at = now / SHUNT_SIGHTING_TICKS, age = at - s->since;

	if (shunt_unlikely(age > SHUNT_WINDOW_S * shunt_control.ticks_per_s / SHUNT_SIGHTING_TICKS)) {
		s->since = at;
		s->pkts = 0;
		s->fingerprint = 0;
	}
	if (!s->pkts) {
		if (s->fingerprint == shunt_fingerprint(hash))
			return 0;
		s->fingerprint = shunt_fingerprint(hash);
	} else if (s->fingerprint != shunt_fingerprint(hash)) {
		s->fingerprint = 0;
	}
	return ++s->pkts;
}

/*
 * Counts from zero again when a connection opens, and no more when it ends: a client that opens many short ones uses
 * its ports again within the window, and leaves room for those of others. None of them is worth a flow. Packets of
 * other tuples stay counted.
 */
static __always_inline void shunt_restart_sighting(struct shunt_sighting *s, __u64 hash, const struct shunt_packet *p)
{
	if (s->fingerprint != shunt_fingerprint(hash))
		return;
	if (p->tcp_flags & SHUNT_TCP_SYN) {
		s->pkts = 0;
		s->fingerprint = 0;
	} else if (p->tcp_flags & (SHUNT_TCP_FIN | SHUNT_TCP_RST)) {
		s->pkts = 0;
	}
}

/* The slot of a candidate, by the identity of its sk_buff. */
static __always_inline __u32 shunt_candidate_index(__u64 packet)
{
	return (packet ^ shunt_control.seed) * 0x9e3779b97f4a7c15ULL >> 52;
}
_Static_assert(SHUNT_CANDIDATES == 1 << (64 - 52), "the upper bits of the product are an index");

/*
 * Claims the candidate slot `index`. Returns the state to publish it under, or 0 if another CPU is writing the slot.
 * The cookie has the index and a round from 1 to 15; cookie 0 means that the packet has no candidate.
 */
static __always_inline __u64 shunt_claim_candidate(struct shunt_candidate *c, __u32 index)
{
	__u64 have = *(volatile __u64 *)&c->state;
	__u64 writes = have / SHUNT_CANDIDATE_WRITES + 1;
	__u64 state = writes * SHUNT_CANDIDATE_WRITES | (writes % 15 + 1) * SHUNT_CANDIDATES | index;

	if (have & SHUNT_CANDIDATE_BUSY ||
	    __sync_val_compare_and_swap(&c->state, have, state | SHUNT_CANDIDATE_BUSY) != have)
		return 0;
	return state;
}

/* Ends the claim. With `flags` 0, readers can find the candidate. */
static __always_inline void shunt_publish_candidate(struct shunt_candidate *c, __u64 state, __u32 flags)
{
	__sync_lock_test_and_set(&c->state, state | flags);
}

/*
 * Whether a packet is the one of the candidate. A clone has an sk_buff of its own. So it is the candidate's only if the
 * memory of that sk_buff was freed and used again, and then its data is elsewhere.
 */
static __always_inline int shunt_is_candidate(struct __sk_buff *skb, const struct shunt_candidate *c)
{
	return c->packet == shunt_skb_identity(skb) && (!shunt_skb_copied(skb) || c->data == shunt_skb_data(skb)) &&
	       c->aggregate == !!skb->gso_size;
}

/*
 * Whether a packet that is not the one of the candidate is a copy of it, or the first segment: from the ports on, what
 * no NAT changes is the same. Any other packet has outlived its own candidate, and by chance its cookie is in use
 * again. `seen` is overwritten.
 */
static __always_inline int shunt_is_copy(struct __sk_buff *skb, const struct shunt_candidate *c,
					 struct shunt_headers *seen)
{
	const __u32 *was = (const __u32 *)c->headers.l4;
	const __u32 *is = (const __u32 *)seen->l4;
	/* The checksum of TCP is in the fifth word, that of UDP in the second. */
	int tcp = c->l4_proto == IPPROTO_TCP, segment = c->aggregate && !skb->gso_size;
	__u32 differ = 0;

	if (!c->headers.l4_bytes)
		return 0;
	__builtin_memset(seen, 0, sizeof(*seen));
	if (bpf_skb_load_bytes_relative(skb, shunt_l3_size(c->family), seen->l4,
					shunt_bound(c->headers.l4_bytes - 1, 63) + 1, BPF_HDR_START_NET))
		return 0;
#pragma unroll
	for (__u32 i = 1; i < SHUNT_L4_MAX / 4; i++) {
		/* Segments have flags and lengths of their own. */
		if (i == (tcp ? 4 : 1) || (segment && (tcp ? i > 2 : i < 2)))
			continue;
		differ |= was[i] ^ is[i];
	}
	return !differ;
}

/*
 * Copies the candidate that a cookie names. Returns its state for shunt_leave_candidate(), or 0 if the slot has another
 * one.
 */
static __always_inline __u64 shunt_copy_candidate(const struct shunt_candidate *c, __u32 cookie,
						  struct shunt_candidate *copy)
{
	__u64 state = *(volatile __u64 *)&c->state & ~(__u64)SHUNT_CANDIDATE_LEFT;

	if ((state & (SHUNT_CANDIDATE_WRITES - 1)) != cookie)
		return 0;
	*copy = *c;
	return state;
}

/*
 * Notes that the packet of a copied candidate leaves. Returns SHUNT_OK the first time, SHUNT_LEFT_TWICE afterwards, and
 * SHUNT_NOT_WATCHED if the candidate was overwritten meanwhile, so that the copy is invalid.
 */
static __always_inline enum shunt_reason shunt_leave_candidate(struct shunt_candidate *c, __u64 state)
{
	/* A full barrier: the copy is complete before the state is checked. */
	__u64 have = __sync_val_compare_and_swap(&c->state, state, state | SHUNT_CANDIDATE_LEFT);

	if (have == state)
		return SHUNT_OK;
	return have == (state | SHUNT_CANDIDATE_LEFT) ? SHUNT_LEFT_TWICE : SHUNT_NOT_WATCHED;
}

/*
 * Takes the candidate that a packet's cookie names. Returns SHUNT_OK for the packet itself the first time that it
 * leaves; SHUNT_LEFT_TWICE afterwards, and for its copies; SHUNT_NOT_PROVED for a segment of it; SHUNT_NOT_WATCHED if
 * the slot has the candidate of another packet by now, and the copy is invalid then.
 */
static __always_inline enum shunt_reason shunt_take_candidate(struct __sk_buff *skb, struct shunt_candidate *c,
							      struct shunt_candidate *copy, struct shunt_headers *seen)
{
	__u64 state = shunt_copy_candidate(c, skb->tc_index, copy);
	enum shunt_reason left;
	int same;

	if (!state)
		return SHUNT_NOT_WATCHED;
	same = shunt_is_candidate(skb, copy);
	if (!same && !shunt_is_copy(skb, copy, seen))
		return SHUNT_NOT_WATCHED;
	left = shunt_leave_candidate(c, state);
	if (same || left == SHUNT_NOT_WATCHED)
		return left;
	return copy->aggregate && !skb->gso_size ? SHUNT_NOT_PROVED : SHUNT_LEFT_TWICE;
}

static __always_inline __u32 shunt_quiet_ms(enum shunt_reason why)
{
	switch (why) {
#define SHUNT_REASON(number, constant, name, kind, quiet, ...)                                                         \
	case SHUNT_##constant:                                                                                         \
		return SHUNT_QUIET_##quiet##_MS;
#include "abi/reasons.h"
	default:
		return SHUNT_QUIET_USUAL_MS;
	}
}

/* Records a refusal of the candidate's tuple. With `ticks`, the tuple is not watched for that long. */
static __always_inline void shunt_refuse(const struct shunt_candidate *c, enum shunt_reason why, __u32 now, __u32 ticks)
{
	struct shunt_sighting *s = &shunt_sightings[c->sighting % SHUNT_SIGHTINGS];

	s->refused_fingerprint = c->fingerprint;
	s->refused_why = why;
	if (ticks)
		s->quiet_until_ticks = now + ticks;
}

/*
 * Copies the headers of a parsed packet, each layer to its fixed offset. Copies as much from the L4 header on as
 * fits, since a rule may change what follows the header. Returns -1 on failure.
 */
static __always_inline int shunt_save_headers(struct __sk_buff *skb, const struct shunt_packet *p, const void *macs,
					      struct shunt_headers *h)
{
	__u32 l4_bytes = p->l3_bytes - shunt_l3_size(p->family);

	__builtin_memset(h, 0, sizeof(*h));
	if (p->l2_bytes) {
		shunt_write_l2(h->l2, macs, p);
		h->l2_bytes = shunt_l2_bytes(p->tags);
	}
	if (l4_bytes > SHUNT_L4_MAX)
		l4_bytes = SHUNT_L4_MAX;
	if (l4_bytes == 0)
		return -1;
	h->l4_bytes = l4_bytes;
	if (p->family == 4) {
		if (bpf_skb_load_bytes(skb, p->l2_bytes, h->l3, sizeof(struct iphdr)))
			return -1;
	} else if (bpf_skb_load_bytes(skb, p->l2_bytes, h->l3, sizeof(struct ipv6hdr))) {
		return -1;
	}
	/* 6.1's verifier does not infer >= 1 from != 0. */
	return bpf_skb_load_bytes(skb, p->l2_bytes + shunt_l3_size(p->family), h->l4,
				  shunt_bound(l4_bytes - 1, 63) + 1);
}

#endif
