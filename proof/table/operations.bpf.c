// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Operations of concurrent CPUs on the flow table. Each is a program of its own, made of the code of the loaded
 * programs. Keys and actions are numbers. Every field of an action, and every byte of a rewritten packet, is
 * derived from both, so that a mixture of two actions is visible.
 */
#include "prog/tc_watch.bpf.c"

struct arguments {
	__u64 key;
	__u64 action;
	__u64 result; /* enum shunt_reason, or the result of the operation */
	__u64 out[6];
};

struct operation {
	struct shunt_candidate candidate;
	struct shunt_packet packet;
	__u8 frame[SHUNT_L2_MAX + 2 + 20 + 20];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct operation);
} proof_scratch SEC(".maps");

enum { TICKS_PER_S = 1000, IFINDEX = 3, TTL = 64, OFFSET_OF_STATE = __builtin_offsetof(struct shunt_candidate, state) };

static __always_inline void make_key(__u32 number, union shunt_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->v4 = (struct shunt_key4){
		.src_be = number,
		.dst_be = number,
		.sport_be = number,
		.dport_be = number,
		.ifindex = IFINDEX,
		.l4_proto = IPPROTO_TCP,
	};
}

SEC("syscall")
int set_up(struct arguments *args)
{
	shunt_control.epoch = 1;
	shunt_control.heartbeat_max_ticks = 1 << 30;
	shunt_control.reprove_ticks = 1 << 14;
	shunt_control.prove_ticks = 1 << 15;
	shunt_control.bucket_mask = args->key;
	shunt_control.max_flows = args->action;
	shunt_control.ticks_per_s = TICKS_PER_S;
	shunt_control.seed = 0x1234567;
	return 0;
}

/* Inserts a proved action into the table, as egress does. */
static __always_inline int learn_as(struct arguments *args, __u8 flags)
{
	__u64 byte = args->key << 4 | args->action, all = byte * 0x0101010101010101ULL;
	struct egress s = { .now = shunt_now() };
	struct shunt_candidate *c;
	struct operation *scratch;
	struct shunt_flow *f;
	union shunt_key key;
	__u32 zero = 0;

	s.scratch = bpf_map_lookup_elem(&shunt_scratch, &zero);
	scratch = bpf_map_lookup_elem(&proof_scratch, &zero);
	s.counters = shunt_counters_of(0);
	if (!s.scratch || !scratch || !s.counters)
		return 0;
	c = &scratch->candidate;
	s.c = c;
	make_key(args->key, &key);
	c->family = 4;
	c->l4_proto = IPPROTO_TCP;
	c->ifindex = IFINDEX;
	c->epoch = 1;
	c->headers.l2_bytes = ETH_HLEN;
	__builtin_memcpy(c->headers.l3 + 12, &key.v4.src_be, 8);
	__builtin_memcpy(c->headers.l4, &key.v4.sport_be, 4);
	f = &s.scratch->flow;
	__builtin_memset(f, 0, sizeof(*f));
	f->flags = SHUNT_FLOW_NAT | flags;
	f->max_l3_bytes = 1500;
	f->in_ttl = TTL;
	f->reprove_at_ticks = s.now + shunt_control.reprove_ticks;
	__builtin_memset(f->l2, byte, sizeof(f->l2));
	f->sport_be = all;
	f->dport_be = all;
	f->l4_delta = all;
	f->mark = all;
	f->priority = all;
	for (int i = 0; i < 8; i++)
		s.scratch->to[i] = byte;
	s.scratch->entry = SHUNT_NO_ENTRY;
	args->result = install(&s, 4);
	release(&s, 4);
	return 0;
}

SEC("syscall")
int learn_flow(struct arguments *args)
{
	return learn_as(args, 0);
}

SEC("syscall")
int learn_untracked_flow(struct arguments *args)
{
	return learn_as(args, SHUNT_FLOW_UNTRACKED);
}

/* Finds a flow by its hint, as ingress does first. */
static __always_inline struct shunt_flow *find_by_hint(const union shunt_key *key)
{
	__u64 *words = shunt_words_at(4, shunt_hinted(4, key));

	return words && shunt_same_key(4, words, key) ? shunt_flow_at(4, words) : 0;
}

/*
 * Forwards a packet of a flow, as ingress does. With an `action`, looks for a hint before the index. Returns the
 * rewritten packet in `out`.
 */
SEC("syscall")
int use_flow(struct arguments *args)
{
	__u32 now = shunt_now(), entry = 0, zero = 0;
	struct operation *scratch = bpf_map_lookup_elem(&proof_scratch, &zero);
	struct shunt_flow *f;
	union shunt_key key;
	__u64 *l2, *l3;

	if (!scratch)
		return 0;
	args->result = SHUNT_MISS;
	make_key(args->key, &key);
	f = args->action ? find_by_hint(&key) : 0;
	if (!f && !shunt_empty())
		f = shunt_find(4, &key, shunt_hash(4, &key), &entry);
	if (!f)
		return 0;
	__builtin_memset(scratch, 0, sizeof(*scratch));
	scratch->packet.ttl = TTL;
	scratch->packet.wire_bytes = 1000;
	args->result =
		shunt_decide(f, &scratch->packet, scratch->frame, &shunt_control, shunt_current_epoch(f), now, 0);
	if (args->result == SHUNT_PENDING && f->state == SHUNT_FLOW_PENDING) {
		f->state = SHUNT_FLOW_ACTIVE;
		args->result = SHUNT_OK;
	}
	if (args->result != SHUNT_OK)
		return 0;
	l2 = (__u64 *)scratch->frame;
	l3 = (__u64 *)(scratch->frame + SHUNT_L2_MAX + 2);
	((__u16 *)l3)[18] = 0xffff;
	shunt_rewrite(l3, (void *)l3 + 20, 4, IPPROTO_TCP, f, shunt_new_addrs(f), SHUNT_CHECKSUM_FINISHED);
	shunt_copy_l2(l2, f->l2, f->out_tags);
	args->out[0] = l2[0];
	args->out[1] = (__u64)((__u32 *)l2)[2] << 32 | f->mark;
	args->out[2] = (__u64)((__u32 *)l3)[3] << 32 | ((__u32 *)l3)[4];
	args->out[3] = (__u64)((__u32 *)l3)[5] << 32 | f->priority;
	/* The sum was 0, so the checksum is the complement of the delta. */
	args->out[4] = (__u16) ~((__u16 *)l3)[18];
	return 0;
}

/* Records a change of a route to the address of a flow, as the filter of the daemon's socket does. */
SEC("syscall")
int change_route(struct arguments *args)
{
	__u32 address = args->key;
	__u64 hi, lo;

	shunt_address_words(4, &address, &hi, &lo);
	args->result = shunt_note_prefix(4, hi, lo, 32);
	if (args->result)
		shunt_move_epoch();
	return 0;
}

/* A candidate whose bytes are all the same, but for its state. */
static __always_inline __u64 candidate_word(__u64 number, __u32 word)
{
	return word == OFFSET_OF_STATE / 8 ? 0 : number * 0x0101010101010101ULL;
}

/*
 * Takes the candidate of a cookie as egress does, for the packet with this number. Returns in `out` whether each byte
 * is that packet's.
 */
static __always_inline void take(struct arguments *args, __u16 cookie, __u64 number)
{
	__u32 index = cookie % SHUNT_CANDIDATES, zero = 0;
	struct shunt_candidate *c = bpf_map_lookup_elem(&shunt_candidates, &index);
	struct operation *scratch = bpf_map_lookup_elem(&proof_scratch, &zero);
	__u64 *words, state;

	if (!c || !scratch)
		return;
	args->result = SHUNT_NOT_WATCHED;
	state = shunt_copy_candidate(c, cookie, &scratch->candidate);
	if (!state || scratch->candidate.packet != number * 0x0101010101010101ULL)
		return;
	args->result = shunt_leave_candidate(c, state);
	scratch->candidate.state = 0;
	words = (__u64 *)&scratch->candidate;
	args->out[0] = 1;
	for (__u32 word = 0; word < sizeof(*c) / 8; word++)
		if (words[word] != candidate_word(number, word))
			args->out[0] = 0;
}

/* Keeps a packet as a candidate, as ingress does. Returns its cookie, or 0 if the slot is being written. */
static __always_inline __u16 keep(__u64 number)
{
	__u32 index = 0;
	struct shunt_candidate *c = bpf_map_lookup_elem(&shunt_candidates, &index);
	__u64 state;

	if (!c)
		return 0;
	state = shunt_claim_candidate(c, index);
	if (!state)
		return 0;
	for (__u32 word = 0; word < sizeof(*c) / 8; word++)
		if (word != OFFSET_OF_STATE / 8)
			((__u64 *)c)[word] = candidate_word(number, word);
	shunt_publish_candidate(c, state, 0);
	return state;
}

SEC("syscall")
int keep_candidate(struct arguments *args)
{
	args->result = keep(args->action);
	return 0;
}

/* Takes the candidate of a packet that arrived earlier. */
SEC("syscall")
int take_candidate(struct arguments *args)
{
	take(args, args->key, args->action);
	return 0;
}

/* A packet that arrives and leaves. */
SEC("syscall")
int keep_and_take(struct arguments *args)
{
	__u16 cookie = keep(args->action);

	args->result = SHUNT_NOT_WATCHED;
	if (cookie)
		take(args, cookie, args->action);
	return 0;
}

/* Retires a flow. */
SEC("syscall")
int retire_flow(struct arguments *args)
{
	union shunt_key key;
	struct shunt_flow *f;
	__u32 entry;

	make_key(args->key, &key);
	f = shunt_find(4, &key, shunt_hash(4, &key), &entry);
	if (f)
		shunt_retire(f, shunt_now(), SHUNT_FLUSHED);
	args->result = !!f;
	return 0;
}

/* The source of an entry, in use or not. */
static __always_inline __u32 opener_of(__u64 *words)
{
	struct shunt_flow *f = shunt_flow_at(4, words);

	return shunt_opener(4, words, f, shunt_new_addrs(f));
}

/* Whether the source of an entry is counted as often as it has entries in use. `free` has a bit for each free entry. */
static __always_inline int source_counted(__u64 *words, __u32 entries, __u32 free)
{
	__u32 source = opener_of(words), expected = 0;

	for (__u32 other = 0; other < entries; other++) {
		__u64 *its = shunt_words_at(4, other);

		expected += its && !(free >> other & 1) && opener_of(its) == source;
	}
	return shunt_sources[source] == expected;
}

/*
 * Checks the table while nothing else runs. Each entry that was ever allocated is in one place: once in the index,
 * where its key finds it; out of the index, until the sweep frees it; or on the stack of free entries. The result
 * is 0, or a number for the violation.
 */
SEC("syscall")
int audit(struct arguments *args)
{
	__u32 entries = shunt_usage.fresh[0], first = shunt_usage.free[0], seen = 0, used = 0;

	args->result = 0;
	if (entries > shunt_control.max_flows)
		entries = shunt_control.max_flows;
	for (__u32 left = 16; first; left--) {
		__u32 entry = first - 1;
		struct shunt_cold *cold = shunt_cold_at(4, entry);

		if (!cold || !left || seen >> entry & 1) {
			args->result = 1; /* an entry is on the stack twice */
			return 0;
		}
		seen |= 1 << entry;
		first = cold->next_free;
	}
	for (__u32 entry = 0; entry < entries; entry++) {
		__u64 *words = shunt_words_at(4, entry);
		__u32 slots = 0, found;

		for (__u32 index = 0; index <= shunt_control.bucket_mask; index++) {
			struct shunt_bucket *bucket = shunt_bucket_at(4, index);

			for (__u32 way = 0; bucket && way < SHUNT_WAYS; way++)
				slots += bucket->slot[way] && shunt_slot_entry(bucket->slot[way]) == entry;
		}
		if (!words || slots > 1) {
			args->result = 2; /* an entry has two slots */
			return 0;
		}
		if (!source_counted(words, entries, seen))
			args->result = 9; /* a source is counted too often or too rarely */
		if (seen >> entry & 1) {
			if (slots)
				args->result = 3; /* a free entry is in the index */
			continue;
		}
		used++;
		if (!shunt_flow_at(4, words)->state) {
			args->result = 4; /* an unused entry is not on the stack */
			return 0;
		}
		if (!words[shunt_live_word(4)] != !slots)
			args->result = 5; /* a slot refers to an entry out of use, or a live entry has no slot */
		if (!slots)
			continue;
		if (!shunt_find(4, (union shunt_key *)words, shunt_hash(4, (union shunt_key *)words), &found))
			args->result = 6; /* a live entry is not found by its key */
		else if (found != entry)
			args->result = 8; /* two live entries have one key */
	}
	args->action = used;
	if (used != shunt_usage.entries[0])
		args->result = 7; /* miscounted */
	return 0;
}
