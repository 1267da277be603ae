/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Puts a proved action into the table: as a new flow, in place of a retired one, or as the renewal of one. */
#ifndef SHUNT_INSTALL_H
#define SHUNT_INSTALL_H

#include "include/ends/reverse.h"
#include "include/learn/depend.h"
#include "include/table/change.h"
#include "include/table/hints.h"
#include "include/trace.h"

/*
 * Finds what belongs to a packet at egress whose candidate is in the scratch space. Returns 0 if something is missing.
 */
static __always_inline int shunt_find_egress(struct __sk_buff *skb, __u32 now, struct egress *s)
{
	__u32 zero = 0;

	s->skb = skb;
	s->now = now;
	s->port = shunt_port_of(skb->ifindex);
	s->scratch = bpf_map_lookup_elem(&shunt_scratch, &zero);
	if (!s->port || !s->scratch)
		return 0;
	s->c = &s->scratch->candidate;
	s->counters = shunt_counters_of(s->c->in_slot);
	return !!s->counters;
}

/* Renews an existing flow, unless it was retired after its epoch was read. */
static __always_inline enum shunt_reason renew(const struct egress *s, struct shunt_flow *have, __u32 epoch)
{
	const struct shunt_flow *f = &s->scratch->flow;
	__u32 grace = shunt_control.prove_ticks - shunt_control.reprove_ticks;
	/* The last proof is less than a period old. */
	int early = epoch == f->epoch && shunt_before(s->now + grace, have->prove_by_ticks);
	__u8 named = f->flags & SHUNT_FLOW_UNTRACKED ? SHUNT_FLOW_REPLY : 0;

	/*
	 * A proof covers the packet size, too. While the last proof is recent, a smaller packet leaves the size and its
	 * deadline alone. Otherwise only the smaller size is known to pass.
	 */
	if (!early || f->max_l3_bytes >= have->max_l3_bytes) {
		have->max_l3_bytes = f->max_l3_bytes;
		have->prove_by_ticks = f->prove_by_ticks;
		have->reprove_at_ticks = f->reprove_at_ticks;
	}
	/* Without conntrack, the direction that was learned first counts as the original one, so keep that. */
	have->flags = (f->flags & ~named) | (have->flags & named);
	have->class_bits = f->class_bits;
	have->in_ttl = f->in_ttl;
	/* After a change, the packet may leave twice: wait again until it was seen to leave once. */
	if (epoch != f->epoch)
		have->state = f->state;
	have->seen_ticks = s->now;
	if (__sync_val_compare_and_swap(&have->epoch, epoch, f->epoch) != epoch) {
		/* Another CPU retired the flow. reprove_at_ticks, stored above, shares memory with retired_ticks. */
		have->retired_ticks = s->now;
		return SHUNT_RETIRING;
	}
	s->counters->proved++;
	return SHUNT_OK;
}

/* Proves a new TCP flow early: a fast sender may get 2 GiB ahead of conntrack before a regular first proof. */
static __always_inline void prove_soon(const struct egress *s, struct shunt_flow *f)
{
	__u32 soon = s->now + shunt_control.reprove_ticks / 8;

	if (s->c->l4_proto == IPPROTO_TCP && shunt_before(soon, f->reprove_at_ticks))
		f->reprove_at_ticks = soon;
}

/*
 * After the first reply, requires a new proof of the original direction: it was learned while the connection was new to
 * the ruleset, and the connection is established now.
 */
static __always_inline void reprove_original(const struct egress *s, __u32 family)
{
	struct shunt_flow *original = shunt_find_reverse(s, family);

	if (original && original->flags & SHUNT_FLOW_UNREPLIED)
		original->prove_by_ticks = s->now;
}

/* Whether the index has another entry with this key, in any slot of its two buckets. */
static __noinline int has_duplicate(__u32 family, const union shunt_key *key, __u64 hash, __u32 entry)
{
	for (__u32 second = 0; second < 2; second++) {
		const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, second));

		if (!bucket)
			continue;
		for (__u32 way = 0; way < SHUNT_WAYS; way++) {
			__u32 slot = shunt_slot(bucket, way);
			const __u64 *words;

			if (shunt_slot_digest(slot) != shunt_digest_of(hash) || shunt_slot_entry(slot) == entry)
				continue;
			words = shunt_words_at(family, shunt_slot_entry(slot));
			if (words && shunt_same_key(family, words, key))
				return 1;
		}
	}
	return 0;
}

/* Inserts a proved action as a new entry, first proved at `learned`. */
static __always_inline enum shunt_reason insert(const struct egress *s, __u32 family, const union shunt_key *key,
						__u64 hash, __u32 learned)
{
	__u32 entry = 0;

	if (shunt_insert(family, key, hash, &s->scratch->flow, s->scratch->to, learned, &entry))
		return SHUNT_TABLE_FULL;
	/*
	 * Another CPU may have learned the flow at the same time. A look-up may stop at either entry, since a slot
	 * before the other one may have become free. The CPU that published last sees both entries and removes its
	 * own.
	 */
	if (has_duplicate(family, key, hash, entry)) {
		shunt_unpublish(family, entry, s->now);
		return SHUNT_RETIRING;
	}
	s->scratch->entry = entry;
	return SHUNT_OK;
}

/*
 * Replaces a retired entry. Unless the connection has ended, the counters and the age move to the new entry: each
 * packet is counted in one of the two.
 */
static __always_inline enum shunt_reason relearn(const struct egress *s, __u32 family, __u32 entry,
						 const union shunt_key *key, __u64 hash, struct shunt_flow *have,
						 struct shunt_flow *f)
{
	struct shunt_cold *cold = shunt_cold_at(family, entry), *old = cold;
	__u32 learned = s->now;
	enum shunt_reason why;
	__u64 pkts = 0;

	if (cold && have->retired_why != SHUNT_CONNTRACK_GONE) {
		pkts = have->pkts + cold->remote_pkts;
		f->bytes = have->bytes + cold->remote_bytes;
		learned = cold->learned_ticks;
	}
	/*
	 * Do not overwrite the entry: a CPU that found it may load the action before the epoch, and would apply the old
	 * action under the new epoch. Of several CPUs that learn at the same time, one succeeds in unpublishing.
	 */
	if (!shunt_unpublish(family, entry, s->now))
		return SHUNT_RETIRING;
	why = insert(s, family, key, hash, learned);
	cold = shunt_cold_at(family, s->scratch->entry);
	if (why != SHUNT_OK || !cold || !pkts)
		return why;
	__sync_fetch_and_add(&cold->remote_pkts, pkts);
	have->pkts = 0;
	if (old)
		old->remote_pkts = 0;
	return why;
}

/* Writes the hint of a proved flow, and takes note of a kind that shunt_xdp_usual() leaves to a function. */
static __always_inline void note_proof(__u32 family, const union shunt_key *key, const struct shunt_flow *f,
				       __u32 entry)
{
	const __u16 *tags = family == 4 ? key->v4.tags : key->v6.tags;

	/* A packet with tags is looked up by the index. */
	if (tags[0])
		return;
	shunt_write_hint(family, key, entry);
	if (f->flags & SHUNT_FLOW_XDP && (f->flags & SHUNT_FLOW_BRIDGED || f->out_tags))
		shunt_usage.unusual_ticks = shunt_now();
}

/* Inserts a proved action into the table, or renews the existing one. */
static __always_inline enum shunt_reason install(const struct egress *s, __u32 family)
{
	union shunt_key *key = &s->scratch->key;
	struct shunt_flow *f = &s->scratch->flow;
	enum shunt_reason why;
	struct shunt_flow *have;
	__u32 entry = 0, epoch;
	__u64 hash;

	if (shunt_some_are_unstable(shunt_now()) &&
	    shunt_stations_are_unstable(shunt_source_mac(s->c->headers.l2), s->scratch->seen.l2))
		return SHUNT_UNSTABLE;
	f->state = f->flags & SHUNT_FLOW_UNTRACKED ? SHUNT_FLOW_PENDING : SHUNT_FLOW_INSERTED;
	f->home_cpu =
		s->c->in_flags & SHUNT_PORT_EXTERNAL && f->flags & SHUNT_FLOW_XDP ? SHUNT_ENGINE_CPU : shunt_this_cpu();
	f->seen_ticks = s->now;
	f->tcp_position = shunt_candidate_position(s->c);
	shunt_candidate_key(family, s->c, key);
	hash = shunt_hash(family, key);
	have = shunt_find(family, key, hash, &entry);
	/* The atomic read orders the loads below after the stores that a retiring CPU made before it. */
	epoch = have ? __sync_fetch_and_add(&have->epoch, 0) : SHUNT_EPOCH_RETIRED;
	/* An action of this epoch has had its addresses marked. */
	if (!shunt_mark_stations(s, f) || (epoch != f->epoch && !shunt_visit_addresses(s, family, VISIT_MARK)) ||
	    !shunt_is_unchanged(s, family))
		return SHUNT_OLD_EPOCH;
	if (epoch == SHUNT_EPOCH_RETIRED)
		prove_soon(s, f);
	f->prove_by_ticks = f->reprove_at_ticks + (shunt_control.prove_ticks - shunt_control.reprove_ticks);
	if (!have) {
		if (!shunt_has_share(family, key, f, s->scratch->to, shunt_free_entries(family)))
			return shunt_free_entries(family) ? SHUNT_SOURCE_SHARE : SHUNT_TABLE_FULL;
		why = insert(s, family, key, hash, s->now);
		if (why != SHUNT_OK)
			return why;
	} else if (have->flags & SHUNT_FLOW_STATIC) {
		return SHUNT_OK;
	} else if (epoch == SHUNT_EPOCH_RETIRED) {
		if (shunt_since(have->retired_ticks, s->now) < (__s32)shunt_ticks(SHUNT_RETIRED_MS))
			return SHUNT_RETIRING;
		why = relearn(s, family, entry, key, hash, have, f);
		if (why != SHUNT_OK)
			return why;
	} else {
		int same = shunt_same_action(family, have, shunt_new_addrs(have), f, s->scratch->to);

		if (same && have->group == f->group) {
			s->scratch->entry = entry;
			note_proof(family, key, f, entry);
			return renew(s, have, epoch);
		}
		/*
		 * The same packets from another station: the action stays, as long as those of its own station prove
		 * it.
		 */
		if (same && epoch == shunt_current_epoch(have) && shunt_before(s->now, have->prove_by_ticks))
			return SHUNT_OK;
		shunt_retire(have, s->now, SHUNT_NOT_PROVED);
		s->counters->retired++;
		shunt_trace(SHUNT_TRACE_RETIRE, SHUNT_NOT_PROVED, family, key);
		return SHUNT_RETIRING;
	}
	if (f->flags & SHUNT_FLOW_REPLY && s->c->l4_proto == IPPROTO_UDP)
		reprove_original(s, family);
	note_proof(family, key, f, s->scratch->entry);
	s->counters->learned++;
	shunt_trace(SHUNT_TRACE_LEARN, SHUNT_OK, family, key);
	return SHUNT_OK;
}

/*
 * install() as global functions: the verifier checks a global function once, but inlined code for every path that leads
 * to it. With install() inlined, 6.1's verifier reaches its limit of a million instructions.
 */
__noinline int shunt_install4(struct __sk_buff *skb, __u32 now)
{
	struct egress s;

	return shunt_find_egress(skb, now, &s) ? install(&s, 4) : SHUNT_RETIRING;
}

__noinline int shunt_install6(struct __sk_buff *skb, __u32 now)
{
	struct egress s;

	return shunt_find_egress(skb, now, &s) ? install(&s, 6) : SHUNT_RETIRING;
}

#endif
