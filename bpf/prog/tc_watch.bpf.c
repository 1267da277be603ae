// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tc egress: watches packets that Linux forwarded, and learns flows from packets whose ingress headers are still
 * kept as candidates. This program has an object of its own because it needs more of the kernel than the others.
 */
#include "include/learn/judge.h"
#include "include/learn/off.h"
#include "include/changes/stations.h"
#include "include/ends/reverse.h"
#include "include/trace.h"

/*
 * Finds what belongs to a packet at egress whose candidate is in the scratch space. Returns 0 if something is missing.
 */
static __always_inline int find_egress(struct __sk_buff *skb, __u32 now, struct egress *s)
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

/* Without conntrack, the direction that was learned first counts as the original one. */
static __always_inline void choose_direction(const struct egress *s, __u32 family)
{
	const struct shunt_flow *other = shunt_find_reverse(s, family);

	if (other && !(other->flags & SHUNT_FLOW_REPLY))
		s->scratch->flow.flags |= SHUNT_FLOW_REPLY;
}

/* What to do with each dependency of a flow. A result of 0 means that the flow must not be installed. */
enum visit {
	VISIT_MARK, /* mark it, so that its next change ends the flow */
	VISIT_CHECK, /* find out whether it has changed since the packet arrived */
};

/* The stations that a flow depends on, hashed. */
struct stations {
	__u64 from; /* a bridge must see a packet of a source that moved, to learn its new place */
	__u64 to; /* the destination must stay where the packet went */
};

static __always_inline struct stations stations_of(const struct egress *s)
{
	return (struct stations){ .from = shunt_station(shunt_source_mac(s->c->headers.l2)),
				  .to = shunt_station(s->scratch->seen.l2) };
}

static __always_inline int visit_station(const struct egress *s, __u64 hash, enum visit what)
{
	return what == VISIT_MARK ? shunt_mark(hash, s->c->epoch) : !shunt_has_changed(hash, s->c->changes);
}

static __always_inline int visit_stations(const struct egress *s, struct stations stations, enum visit what)
{
	return visit_station(s, stations.to, what) && visit_station(s, stations.from, what);
}

static __always_inline int visit_address(const struct egress *s, __u32 family, const void *address, enum visit what)
{
	__u64 hi, lo;

	shunt_address_words(family, address, &hi, &lo);
	return what == VISIT_MARK ? shunt_mark_address(family, hi, lo, s->c->epoch) :
				    !shunt_address_has_changed(family, hi, lo, s->c->changes);
}

/*
 * The addresses that rules and routes may look at: those before and after translation. The reverse direction has the
 * same ones.
 */
static __always_inline int visit_addresses(const struct egress *s, __u32 family, enum visit what)
{
	const void *old = shunt_header_addrs(family, &s->c->headers), *new = s->scratch->to;
	__u32 next = family == 4 ? 4 : 16;

	if (!visit_address(s, family, old, what) || !visit_address(s, family, old + next, what))
		return 0;
	if (!(s->scratch->flow.flags & SHUNT_FLOW_NAT))
		return 1;
	return visit_address(s, family, new, what) && visit_address(s, family, new + next, what);
}

/* Sets the group and the epoch of a flow, and marks its stations. */
static __always_inline int mark_stations(const struct egress *s, struct shunt_flow *f)
{
	struct stations stations = stations_of(s);

	f->group = shunt_group(stations.from, stations.to);
	/* Read before is_unchanged(), which refuses if a station had changed by then. */
	f->epoch = s->c->epoch + *(volatile __u32 *)&shunt_groups[shunt_bound(f->group, SHUNT_GROUPS - 1)];
	return visit_stations(s, stations, VISIT_MARK);
}

/* Whether a station of the flow keeps changing. */
static __noinline int stations_are_unstable(const __u8 *from, const __u8 *to)
{
	__u64 now = shunt_now();

	return from && to && (shunt_is_unstable(from, now) || shunt_is_unstable(to, now));
}

/* Whether nothing that the flow depends on, and that has been marked, has changed since the packet arrived. */
static __always_inline int is_unchanged(const struct egress *s, __u32 family)
{
	/* Atomic, so that changes are read after the marks were set or seen. */
	if (shunt_likely(__sync_fetch_and_add(&shunt_changes.count, 0) == s->c->changes))
		return 1;
	return visit_stations(s, stations_of(s), VISIT_CHECK) && visit_addresses(s, family, VISIT_CHECK);
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
	__u32 entry;

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

/* Inserts a proved action into the table, or renews the existing one. */
static __always_inline enum shunt_reason install(const struct egress *s, __u32 family)
{
	union shunt_key *key = &s->scratch->key;
	struct shunt_flow *f = &s->scratch->flow;
	enum shunt_reason why;
	struct shunt_flow *have;
	__u32 entry, epoch;
	__u64 hash;

	if (shunt_some_are_unstable(shunt_now()) &&
	    stations_are_unstable(shunt_source_mac(s->c->headers.l2), s->scratch->seen.l2))
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
	if (!mark_stations(s, f) || (epoch != f->epoch && !visit_addresses(s, family, VISIT_MARK)) ||
	    !is_unchanged(s, family))
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

	return find_egress(skb, now, &s) ? install(&s, 4) : SHUNT_RETIRING;
}

__noinline int shunt_install6(struct __sk_buff *skb, __u32 now)
{
	struct egress s;

	return find_egress(skb, now, &s) ? install(&s, 6) : SHUNT_RETIRING;
}

/* Whether a refusal means that the existing action is wrong. The other refusals concern this packet only. */
static __always_inline int disproves(enum shunt_reason why)
{
	switch (why) {
	case SHUNT_FRAGMENT:
	case SHUNT_TUNNEL_AGGREGATE:
	case SHUNT_AGED:
	case SHUNT_OLD_EPOCH:
	case SHUNT_TABLE_FULL:
	case SHUNT_SOURCE_SHARE:
	case SHUNT_RETIRING:
		return 0;
	default:
		return 1;
	}
}

static __always_inline void refuse(const struct egress *s, __u32 family, enum shunt_reason why)
{
	struct shunt_flow *have;
	union shunt_key key;
	__u32 entry;
	__u64 hash;

	shunt_candidate_key(family, s->c, &key);
	shunt_trace(SHUNT_TRACE_REFUSE, why, family, &key);
	if (!disproves(why))
		return;
	hash = shunt_hash(family, &key);
	have = shunt_find(family, &key, hash, &entry);
	if (!have || have->flags & SHUNT_FLOW_STATIC || have->epoch == SHUNT_EPOCH_RETIRED)
		return;
	shunt_retire(have, s->now, why);
	s->counters->retired++;
	shunt_trace(SHUNT_TRACE_RETIRE, why, family, &key);
}

/* Handles a packet that taught nothing: retires its flow, if it has one and the reason disproves it. */
__noinline int shunt_refuse_any(struct __sk_buff *skb, __u32 family, __u32 now, __u32 why)
{
	struct egress s;

	if (!find_egress(skb, now, &s))
		return 0;
	if (family == 4)
		refuse(&s, 4, why);
	else
		refuse(&s, 6, why);
	return 0;
}

/* Applies the derived action to the candidate, and installs the action if the result equals the packet at egress. */
static __always_inline enum shunt_reason prove(const struct egress *s, __u32 family, const struct shunt_packet *p)
{
	struct shunt_flow *f = &s->scratch->flow;

	s->scratch->expected = s->c->headers;
	if (!shunt_proved(&s->scratch->expected, &s->scratch->seen, s->c, f, s->scratch->to) ||
	    shunt_skb_padded(s->skb, p) != (s->c->padded && f->flags & SHUNT_FLOW_UNTRACKED))
		return SHUNT_NOT_PROVED;
	/* A port that the external engine serves has another XDP program. */
	if (s->port->flags & (s->c->in_flags & SHUNT_PORT_EXTERNAL ? SHUNT_PORT_EXTERNAL : SHUNT_PORT_XDP_OUT))
		f->flags |= SHUNT_FLOW_XDP;
	if (s->c->in_flags & SHUNT_PORT_PARTIAL)
		f->flags |= SHUNT_FLOW_PARTIAL;
	f->in_slot = s->c->in_slot;
	f->out_slot = s->port->slot;
	f->mark = s->skb->mark;
	f->priority = s->skb->priority;
	return family == 4 ? shunt_install4(s->skb, s->now) : shunt_install6(s->skb, s->now);
}

/* Lets packets use the flow that install() inserted or renewed, if any: its connection exists. */
static __always_inline void release(const struct egress *s, __u32 family)
{
	__u64 *words = shunt_words_at(family, s->scratch->entry);
	struct shunt_flow *f;

	if (!words)
		return;
	f = shunt_flow_at(family, words);
	if (f->state == SHUNT_FLOW_INSERTED)
		f->state = SHUNT_FLOW_PENDING;
}

/* Whether a person has turned the connection off. A global function, so that the verifier follows it once. */
__noinline int shunt_is_off(struct __sk_buff *skb, __u32 family)
{
	struct egress s;

	if (!find_egress(skb, 0, &s))
		return 0;
	return family == 4 ? shunt_off_any(&s, 4) : shunt_off_any(&s, 6);
}

/* Derives the action from the candidate and the packet, in the scratch space. */
__noinline int shunt_derive_any(struct __sk_buff *skb, const struct shunt_packet *p, __u32 now)
{
	const void *eth = (void *)(long)skb->data;
	struct shunt_flow *f;
	struct egress s;

	/* shunt_parse() has seen that the header is there, but the verifier does not know that. */
	if (!p || !find_egress(skb, now, &s) || eth + ETH_HLEN > (void *)(long)skb->data_end)
		return SHUNT_ODD_EGRESS;
	if (shunt_save_headers(skb, p, eth, &s.scratch->seen))
		return SHUNT_ODD_EGRESS;
	f = &s.scratch->flow;
	__builtin_memset(f, 0, sizeof(*f));
	s.scratch->entry = SHUNT_NO_ENTRY;
	return shunt_derive(s.c, &s.scratch->seen, p, f, s.scratch->to);
}

static __always_inline enum shunt_reason learn(const struct egress *s, __u32 family, struct shunt_packet *p)
{
	struct shunt_flow *f = &s->scratch->flow;
	struct shunt_connection found = {};
	enum shunt_reason why;

	if (s->now - s->c->at_ticks > shunt_ticks(SHUNT_CANDIDATE_MS))
		return SHUNT_AGED;
	if (s->c->epoch != shunt_control.epoch)
		return SHUNT_OLD_EPOCH;
	/* A packet that went through another network namespace or a tunnel re-entered by another device. */
	if (!shunt_is_upper(s->skb->ingress_ifindex, s->c))
		return SHUNT_RE_ENTERED;
	if (shunt_skb_ipvs(s->skb))
		return SHUNT_IPVS;
	if (s->port->flags & SHUNT_PORT_CAPTURED)
		return SHUNT_EGRESS_CAPTURE;
	if (s->port->flags & SHUNT_PORT_FILTERED_OUT)
		return SHUNT_EGRESS_FILTER;
	if (shunt_mark_excluded(s->skb->mark, shunt_control.exclude_mark, shunt_control.exclude_mark_mask))
		return SHUNT_EXCLUDED;
	why = shunt_derive_any(s->skb, p, s->now);
	if (why != SHUNT_OK)
		return why;
	if (shunt_unlikely(*(volatile __u32 *)&shunt_control.off_rules) && shunt_is_off(s->skb, family))
		return SHUNT_OFF;
	/* The copies of a packet to a group differ by who has joined it, and no event reports that. */
	if (shunt_is_to_group(s->scratch->seen.l2))
		return SHUNT_ODD_EGRESS;
	if (s->port->flags & SHUNT_PORT_FLOODS_UNSEEN && !(f->flags & SHUNT_FLOW_BRIDGED) && shunt_skb_copied(s->skb))
		return SHUNT_LEFT_TWICE;
	f->reprove_at_ticks = s->now + shunt_control.reprove_ticks;
	if (f->flags & SHUNT_FLOW_UNTRACKED) {
		choose_direction(s, family);
	} else {
		found = shunt_ct_find(s, family);
		if (!found.at)
			return SHUNT_NO_CONNTRACK;
		why = shunt_ct_judge(s, family, &found, &f->flags);
		shunt_ct_limit_reprove(s, found.ct, f);
	}
	if (why == SHUNT_OK)
		why = prove(s, family, p);
	if (why == SHUNT_OK && found.at) {
		/*
		 * A CPU that deletes a connection first marks it dying and then retires its flows (ct_gone). If the
		 * flow was inserted too late for that, retire it here; no packet has used it. The insertion was a full
		 * barrier.
		 */
		if (shunt_ct_is_dying(s, family, &found))
			why = SHUNT_DYING;
		else
			release(s, family);
	}
	return why;
}

enum { FAMILY_SHIFT = 16 };

/*
 * Parses a packet. Returns the reason why it cannot be learned from, and above that its family. A global function, so
 * that the verifier checks what follows for any description of a packet, and not for each way of parsing.
 */
__noinline __u32 shunt_parse(struct __sk_buff *skb, struct shunt_packet *p)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	enum shunt_reason why;
	union shunt_key key;
	void *data, *end;
	__u32 family;

	if (!p || !port || shunt_skb_parse_l2(skb, port->flags, p, &family) != SHUNT_OK)
		return SHUNT_ODD_EGRESS;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (family == 4)
		why = shunt_parse_l3(4, data + shunt_bound(p->l2_bytes, 31), end, skb->ifindex, p, &key);
	else if (family == 6)
		why = shunt_parse_l3(6, data + shunt_bound(p->l2_bytes, 31), end, skb->ifindex, p, &key);
	else
		return SHUNT_ODD_EGRESS;
	return family << FAMILY_SHIFT | why;
}

static __always_inline enum shunt_reason handle(const struct egress *s, __u32 family, struct shunt_packet *p,
						enum shunt_reason why, enum shunt_reason taken)
{
	if (s->c->family != family)
		return SHUNT_ODD_EGRESS;
	if (why == SHUNT_OK) {
		/* `taken` is SHUNT_LEFT_TWICE if the packet was duplicated, which no action can express. */
		why = taken == SHUNT_OK ? shunt_skb_wire_bytes(s->skb, p) : taken;
		if (why == SHUNT_OK)
			why = learn(s, family, p);
	} else if (why != SHUNT_FRAGMENT) {
		why = SHUNT_ODD_EGRESS;
	}
	if (why != SHUNT_OK)
		shunt_refuse_any(s->skb, family, s->now, why);
	return why;
}

/* Learns from a packet that left as a candidate. */
__noinline int shunt_out_watched(struct __sk_buff *skb)
{
	__u32 index = skb->tc_index % SHUNT_CANDIDATES, zero = 0;
	struct egress s = { .skb = skb };
	enum shunt_reason why = SHUNT_ODD_EGRESS, taken;
	struct shunt_candidate *candidate;
	struct shunt_packet p = {};
	__u32 parsed;

	candidate = bpf_map_lookup_elem(&shunt_candidates, &index);
	s.port = shunt_port_of(skb->ifindex);
	s.scratch = bpf_map_lookup_elem(&shunt_scratch, &zero);
	if (!candidate || !s.port || !s.scratch)
		return SHUNT_TC_NEXT;
	if (__sync_lock_test_and_set(&s.scratch->busy, 1))
		return SHUNT_TC_NEXT;
	s.c = &s.scratch->candidate;
	taken = shunt_take_candidate(skb, candidate, &s.scratch->candidate, &s.scratch->seen);
	s.counters = shunt_counters_of(taken == SHUNT_NOT_WATCHED ? s.port->slot : s.c->in_slot);
	if (!s.counters || taken == SHUNT_NOT_WATCHED) {
		if (s.counters)
			shunt_count_reason(s.counters, SHUNT_NOT_WATCHED);
		s.scratch->busy = 0;
		return SHUNT_TC_NEXT;
	}
	s.now = shunt_now();
	skb->tc_index = 0;
	shunt_skb_pull(skb);
	parsed = shunt_parse(skb, &p);
	if (parsed >> FAMILY_SHIFT == 4)
		why = handle(&s, 4, &p, (__u16)parsed, taken);
	else if (parsed >> FAMILY_SHIFT == 6)
		why = handle(&s, 6, &p, (__u16)parsed, taken);
	if (why != SHUNT_OK) {
		shunt_count_reason(s.counters, why);
		shunt_refuse(s.c, why, s.now, shunt_ticks(shunt_quiet_ms(why)));
	}
	s.scratch->busy = 0;
	return SHUNT_TC_NEXT;
}

/* If a packet that leaves ends a TCP connection, takes the reverse direction from the fast path. */
static __always_inline void end_reverse(struct __sk_buff *skb, __u32 family, void *l3, void *end,
					struct shunt_packet *p, const struct shunt_port *port)
{
	struct shunt_counters *counters = shunt_counters_of(port->slot);
	union shunt_key key;

	if (!counters || shunt_parse_l3(family, l3, end, skb->ifindex, p, &key) != SHUNT_OK)
		return;
	if (p->l4_proto != IPPROTO_TCP || !(p->tcp_flags & (SHUNT_TCP_FIN | SHUNT_TCP_RST)))
		return;
	skb->tc_index = 0;
	shunt_swap_key(family, &key);
	counters->retired += shunt_retire_reverse(family, &key, shunt_now(), SHUNT_TCP_FLAGS);
}

/*
 * A packet leaves that had the cookie of an end at ingress: a FIN or RST whose direction has no flow. Without this,
 * conntrack would miss the acknowledgement of a FIN until the next proof of the other direction.
 */
__noinline int shunt_out_ends(struct __sk_buff *skb)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	struct shunt_packet p;
	void *data, *end;
	__u32 family;

	if (!port || shunt_empty())
		return SHUNT_TC_NEXT;
	shunt_skb_pull(skb);
	if (shunt_skb_parse_l2(skb, port->flags, &p, &family) != SHUNT_OK)
		return SHUNT_TC_NEXT;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (family == 4)
		end_reverse(skb, 4, data + shunt_bound(p.l2_bytes, 31), end, &p, port);
	else if (family == 6)
		end_reverse(skb, 6, data + shunt_bound(p.l2_bytes, 31), end, &p, port);
	return SHUNT_TC_NEXT;
}

/* Apart, so that nearly all packets need neither a stack nor registers. */
SEC("tcx/egress")
int shunt_out(struct __sk_buff *skb)
{
	if (shunt_likely(!skb->tc_index))
		return SHUNT_TC_NEXT;
	return skb->tc_index == SHUNT_COOKIE_ENDS ? shunt_out_ends(skb) : shunt_out_watched(skb);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
