/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flows of a connection's reverse direction. It can have several: with asymmetric routes, a direction arrives at a
 * port that the other does not leave by, and a host that moves leaves entries of its old port behind. The hash of a
 * flow is that of its tuple, so two buckets hold them all.
 */
#ifndef SHUNT_REVERSE_H
#define SHUNT_REVERSE_H

#include "include/trace.h"
#include "include/table/maps.h"

enum { SHUNT_NO_REVERSE = -1 };

/* The entry in a way of a bucket, if it has this tuple, on any port and with any tags; SHUNT_NO_REVERSE otherwise. */
static __always_inline __s32 shunt_tuple_entry(__u32 family, const struct shunt_bucket *bucket, __u32 way,
					       const union shunt_key *key, __u64 hash)
{
	__u32 slot = shunt_slot(bucket, way);
	const union shunt_key *have;

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

static __always_inline __s32 shunt_find_latest(__u32 family, const union shunt_key *key)
{
	__u64 hash = shunt_hash(family, key);
	__s32 latest = SHUNT_NO_REVERSE;
	__u32 seen = 0;

	for (__u32 at = 0; at < 2 * SHUNT_WAYS; at++) {
		const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, at >= SHUNT_WAYS));
		__s32 entry = bucket ? shunt_tuple_entry(family, bucket, at % SHUNT_WAYS, key, hash) : SHUNT_NO_REVERSE;
		const struct shunt_flow *f = shunt_flow_of_entry(family, entry);

		if (!f || f->flags & SHUNT_FLOW_STATIC ||
		    (latest != SHUNT_NO_REVERSE && shunt_before(f->seen_ticks, seen)))
			continue;
		latest = entry;
		seen = f->seen_ticks;
	}
	return latest;
}

/* The entry with this tuple that was used last, on any port; SHUNT_NO_REVERSE if there is none. */
static __noinline __attribute__((unused)) __s32 shunt_find_reverse_entry(__u32 family, const union shunt_key *key)
{
	if (!key)
		return SHUNT_NO_REVERSE;
	return family == 4 ? shunt_find_latest(4, key) : shunt_find_latest(6, key);
}

static __always_inline int shunt_retire_all(__u32 family, const union shunt_key *key, __u32 now, enum shunt_reason why)
{
	__u64 hash = shunt_hash(family, key);
	int retired = 0;

	for (__u32 at = 0; at < 2 * SHUNT_WAYS; at++) {
		const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, at >= SHUNT_WAYS));
		__s32 entry = bucket ? shunt_tuple_entry(family, bucket, at % SHUNT_WAYS, key, hash) : SHUNT_NO_REVERSE;
		struct shunt_flow *f = shunt_flow_of_entry(family, entry);

		if (!f || f->flags & SHUNT_FLOW_STATIC || f->epoch == SHUNT_EPOCH_RETIRED)
			continue;
		shunt_retire(f, now, why);
		retired++;
	}
	return retired;
}

/* Retires all flows with this tuple, on any port. Returns their number. */
static __noinline __attribute__((unused)) int shunt_retire_reverse(__u32 family, const union shunt_key *key, __u32 now,
								   enum shunt_reason why)
{
	int retired;

	if (!key)
		return 0;
	retired = family == 4 ? shunt_retire_all(4, key, now, why) : shunt_retire_all(6, key, now, why);
	if (retired)
		shunt_trace(SHUNT_TRACE_RETIRE, why, family, key);
	return retired;
}

#endif
