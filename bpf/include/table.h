/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow tables: entries lie one after the other in the order in which flows came, and an index of buckets of four slots
 * says where. A look-up is a hash, a slot, and mostly one comparison; docs/adr/0009 and 0010 have the numbers.
 *
 * Readers take no lock. A writer takes an entry that nobody can find, fills it, and puts it into the index by
 * compare-and-swap. An action is not written again until SHUNT_RETIRED_MS after it was retired, and an entry is not taken again
 * until as long after it has left the index.
 */
#ifndef SHUNT_TABLE_H
#define SHUNT_TABLE_H

#include "include/control.h"

enum {
	SHUNT_RETIRED_MS = 100, /* no CPU can still be using what was retired or found so long ago */
	SHUNT_FULL = -28,	   /* -ENOSPC */
	SHUNT_SLOT_ENTRY = 0xffffff,
	SHUNT_TRIES = 8, /* of an exchange that other CPUs may have been faster with */
};

/* The sizes are set when the objects are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_bucket);
} shunt_index4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_bucket);
} shunt_index6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_entry4);
} shunt_table4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_entry6);
} shunt_table6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_cold);
} shunt_cold4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_cold);
} shunt_cold6 SEC(".maps");

/* By tuple, so that `shunt conntrack` can add up what went past conntrack. Deleted with the connection. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct shunt_tuple);
	__type(value, struct shunt_past);
} shunt_past SEC(".maps");

/* How many entries of a family are in use. */
static __always_inline __u64 *shunt_used(__u32 family)
{
	return &shunt_usage.entries[family == 6];
}

/* With no flow at all, there is nothing to look for. */
static __always_inline int shunt_empty(void)
{
	return !(shunt_usage.entries[0] | shunt_usage.entries[1]);
}

static __always_inline __u64 shunt_ports_and_protocol(__u32 family, const union shunt_key *key)
{
	const __u32 *half = (const __u32 *)key->words;

	return family == 4 ? (__u64)half[5] << 32 | half[2] : (__u64)half[11] << 32 | half[8];
}

/*
 * Of the tuple alone, without port and tags: so all flows of a tuple are in the same two buckets, and conntrack, which
 * knows neither, can name them.
 *
 * Clients' ports have the highest bit set, and are given out one after the other. So the last byte of that goes into the lowest and
 * the highest bits alone: 256 such flows are in as many buckets of one page, each in one of its own, and differ in their digest.
 */
static __always_inline __u64 shunt_hash(__u32 family, const union shunt_key *key)
{
	const __u64 *word = key->words;
	__u64 seed = shunt_control.seed;
	__u64 rest = shunt_ports_and_protocol(family, key), hash;
	__u32 ports = rest;

	if (!(ports & 0x80)) {
		ports = ports >> 16 | ports << 16;
		/* Or clang does it for all, and then chooses. */
		asm volatile("" : "+r"(ports));
	}
	rest = (rest >> 32 << 32) | (ports & ~0xff00U);
	/* The seed goes in before the products: which tuples collide must depend on it. */
	hash = (word[0] ^ seed) * 0x9e3779b97f4a7c15ULL ^ (rest + seed) * 0xc2b2ae3d27d4eb4fULL;
	if (family == 6)
		hash ^= (word[1] ^ seed) * 0x165667b19e3779f9ULL ^
			(word[2] ^ (hash >> 31)) * 0x27d4eb2f165667c5ULL ^
			(word[3] + seed) * 0x85ebca77c2b2ae63ULL;
	hash ^= hash >> 29;
	hash *= 0xbf58476d1ce4e5b9ULL;
	return __builtin_bswap64(hash) ^ ports >> 8 ^ (__u64)ports << 48;
}

static __always_inline int shunt_same_key(__u32 family, const void *entry, const union shunt_key *key)
{
	const __u64 *words = entry;
	__u64 differ = (words[0] ^ key->words[0]) | (words[1] ^ key->words[1]) | (words[2] ^ key->words[2]);

	if (family == 6)
		differ |= (words[3] ^ key->words[3]) | (words[4] ^ key->words[4]) | (words[5] ^ key->words[5]);
	return !differ;
}

/*
 * Of port and tags, too. Flows that a person puts in are kept by it, as conntrack has no say in them and there may be many of
 * one tuple.
 */
static __always_inline __u64 shunt_static_hash(__u32 family, const union shunt_key *key, __u64 hash)
{
	const __u32 *half = (const __u32 *)key->words;
	__u64 place = family == 4 ? (__u64)half[3] << 32 | half[4] : (__u64)half[9] << 32 | half[10];

	hash ^= place * 0xd6e8feb86659fd93ULL;
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/* Whether two keys differ in nothing but port and tags. */
static __always_inline int shunt_same_tuple(__u32 family, const union shunt_key *a, const union shunt_key *b)
{
	__u64 differ = a->words[0] ^ b->words[0];

	differ |= shunt_ports_and_protocol(family, a) ^ shunt_ports_and_protocol(family, b);
	if (family == 6)
		differ |= (a->words[1] ^ b->words[1]) | (a->words[2] ^ b->words[2]) | (a->words[3] ^ b->words[3]);
	return !differ;
}

static __always_inline __u32 shunt_bucket_of(__u64 hash, int second)
{
	return (second ? hash * 0xd6e8feb86659fd93ULL >> 32 : hash) & shunt_control.bucket_mask;
}

static __always_inline struct shunt_bucket *shunt_bucket_at(__u32 family, __u32 index)
{
	return family == 4 ? bpf_map_lookup_elem(&shunt_index4, &index) : bpf_map_lookup_elem(&shunt_index6, &index);
}

static __always_inline __u32 shunt_digest_of(__u64 hash)
{
	return hash >> 56;
}

/* A slot of a bucket, of which others may write. */
static __always_inline __u32 shunt_slot(const struct shunt_bucket *bucket, __u32 way)
{
	return *(const volatile __u32 *)&bucket->slot[way];
}

static __always_inline __u32 shunt_slot_digest(__u32 slot)
{
	return slot >> 24;
}

/* There is no such entry where the slot is free. */
static __always_inline __u32 shunt_slot_entry(__u32 slot)
{
	return (slot & SHUNT_SLOT_ENTRY) - 1;
}

static __always_inline __u32 shunt_slot_of(__u64 hash, __u32 entry)
{
	return shunt_digest_of(hash) << 24 | (entry + 1);
}

/*
 * Has the cache lines of an entry after its first one fetched together with that. The CPU does not look as far ahead as to where they are
 * used, and would wait for memory once more.
 */
static __always_inline void shunt_fetch(const void *entry, __u32 size)
{
	for (__u32 at = 64; at < size; at += 64)
		(void)*(const volatile __u64 *)(entry + at);
}

static __always_inline __u64 *shunt_words_at(__u32 family, __u32 entry)
{
	return family == 4 ? bpf_map_lookup_elem(&shunt_table4, &entry) : bpf_map_lookup_elem(&shunt_table6, &entry);
}

static __always_inline struct shunt_cold *shunt_cold_at(__u32 family, __u32 entry)
{
	return family == 4 ? bpf_map_lookup_elem(&shunt_cold4, &entry) : bpf_map_lookup_elem(&shunt_cold6, &entry);
}

static __always_inline __u32 shunt_key_words(__u32 family)
{
	return family == 4 ? sizeof(struct shunt_key4) / 8 : sizeof(struct shunt_key6) / 8;
}

/*
 * The word of a key that holds the ifindex, and so is 0 only in an entry that is in no use: one that is free, or, where its state
 * is not 0, has left the index.
 */
static __always_inline __u32 shunt_live_word(__u32 family)
{
	return family == 4 ? 1 : 4;
}

static __always_inline struct shunt_flow *shunt_flow_at(__u32 family, __u64 *words)
{
	return (struct shunt_flow *)(words + shunt_key_words(family));
}

static __always_inline struct shunt_flow *shunt_match(__u32 family, const union shunt_key *key, __u32 entry)
{
	__u64 *words = shunt_words_at(family, entry);

	if (!words)
		return 0;
	shunt_fetch(words, family == 4 ? sizeof(struct shunt_entry4) : sizeof(struct shunt_entry6));
	return shunt_same_key(family, words, key) ? shunt_flow_at(family, words) : 0;
}

static __always_inline struct shunt_flow *shunt_find_in(__u32 family, const union shunt_key *key, __u64 hash,
							__u32 index, __u32 *entry)
{
	const struct shunt_bucket *bucket = shunt_bucket_at(family, index);
	struct shunt_flow *f;

	if (!bucket)
		return 0;
#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		__u32 slot = shunt_slot(bucket, way);

		if (shunt_slot_digest(slot) != shunt_digest_of(hash))
			continue;
		*entry = shunt_slot_entry(slot);
		f = shunt_match(family, key, *entry);
		if (f)
			return f;
	}
	return 0;
}

static __always_inline struct shunt_flow *shunt_find_by(__u32 family, const union shunt_key *key, __u64 hash,
							__u32 *entry)
{
	struct shunt_flow *f = shunt_find_in(family, key, hash, shunt_bucket_of(hash, 0), entry);

	return shunt_likely(f) ? f : shunt_find_in(family, key, hash, shunt_bucket_of(hash, 1), entry);
}

/* The flow of a key, of a family that is known where the code is compiled. */
static __always_inline struct shunt_flow *shunt_find(__u32 family, const union shunt_key *key, __u64 hash,
						     __u32 *entry)
{
	struct shunt_flow *f = shunt_find_by(family, key, hash, entry);

	if (shunt_likely(f || !(shunt_control.flags & SHUNT_CONTROL_STATICS)))
		return f;
	return shunt_find_by(family, key, shunt_static_hash(family, key, hash), entry);
}

/* The addresses that a flow of the table translates to. */
static __always_inline __u8 *shunt_to(struct shunt_flow *f)
{
	return (__u8 *)(f + 1);
}

/*
 * Entries that were in use and are free are a stack, so that those in use stay close together. The kernel's own is not for programs
 * that may sleep, on Linux 6.1. The count of changes beside the first one's number tells an exchange of an entry that was taken and given
 * back meanwhile.
 */
/* This and what else is not inlined here is looked at once by the verifier, and not at each place that calls it. */
__noinline int shunt_push(__u32 family, __u32 entry)
{
	__u64 *first = &shunt_usage.free[family == 6];
	struct shunt_cold *cold = shunt_cold_at(family, entry);

	for (__u32 tries = 0; cold && tries < SHUNT_TRIES; tries++) {
		__u64 have = *(volatile __u64 *)first;

		cold->next_free = have;
		if (__sync_val_compare_and_swap(first, have, ((have >> 32) + 1) << 32 | (entry + 1)) == have)
			return 0;
	}
	return -1;
}

/* The number of an entry, or -1. */
__noinline int shunt_pop(__u32 family)
{
	__u64 *first = &shunt_usage.free[family == 6];

	for (__u32 tries = 0; tries < SHUNT_TRIES; tries++) {
		__u64 have = *(volatile __u64 *)first;
		struct shunt_cold *cold = shunt_cold_at(family, (__u32)have - 1);

		if (!cold)
			return -1;
		if (__sync_val_compare_and_swap(first, have, ((have >> 32) + 1) << 32 | cold->next_free) == have)
			return (__u32)have - 1;
	}
	return -1;
}

/* Takes an entry that nobody can find. */
static __always_inline int shunt_take(__u32 family, __u32 *entry)
{
	__u64 *fresh = &shunt_usage.fresh[family == 6];
	int free = shunt_pop(family);

	if (free >= 0) {
		*entry = free;
	} else {
		if (*fresh >= shunt_control.max_flows)
			return SHUNT_FULL;
		*entry = __sync_fetch_and_add(fresh, 1);
		if (*entry >= shunt_control.max_flows)
			return SHUNT_FULL;
	}
	__sync_fetch_and_add(shunt_used(family), 1);
	return 0;
}

/* Gives back an entry that nobody can be using any more. Where that fails, the next sweep does it. */
static __always_inline void shunt_give_back(__u32 family, __u32 entry, __u64 *words)
{
	struct shunt_flow *f = shunt_flow_at(family, words);

	f->state = 0;
	__sync_lock_test_and_set(&words[shunt_live_word(family)], 0);
	if (shunt_push(family, entry))
		f->state = SHUNT_FLOW_PENDING;
	else
		__sync_fetch_and_add(shunt_used(family), -1);
}

/*
 * Writes a flow into an entry that nobody can find, or whose action was retired long enough ago. It can be used when this
 * returns, and not before all of it is there.
 */
static __always_inline int shunt_write(__u32 family, __u32 number, const union shunt_key *key, struct shunt_flow *f,
				       const __u8 *to, __u32 now)
{
	__u64 *words = shunt_words_at(family, number);
	struct shunt_cold *cold = shunt_cold_at(family, number);
	__u32 live = shunt_live_word(family);
	__u32 epoch = f->epoch;
	__u8 flags = f->flags, state = f->state;
	struct shunt_flow *entry;

	if (!words || !cold)
		return -1;
	entry = shunt_flow_at(family, words);
	/* Without SHUNT_FLOW_STATIC the epoch counts, and this one is never in force. To the sweep, it is free. */
	f->epoch = SHUNT_EPOCH_RETIRED;
	f->flags = 0;
	f->state = 0;
	*entry = *f;
	__builtin_memcpy(entry + 1, to, family == 4 ? 8 : 32);
	cold->away_pkts = 0;
	cold->away_bytes = 0;
	cold->learned_ticks = now;
#pragma unroll
	for (__u32 i = 0; i < shunt_key_words(family); i++)
		if (i != live)
			words[i] = key->words[i];
	entry->flags = flags;
	/* Exchanges are full barriers: whoever finds the epoch or the key finds all that was written before. */
	__sync_lock_test_and_set(&entry->epoch, epoch);
	__sync_lock_test_and_set(&words[live], key->words[live]);
	entry->state = state;
	f->epoch = epoch;
	f->flags = flags;
	f->state = state;
	return 0;
}

static __always_inline __u32 shunt_taken_slots(const struct shunt_bucket *bucket)
{
	__u32 slots = 0;

#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++)
		slots += !!bucket->slot[way];
	return slots;
}

/* Exchanges what is in one of the first `ways` slots; false if none has `from`. */
static __always_inline int shunt_exchange(struct shunt_bucket *bucket, __u32 ways, __u32 from, __u32 to)
{
#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++)
		if (way < ways && shunt_slot(bucket, way) == from &&
		    __sync_val_compare_and_swap(&bucket->slot[way], from, to) == from)
			return 1;
	return 0;
}

/*
 * Has an entry be found. Where its neighbours are if half of that is free, else in the emptier bucket: so nearly all of the slots can
 * be filled.
 */
__noinline int shunt_publish(__u32 family, __u64 hash, __u32 entry)
{
	struct shunt_bucket *first = shunt_bucket_at(family, shunt_bucket_of(hash, 0));
	struct shunt_bucket *second = shunt_bucket_at(family, shunt_bucket_of(hash, 1));
	__u32 slot = shunt_slot_of(hash, entry);

	if (!first || !second)
		return SHUNT_FULL;
	if (shunt_exchange(first, 2, 0, slot))
		return 0;
	if (shunt_taken_slots(second) < shunt_taken_slots(first) && shunt_exchange(second, SHUNT_WAYS, 0, slot))
		return 0;
	return shunt_exchange(first, SHUNT_WAYS, 0, slot) || shunt_exchange(second, SHUNT_WAYS, 0, slot) ? 0 : SHUNT_FULL;
}

/* Takes an entry out of the index. */
__noinline int shunt_hide(__u32 family, __u64 hash, __u32 entry)
{
	struct shunt_bucket *first = shunt_bucket_at(family, shunt_bucket_of(hash, 0));
	struct shunt_bucket *second = shunt_bucket_at(family, shunt_bucket_of(hash, 1));
	__u32 slot = shunt_slot_of(hash, entry);

	return first && second &&
	       (shunt_exchange(first, SHUNT_WAYS, slot, 0) || shunt_exchange(second, SHUNT_WAYS, slot, 0));
}

/* Has nobody find an entry from now on. A sweep gives it back when nobody can be using it any more. */
static __always_inline void shunt_unpublish(__u32 family, __u32 entry, __u32 now)
{
	__u64 *words = shunt_words_at(family, entry);
	const union shunt_key *key = (const union shunt_key *)words;
	struct shunt_flow *f;
	__u64 hash;

	if (!words)
		return;
	f = shunt_flow_at(family, words);
	hash = shunt_hash(family, key);
	if (f->flags & SHUNT_FLOW_STATIC)
		hash = shunt_static_hash(family, key, hash);
	shunt_hide(family, hash, entry);
	f->retired_ticks = now;
	__sync_lock_test_and_set(&words[shunt_live_word(family)], 0);
}

/* Puts a flow in; that it is not there, or is to be there twice for a moment, is the caller's business. */
static __always_inline int shunt_insert(__u32 family, const union shunt_key *key, __u64 hash, struct shunt_flow *f,
					const __u8 *to, __u32 now, __u32 *entry)
{
	__u64 *words;

	if (shunt_take(family, entry))
		return SHUNT_FULL;
	if (!shunt_write(family, *entry, key, f, to, now) && !shunt_publish(family, hash, *entry))
		return 0;
	words = shunt_words_at(family, *entry);
	if (words)
		shunt_give_back(family, *entry, words);
	return SHUNT_FULL;
}

/* Retires an action: no packet uses it from now on, and nothing replaces it until its quiet time is over. */
static __always_inline void shunt_retire(struct shunt_flow *f, __u32 now, enum shunt_reason why)
{
	f->retired_ticks = now;
	f->retired_why = why;
	f->epoch = SHUNT_EPOCH_RETIRED;
}

#endif
