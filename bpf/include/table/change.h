/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Changes of the flow tables: entries are allocated, written, published, retired, hidden and freed. */
#ifndef SHUNT_CHANGE_H
#define SHUNT_CHANGE_H

#include "include/table/table.h"

/*
 * Freed entries form a stack, so that entries in use stay close together. BPF_MAP_TYPE_STACK cannot be used by
 * sleepable programs on Linux 6.1. The change count beside the head protects against ABA.
 *
 * Functions marked __noinline here are verified once, and not at each call site.
 */
__noinline int shunt_push_free(__u32 family, __u32 entry)
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

/* Returns the number of a freed entry, or -1. */
__noinline int shunt_pop_free(__u32 family)
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

/* The number of free entries. */
static __always_inline __u32 shunt_free_entries(__u32 family)
{
	__u32 used = *shunt_used(family);

	return used < shunt_control.max_flows ? shunt_control.max_flows - used : 0;
}

/* Allocates an entry that is not in the index. */
static __always_inline int shunt_alloc(__u32 family, __u32 *entry)
{
	__u64 *fresh = &shunt_usage.fresh[family == 6];
	int free = shunt_pop_free(family);

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

/* Frees an entry that no CPU uses any more. If that fails, the next sweep tries again. */
static __always_inline void shunt_free(__u32 family, __u32 entry, __u64 *words)
{
	struct shunt_flow *f = shunt_flow_at(family, words);

	shunt_count_source(family, words, f, shunt_new_addrs(f), -1);
	f->state = 0;
	__sync_lock_test_and_set(&words[shunt_live_word(family)], 0);
	if (shunt_push_free(family, entry)) {
		shunt_count_source(family, words, f, shunt_new_addrs(f), 1);
		f->state = SHUNT_FLOW_PENDING;
	} else {
		__sync_fetch_and_add(shunt_used(family), -1);
	}
}

/*
 * Writes a flow into an entry that is not in the index, or whose action was retired long enough ago. A reader finds the
 * flow only after all of it has been written.
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
	/* While it is written, the entry is not static, of no valid epoch, and free to the sweep. */
	f->epoch = SHUNT_EPOCH_RETIRED;
	f->flags = 0;
	f->state = 0;
	*entry = *f;
	__builtin_memcpy(entry + 1, to, family == 4 ? 8 : 32);
	cold->remote_pkts = 0;
	cold->remote_bytes = 0;
	cold->learned_ticks = now;
	cold->blind_ticks = 0;
	cold->silent_ticks = 0;
#pragma unroll
	for (__u32 i = 0; i < shunt_key_words(family); i++)
		if (i != live)
			words[i] = key->words[i];
	entry->flags = flags;
	/* Exchanges are full barriers: a reader that sees the epoch or the key sees all earlier stores. */
	__sync_lock_test_and_set(&entry->epoch, epoch);
	__sync_lock_test_and_set(&words[live], key->words[live]);
	entry->state = state;
	f->epoch = epoch;
	f->flags = flags;
	f->state = state;
	return 0;
}

/* Writes a flow over that of an entry in the index. */
static __always_inline int shunt_overwrite(__u32 family, __u32 number, const union shunt_key *key,
					   struct shunt_flow *old, struct shunt_flow *f, const __u8 *to, __u32 now)
{
	int err;

	shunt_count_source(family, key, old, shunt_new_addrs(old), -1);
	err = shunt_write(family, number, key, f, to, now);
	shunt_count_source(family, key, old, shunt_new_addrs(old), 1);
	return err;
}

static __always_inline __u32 shunt_taken_slots(const struct shunt_bucket *bucket)
{
	__u32 slots = 0;

	/* Without branches: the verifier would follow each combination of taken slots. */
#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		__u32 slot = bucket->slot[way], minus = -slot;

		shunt_keep(minus);
		slots += (slot | minus) >> 31;
	}
	return slots;
}

/* Replaces `from` by `to` in one slot of a bucket. Returns 0 if none has `from`. */
static __always_inline int shunt_exchange_one(struct shunt_bucket *bucket, __u32 way, __u32 from, __u32 to)
{
	return shunt_slot(bucket, way) == from && __sync_val_compare_and_swap(&bucket->slot[way], from, to) == from;
}

/* The same in any slot. */
static __always_inline int shunt_exchange(struct shunt_bucket *bucket, __u32 from, __u32 to)
{
#pragma unroll
	for (__u32 way = 0; way < SHUNT_WAYS; way++)
		if (shunt_exchange_one(bucket, way, from, to))
			return 1;
	return 0;
}

/* Puts a slot into a bucket. Returns 0 if the bucket is full. */
static __always_inline int shunt_place(struct shunt_bucket *bucket, __u64 hash, __u32 slot)
{
	return shunt_exchange_one(bucket, shunt_way_of(hash), 0, slot) || shunt_exchange(bucket, 0, slot);
}

/*
 * Publishes an entry in the index: in the first bucket while half of it is free, so that neighbours stay together,
 * else in the emptier bucket, so that nearly all slots can be filled.
 */
__noinline int shunt_publish(__u32 family, __u64 hash, __u32 entry)
{
	struct shunt_bucket *first = shunt_bucket_at(family, shunt_bucket_of(hash, 0));
	struct shunt_bucket *second = shunt_bucket_at(family, shunt_bucket_of(hash, 1));
	__u32 slot = shunt_slot_of(hash, entry), taken;

	if (!first || !second)
		return SHUNT_FULL;
	taken = shunt_taken_slots(first);
	if (taken >= SHUNT_WAYS / 2 && shunt_taken_slots(second) < taken && shunt_place(second, hash, slot))
		return 0;
	return shunt_place(first, hash, slot) || shunt_place(second, hash, slot) ? 0 : SHUNT_FULL;
}

/* Removes an entry from the index. */
__noinline int shunt_hide(__u32 family, __u64 hash, __u32 entry)
{
	struct shunt_bucket *first = shunt_bucket_at(family, shunt_bucket_of(hash, 0));
	struct shunt_bucket *second = shunt_bucket_at(family, shunt_bucket_of(hash, 1));
	__u32 slot = shunt_slot_of(hash, entry);

	return first && second && (shunt_exchange(first, slot, 0) || shunt_exchange(second, slot, 0));
}

/*
 * Removes an entry from the index; the sweep frees it when no CPU can be using it any more. If several CPUs do so
 * at the same time, one gets 1 and the others 0.
 */
static __always_inline int shunt_unpublish(__u32 family, __u32 entry, __u32 now)
{
	__u64 *words = shunt_words_at(family, entry);
	const union shunt_key *key = (const union shunt_key *)words;
	struct shunt_flow *f;
	__u64 hash;

	if (!words)
		return 0;
	f = shunt_flow_at(family, words);
	hash = shunt_hash(family, key);
	if (f->flags & SHUNT_FLOW_STATIC)
		hash = shunt_static_hash(family, key, hash);
	if (!shunt_hide(family, hash, entry))
		return 0;
	f->retired_ticks = now;
	__sync_lock_test_and_set(&words[shunt_live_word(family)], 0);
	return 1;
}

/* Inserts a flow. The caller handles an existing flow with the same key. */
static __always_inline int shunt_insert(__u32 family, const union shunt_key *key, __u64 hash, struct shunt_flow *f,
					const __u8 *to, __u32 now, __u32 *entry)
{
	__u64 *words;

	if (shunt_alloc(family, entry))
		return SHUNT_FULL;
	if (shunt_write(family, *entry, key, f, to, now))
		return SHUNT_FULL;
	shunt_count_source(family, key, f, to, 1);
	if (!shunt_publish(family, hash, *entry))
		return 0;
	words = shunt_words_at(family, *entry);
	if (words)
		shunt_free(family, *entry, words);
	return SHUNT_FULL;
}

/* Retires an action: no packet uses it from now on, and nothing overwrites it for SHUNT_RETIRED_MS. */
static __always_inline void shunt_retire(struct shunt_flow *f, __u32 now, enum shunt_reason why)
{
	f->retired_ticks = now;
	f->retired_why = why;
	/* A full barrier: a reader that sees the action retired sees when. */
	__sync_lock_test_and_set(&f->epoch, SHUNT_EPOCH_RETIRED);
}

#endif
