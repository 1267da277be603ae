/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow tables: arrays of buckets of four entries. A key is in one of the eight entries of its two buckets, so a
 * look-up is a hash, one address and mostly one comparison; docs/adr/0004 has the numbers.
 *
 * Readers take no lock. A writer claims an entry in its cold part, writes it as retired, then the key's ifindex, then the
 * epoch. An entry is not written again until SHUNT_RETIRED_MS after its action was retired, and not freed until long
 * after nobody could find it any more.
 */
#ifndef SHUNT_TABLE_H
#define SHUNT_TABLE_H

#include "include/control.h"

enum {
	SHUNT_RETIRED_MS = 100, /* no CPU can still be using an action that was retired so long ago */
	SHUNT_FULL = -28,	   /* -ENOSPC */
	SHUNT_CLAIMED = 1,
};

/* The sizes are set when the objects are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_bucket4);
} shunt_table4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_bucket6);
} shunt_table6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_cold_bucket);
} shunt_cold4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_cold_bucket);
} shunt_cold6 SEC(".maps");

/* One for two buckets: so a look-up need not visit entries that hold other keys. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_digests);
} shunt_digests4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_digests);
} shunt_digests6 SEC(".maps");

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

/* Where a flow is. */
struct shunt_place {
	__u32 bucket;
	__u32 way;
};

/*
 * Of the tuple alone, without port and tags: so all flows of a tuple are in the same two buckets, and conntrack, which
 * knows neither, can name them.
 */
static __always_inline __u64 shunt_hash(__u32 family, const union shunt_key *key)
{
	const __u64 *word = key->words;
	__u64 seed = shunt_control.seed;
	__u64 rest = shunt_ports_and_protocol(family, key);
	/* The seed goes in before the products: which tuples collide must depend on it. */
	__u64 hash = (word[0] ^ seed) * 0x9e3779b97f4a7c15ULL ^ (rest + seed) * 0xc2b2ae3d27d4eb4fULL;

	if (family == 6)
		hash ^= (word[1] ^ seed) * 0x165667b19e3779f9ULL ^
			(word[2] ^ (hash >> 31)) * 0x27d4eb2f165667c5ULL ^
			(word[3] + seed) * 0x85ebca77c2b2ae63ULL;
	hash ^= hash >> 29;
	hash *= 0xbf58476d1ce4e5b9ULL;
	return hash ^ (hash >> 32);
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
	return (second ? hash >> 32 : hash) & shunt_control.bucket_mask;
}

static __always_inline __u8 shunt_digest_of(__u64 hash)
{
	return (hash >> 56) | 1;
}

static __always_inline struct shunt_digests *shunt_digests_at(__u32 family, __u32 bucket)
{
	__u32 index = bucket / 2;

	return family == 4 ? bpf_map_lookup_elem(&shunt_digests4, &index) :
			     bpf_map_lookup_elem(&shunt_digests6, &index);
}

static __always_inline void shunt_set_digest(__u32 family, const struct shunt_place *place, __u8 digest)
{
	struct shunt_digests *digests = shunt_digests_at(family, place->bucket);

	if (digests)
		digests->digest[shunt_at_most(place->bucket % 2 * SHUNT_WAYS + place->way, 2 * SHUNT_WAYS - 1)] =
			digest;
}

/* The digests of one bucket, those of entry 0 lowest. */
static __always_inline __u32 shunt_bucket_digests(__u32 family, __u32 bucket)
{
	struct shunt_digests *digests = shunt_digests_at(family, bucket);

	return digests ? ((__u32 *)digests)[bucket % 2] : 0;
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

static __always_inline struct shunt_flow *shunt_match(__u32 family, const union shunt_key *key, __u32 index, __u32 way,
						      struct shunt_place *place)
{
	place->bucket = index;
	place->way = way;
	if (family == 4) {
		struct shunt_bucket4 *bucket = bpf_map_lookup_elem(&shunt_table4, &index);

		if (!bucket)
			return 0;
		shunt_fetch(&bucket->entry[way], sizeof(bucket->entry[way]));
		if (shunt_same_key(4, &bucket->entry[way], key))
			return &bucket->entry[way].flow;
	} else {
		struct shunt_bucket6 *bucket = bpf_map_lookup_elem(&shunt_table6, &index);

		if (!bucket)
			return 0;
		shunt_fetch(&bucket->entry[way], sizeof(bucket->entry[way]));
		if (shunt_same_key(6, &bucket->entry[way], key))
			return &bucket->entry[way].flow;
	}
	return 0;
}

/* Where the byte for an entry is in a word of four digests: entry 0 has the one that lies first in memory. */
static __always_inline __u32 shunt_digest_shift(__u32 way)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return 8 * way;
#else
	return 8 * (SHUNT_WAYS - 1 - way);
#endif
}

static __always_inline struct shunt_flow *shunt_find_in(__u32 family, const union shunt_key *key, __u8 digest,
							__u32 bucket, struct shunt_place *place)
{
	__u32 digests = shunt_bucket_digests(family, bucket);
	struct shunt_flow *f;

#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		if ((__u8)(digests >> shunt_digest_shift(way)) != digest)
			continue;
		f = shunt_match(family, key, bucket, way, place);
		if (f)
			return f;
	}
	return 0;
}

static __always_inline struct shunt_flow *shunt_find_by(__u32 family, const union shunt_key *key, __u64 hash,
							struct shunt_place *place)
{
	__u32 first = shunt_bucket_of(hash, 0);
	__u32 second = shunt_bucket_of(hash, 1);
	__u8 digest = shunt_digest_of(hash);
	struct shunt_flow *f = shunt_find_in(family, key, digest, first, place);

	return shunt_likely(f) ? f : shunt_find_in(family, key, digest, second, place);
}

/* The flow of a key, of a family that is known where the code is compiled. */
static __always_inline struct shunt_flow *shunt_find(__u32 family, const union shunt_key *key, __u64 hash,
						     struct shunt_place *place)
{
	struct shunt_flow *f = shunt_find_by(family, key, hash, place);

	if (shunt_likely(f || !(shunt_control.flags & SHUNT_CONTROL_STATICS)))
		return f;
	return shunt_find_by(family, key, shunt_static_hash(family, key, hash), place);
}

/* The addresses that a flow of the table translates to. */
static __always_inline __u8 *shunt_to(struct shunt_flow *f)
{
	return (__u8 *)(f + 1);
}

static __always_inline struct shunt_cold *shunt_cold_at(__u32 family, const struct shunt_place *place)
{
	struct shunt_cold_bucket *bucket = family == 4 ? bpf_map_lookup_elem(&shunt_cold4, &place->bucket) :
							 bpf_map_lookup_elem(&shunt_cold6, &place->bucket);

	return bucket ? &bucket->entry[place->way % SHUNT_WAYS] : 0;
}

static __always_inline __u64 *shunt_words_at(__u32 family, const struct shunt_place *place)
{
	if (family == 4) {
		struct shunt_bucket4 *bucket = bpf_map_lookup_elem(&shunt_table4, &place->bucket);

		return bucket ? (__u64 *)&bucket->entry[place->way % SHUNT_WAYS] : 0;
	} else {
		struct shunt_bucket6 *bucket = bpf_map_lookup_elem(&shunt_table6, &place->bucket);

		return bucket ? (__u64 *)&bucket->entry[place->way % SHUNT_WAYS] : 0;
	}
}

static __always_inline __u32 shunt_key_words(__u32 family)
{
	return family == 4 ? sizeof(struct shunt_key4) / 8 : sizeof(struct shunt_key6) / 8;
}

/* The word of a key that holds the ifindex, and so is 0 only in a free entry. */
static __always_inline __u32 shunt_live_word(__u32 family)
{
	return family == 4 ? 1 : 4;
}

/* Claims a free entry of one bucket, of those from `from` and before `until`. */
static __always_inline int shunt_claim(__u32 family, __u32 index, __u32 from, __u32 until, struct shunt_place *place)
{
	struct shunt_cold_bucket *bucket = family == 4 ? bpf_map_lookup_elem(&shunt_cold4, &index) :
							 bpf_map_lookup_elem(&shunt_cold6, &index);

	place->bucket = index;
	if (!bucket)
		return 0;
#pragma unroll
	for (__u32 way = from; way < until; way++) {
		place->way = way;
		if (!bucket->entry[way].claim &&
		    __sync_val_compare_and_swap(&bucket->entry[way].claim, 0, SHUNT_CLAIMED) == 0)
			return 1;
	}
	return 0;
}

static __always_inline struct shunt_flow *shunt_flow_at(__u32 family, __u64 *words)
{
	return (struct shunt_flow *)(words + shunt_key_words(family));
}

/*
 * Writes a flow into an entry that the caller has claimed, or whose action was retired long enough ago. It can be found
 * and used when this returns, and not before all of it is there.
 */
static __always_inline int shunt_write(__u32 family, const struct shunt_place *place, const union shunt_key *key,
				       struct shunt_flow *f, const __u8 *to, __u32 now)
{
	__u64 *words = shunt_words_at(family, place);
	struct shunt_cold *cold = shunt_cold_at(family, place);
	__u32 live = shunt_live_word(family);
	__u32 epoch = f->epoch;
	__u8 flags = f->flags;
	struct shunt_flow *entry;

	if (!words || !cold)
		return -1;
	entry = shunt_flow_at(family, words);
	/* Without SHUNT_FLOW_STATIC the epoch counts, and this one is never in force. */
	f->epoch = SHUNT_EPOCH_RETIRED;
	f->flags = 0;
	*entry = *f;
	__builtin_memcpy(entry + 1, to, family == 4 ? 8 : 32);
	cold->away_pkts = 0;
	cold->away_bytes = 0;
	cold->learned_ticks = now;
#pragma unroll
	for (__u32 i = 0; i < shunt_key_words(family); i++)
		if (i != live)
			words[i] = key->words[i];
	/* Exchanges are full barriers: whoever finds the key or the epoch finds all that was written before. */
	__sync_lock_test_and_set(&words[live], key->words[live]);
	entry->flags = flags;
	__sync_lock_test_and_set(&entry->epoch, epoch);
	f->epoch = epoch;
	f->flags = flags;
	return 0;
}

/* Has nobody find an entry from now on. A sweep frees it when nobody can be using it any more. */
static __always_inline void shunt_unpublish(__u32 family, const struct shunt_place *place, __u32 now)
{
	__u64 *words = shunt_words_at(family, place);

	if (!words)
		return;
	shunt_set_digest(family, place, 0);
	shunt_flow_at(family, words)->retired_ticks = now;
	shunt_flow_at(family, words)->state = SHUNT_FLOW_LEAVING;
	__sync_lock_test_and_set(&words[shunt_live_word(family)], 0);
}

static __always_inline __u32 shunt_taken_ways(__u32 family, __u32 index)
{
	struct shunt_cold_bucket *bucket = family == 4 ? bpf_map_lookup_elem(&shunt_cold4, &index) :
							 bpf_map_lookup_elem(&shunt_cold6, &index);
	__u32 ways = 0;

	if (!bucket)
		return SHUNT_WAYS;
#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++)
		ways += bucket->entry[way].claim;
	return ways;
}

/* Puts a flow in; that it is not there, or is to be there twice for a moment, is the caller's business. */
static __always_inline int shunt_insert(__u32 family, const union shunt_key *key, __u64 hash, struct shunt_flow *f,
					const __u8 *to, __u32 now, struct shunt_place *place)
{
	__u64 *used = shunt_used(family);
	__u32 first = shunt_bucket_of(hash, 0);
	__u32 second = shunt_bucket_of(hash, 1);
	int err;

	if (*used >= shunt_control.max_flows)
		return SHUNT_FULL;
	/* In front if that is free, else the emptier bucket: so nearly all of the entries can be filled. */
	if (!shunt_claim(family, first, 0, 1, place)) {
		__u32 emptier = shunt_taken_ways(family, second) < shunt_taken_ways(family, first) ? second : first;

		if (!shunt_claim(family, emptier, 0, SHUNT_WAYS, place) &&
		    !shunt_claim(family, emptier == first ? second : first, 0, SHUNT_WAYS, place))
			return SHUNT_FULL;
	}
	__sync_fetch_and_add(used, 1);
	err = shunt_write(family, place, key, f, to, now);
	shunt_set_digest(family, place, shunt_digest_of(hash));
	return err;
}

/* Retires an action: no packet uses it from now on, and nothing replaces it until its quiet time is over. */
static __always_inline void shunt_retire(struct shunt_flow *f, __u32 now, enum shunt_reason why)
{
	f->retired_ticks = now;
	f->retired_why = why;
	f->epoch = SHUNT_EPOCH_RETIRED;
}

#endif
