/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow tables: an array of entries in the order of arrival, and an index with buckets of four slots. A look-up
 * is a hash, a slot, and mostly one comparison; docs/adr/0009 and 0010 have the numbers.
 *
 * Readers take no lock. A writer allocates an entry that is not in the index, fills it, and publishes it by
 * compare-and-swap. An action is not overwritten until SHUNT_RETIRED_MS after it was retired, and an entry is not
 * reused until as long after it left the index.
 */
#ifndef SHUNT_TABLE_H
#define SHUNT_TABLE_H

#include "include/table/sources.h"

enum {
	SHUNT_RETIRED_MS = 100, /* no CPU still uses an action or entry that was retired this long ago */
	SHUNT_FULL = -28, /* -ENOSPC */
	SHUNT_SLOT_ENTRY = 0xffffff,
	SHUNT_TRIES = 8, /* attempts at a compare-and-swap */
	/* With less than 1/4 of the table free, new tuples need 4 times the packets, and unused flows go earlier. */
	SHUNT_CROWDED = 4,
};

/* The loader sets the sizes of the maps below. */
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

/* Counters of expired flows, which `shunt conntrack` adds to conntrack's. Deleted with the connection. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct shunt_tuple);
	__type(value, struct shunt_expired);
} shunt_expired SEC(".maps");

/* The number of entries in use. */
static __always_inline __u32 *shunt_used(__u32 family)
{
	return &shunt_usage.entries[family == 6];
}

/* Whether the tables are empty, so that a look-up can be skipped. */
static __always_inline int shunt_empty(void)
{
	return !*(const volatile __u64 *)shunt_usage.entries;
}

static __always_inline __u64 shunt_ports_and_protocol(__u32 family, const union shunt_key *key)
{
	const __u32 *half = (const __u32 *)key->words;

	return family == 4 ? (__u64)half[5] << 32 | half[2] : (__u64)half[11] << 32 | half[8];
}

/*
 * The hash of a key's tuple, without port and tags. All flows of a tuple are in the same two buckets, so that a
 * conntrack event, which names neither port nor tags, can find them.
 *
 * Clients' ports have the highest bit set and are allocated sequentially. The last byte of such a port goes into
 * the lowest and highest bits of the hash only: 256 sequential flows get a bucket each, on one page, and different
 * digests.
 */
static __always_inline __u64 shunt_hash(__u32 family, const union shunt_key *key)
{
	const __u64 *word = key->words;
	__u64 seed = shunt_control.seed;
	__u64 rest = shunt_ports_and_protocol(family, key), hash;
	__u32 ports = rest;

	if (!(ports & 0x80)) {
		ports = ports >> 16 | ports << 16;
		/* Keep clang from rotating unconditionally and selecting afterwards. */
		asm volatile("" : "+r"(ports));
	}
	rest = (rest >> 32 << 32) | (ports & ~0xff00U);
	/* Add the seed before multiplying: collisions must depend on it. */
	hash = (word[0] ^ seed) * 0x9e3779b97f4a7c15ULL ^ (rest + seed) * 0xc2b2ae3d27d4eb4fULL;
	if (family == 6)
		hash ^= (word[1] ^ seed) * 0x165667b19e3779f9ULL ^ (word[2] ^ (hash >> 31)) * 0x27d4eb2f165667c5ULL ^
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
 * The hash of a whole key, with port and tags. Used for static flows: conntrack does not concern them, and one
 * tuple may have many.
 */
static __always_inline __u64 shunt_static_hash(__u32 family, const union shunt_key *key, __u64 hash)
{
	const __u32 *half = (const __u32 *)key->words;
	__u64 place = family == 4 ? (__u64)half[3] << 32 | half[4] : (__u64)half[9] << 32 | half[10];

	hash ^= place * 0xd6e8feb86659fd93ULL;
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/* Whether two keys have the same tuple. Port and tags may differ. */
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

/*
 * The slot of a bucket that a flow takes if it is free, and that a look-up tries first. Chosen by bits of the hash that
 * choose neither the bucket nor the digest, so that flows that share a bucket seldom share this slot, too.
 */
static __always_inline __u32 shunt_way_of(__u64 hash)
{
	return hash >> 30 & (SHUNT_WAYS - 1);
}

/* Reads a slot of a bucket, which other CPUs may write. */
static __always_inline __u32 shunt_slot(const struct shunt_bucket *bucket, __u32 way)
{
	return *(const volatile __u32 *)&bucket->slot[way];
}

static __always_inline __u32 shunt_slot_digest(__u32 slot)
{
	return slot >> 24;
}

/* The entry of a slot. For a free slot, the result is beyond any table. */
static __always_inline __u32 shunt_slot_entry(__u32 slot)
{
	return (slot & SHUNT_SLOT_ENTRY) - 1;
}

static __always_inline __u32 shunt_slot_of(__u64 hash, __u32 entry)
{
	return shunt_digest_of(hash) << 24 | (entry + 1);
}

/* The entry of a slot that has the digest of this hash. For any other slot, the result is beyond any table. */
static __always_inline __u32 shunt_slot_entry_for(__u64 hash, __u32 slot)
{
	return (slot ^ shunt_digest_of(hash) << 24) - 1;
}

/*
 * Loads the later cache lines of an entry together with the first. Out-of-order execution does not reach as far as
 * their use, and would wait for memory a second time.
 */
static __always_inline void shunt_prefetch(const void *entry, __u32 size)
{
	for (__u32 at = 64; at < size; at += 64)
		(void)*(const volatile __u64 *)(entry + at);
}

/* As shunt_words_at(), for a number in memory: clang need not keep it in a register, since the helper may change it. */
static __always_inline __u64 *shunt_words_of(__u32 family, const __u32 *entry)
{
	return family == 4 ? bpf_map_lookup_elem(&shunt_table4, entry) : bpf_map_lookup_elem(&shunt_table6, entry);
}

static __always_inline __u64 *shunt_words_at(__u32 family, __u32 entry)
{
	return shunt_words_of(family, &entry);
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
 * Index of the key word that holds the ifindex. The word is 0 in an entry that is free, or that has left the index and
 * still has a nonzero state.
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

	if (shunt_unlikely(!words))
		return 0;
	shunt_prefetch(words, family == 4 ? sizeof(struct shunt_entry4) : sizeof(struct shunt_entry6));
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

/* Finds the flow of a key. The family is a compile-time constant. */
static __always_inline struct shunt_flow *shunt_find(__u32 family, const union shunt_key *key, __u64 hash, __u32 *entry)
{
	struct shunt_flow *f = shunt_find_by(family, key, hash, entry);

	if (shunt_likely(f || !(shunt_control.flags & SHUNT_CONTROL_STATICS)))
		return f;
	return shunt_find_by(family, key, shunt_static_hash(family, key, hash), entry);
}

/*
 * The rest of a look-up whose first slot has no match. Returns the number of an entry, or -1.
 *
 * Not static: the verifier checks a global function once, for any arguments, but a static one again for each call and
 * each state in which it is called. A global function may get memory of one size only, so each family has its own.
 */
__noinline __s64 shunt_find_rest4(const struct shunt_key4 *key, __u64 hash)
{
	__u32 entry = 0;

	return key && shunt_find(4, (const union shunt_key *)key, hash, &entry) ? (__s64)entry : -1;
}

__noinline __s64 shunt_find_rest6(const struct shunt_key6 *key, __u64 hash)
{
	__u32 entry = 0;

	return key && shunt_find(6, (const union shunt_key *)key, hash, &entry) ? (__s64)entry : -1;
}

/*
 * As shunt_find(), for the hot path: looks at the slot in place that most flows are in, and calls a function for the
 * others.
 */
static __always_inline struct shunt_flow *shunt_find_soon(__u32 family, const union shunt_key *key, __u64 hash,
							  __u32 *entry)
{
	const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, 0));
	union shunt_key copy;
	struct shunt_flow *f;
	__s64 found;
	__u64 *words;
	__u32 slot;

	if (shunt_unlikely(!bucket))
		return 0;
	slot = shunt_slot(bucket, shunt_way_of(hash));
	*entry = shunt_slot_entry_for(hash, slot);
	f = shunt_match(family, key, *entry);
	if (shunt_likely(f))
		return f;
	/* A copy, so that the key itself stays in registers. */
	__builtin_memcpy(&copy, key, family == 4 ? sizeof(key->v4) : sizeof(key->v6));
	found = family == 4 ? shunt_find_rest4(&copy.v4, hash) : shunt_find_rest6(&copy.v6, hash);
	if (found < 0)
		return 0;
	*entry = found;
	words = shunt_words_at(family, *entry);
	return words && shunt_same_key(family, words, key) ? shunt_flow_at(family, words) : 0;
}

/* The new addresses of a flow in the table. */
static __always_inline __u8 *shunt_new_addrs(struct shunt_flow *f)
{
	return (__u8 *)(f + 1);
}

#endif
