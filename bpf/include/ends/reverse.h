/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flows of a connection's reverse direction. It can have several: with asymmetric routes, a direction arrives at a
 * port that the other does not leave by, and a host that moves leaves entries of its old port behind. The hash of a
 * flow is that of its tuple, so two buckets hold them all.
 */
#ifndef SHUNT_REVERSE_H
#define SHUNT_REVERSE_H

#include "include/trace.h"
#include "include/table/change.h"
#include "include/table/maps.h"

enum { SHUNT_NO_REVERSE = -1 };

/*
 * The entry in slot `at`, counted through both buckets of the hash (0 to 2 * SHUNT_WAYS - 1), if it has this tuple, on
 * any port and with any tags; SHUNT_NO_REVERSE otherwise.
 */
static __always_inline __s32 shunt_tuple_entry(__u32 family, const union shunt_key *key, __u64 hash, __u32 at)
{
	const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, at >= SHUNT_WAYS));
	const union shunt_key *have;
	__u32 slot;

	if (!bucket)
		return SHUNT_NO_REVERSE;
	slot = shunt_slot(bucket, shunt_bound(at, SHUNT_WAYS - 1));
	if (shunt_slot_digest(slot) != shunt_digest_of(hash))
		return SHUNT_NO_REVERSE;
	have = (const union shunt_key *)shunt_words_at(family, shunt_slot_entry(slot));
	return have && shunt_same_tuple(family, have, key) ? (__s32)shunt_slot_entry(slot) : SHUNT_NO_REVERSE;
}

static __always_inline struct shunt_flow *shunt_flow_of_entry(__u32 family, __s32 entry)
{
	__u64 *words = entry == SHUNT_NO_REVERSE ? 0 : shunt_words_at(family, entry);

	return words ? shunt_flow_at(family, words) : 0;
}

/* Global functions, which the verifier checks once each, and not in each iteration of the loops below. */
__noinline __s32 shunt_tuple_entry4(const struct shunt_key4 *key, __u64 hash, __u32 at)
{
	return key ? shunt_tuple_entry(4, (const union shunt_key *)key, hash, at) : SHUNT_NO_REVERSE;
}

__noinline __s32 shunt_tuple_entry6(const struct shunt_key6 *key, __u64 hash, __u32 at)
{
	return key ? shunt_tuple_entry(6, (const union shunt_key *)key, hash, at) : SHUNT_NO_REVERSE;
}

static __always_inline __s32 shunt_find_latest(__u32 family, const union shunt_key *key)
{
	__u64 hash = shunt_hash(family, key);
	__s32 latest = SHUNT_NO_REVERSE;
	__u32 seen = 0;

	for (__u32 at = 0; at < 2 * SHUNT_WAYS; at++) {
		__s32 entry =
			family == 4 ? shunt_tuple_entry4(&key->v4, hash, at) : shunt_tuple_entry6(&key->v6, hash, at);
		const struct shunt_flow *f = shunt_flow_of_entry(family, entry);

		if (!f || f->flags & SHUNT_FLOW_STATIC ||
		    (latest != SHUNT_NO_REVERSE && shunt_before(f->seen_ticks, seen)))
			continue;
		latest = entry;
		seen = f->seen_ticks;
	}
	return latest;
}

__noinline __s32 shunt_find_latest4(const struct shunt_key4 *key)
{
	return key ? shunt_find_latest(4, (const union shunt_key *)key) : SHUNT_NO_REVERSE;
}

__noinline __s32 shunt_find_latest6(const struct shunt_key6 *key)
{
	return key ? shunt_find_latest(6, (const union shunt_key *)key) : SHUNT_NO_REVERSE;
}

/* The entry with this tuple that was used last, on any port; SHUNT_NO_REVERSE if there is none. */
static __always_inline __s32 shunt_find_reverse_entry(__u32 family, const union shunt_key *key)
{
	return family == 4 ? shunt_find_latest4(&key->v4) : shunt_find_latest6(&key->v6);
}

/* Retires the flow of an entry. Returns the number of flows that were not retired before. */
static __always_inline int shunt_retire_entry(__u32 family, __s32 entry, __u32 now, enum shunt_reason why)
{
	struct shunt_flow *f = shunt_flow_of_entry(family, entry);

	if (!f || f->flags & SHUNT_FLOW_STATIC || f->epoch == SHUNT_EPOCH_RETIRED)
		return 0;
	shunt_retire(f, now, why);
	return 1;
}

/* A global function: the verifier takes its result as unknown, so adding results up does not multiply states. */
__noinline int shunt_retire_any(__u32 family, __s32 entry, __u32 now, __u32 why)
{
	return family == 4 ? shunt_retire_entry(4, entry, now, why) : shunt_retire_entry(6, entry, now, why);
}

static __always_inline int shunt_retire_all(__u32 family, const union shunt_key *key, __u32 now, enum shunt_reason why)
{
	__u64 hash = shunt_hash(family, key);
	int retired = 0;

	for (__u32 at = 0; at < 2 * SHUNT_WAYS; at++) {
		__s32 entry =
			family == 4 ? shunt_tuple_entry4(&key->v4, hash, at) : shunt_tuple_entry6(&key->v6, hash, at);

		if (entry != SHUNT_NO_REVERSE)
			retired += shunt_retire_any(family, entry, now, why);
	}
	if (retired)
		shunt_trace(SHUNT_TRACE_RETIRE, why, family, key);
	return retired;
}

__noinline int shunt_retire_all4(const struct shunt_key4 *key, __u32 now, __u32 why)
{
	return key ? shunt_retire_all(4, (const union shunt_key *)key, now, why) : 0;
}

__noinline int shunt_retire_all6(const struct shunt_key6 *key, __u32 now, __u32 why)
{
	return key ? shunt_retire_all(6, (const union shunt_key *)key, now, why) : 0;
}

/* Retires all flows with this tuple, on any port. Returns their number. */
static __always_inline int shunt_retire_reverse(__u32 family, const union shunt_key *key, __u32 now,
						enum shunt_reason why)
{
	return family == 4 ? shunt_retire_all4(&key->v4, now, why) : shunt_retire_all6(&key->v6, now, why);
}

#endif
