/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Look-ahead: XDP handles one packet at a time, so with many flows each packet waits for memory twice, for its bucket
 * and for its entry. At every eighth packet, the functions below read the next eight frames in the ring of the driver
 * and load their buckets, then their entries, so that these loads wait for memory together.
 *
 * All of it is a hint. What is loaded is not used; a frame that is something else, or a ring that is not as expected,
 * costs time and nothing else.
 */
#ifndef SHUNT_AHEAD_H
#define SHUNT_AHEAD_H

#include "include/table/maps.h"
#include SHUNT_RING

/*
 * The hash of a frame, as of a packet of its family, with at most one tag; the family in *family. A frame that is no IP
 * packet has a hash as well, and an entry that nobody needs.
 */
static __always_inline __u64 shunt_hash_ahead(__u64 frame, __u32 *family)
{
	__u64 l3 = frame + ETH_HLEN, proto = shunt_kernel_word(frame + 2 * ETH_ALEN);
	union shunt_key key = {};

	if (shunt_is_vlan(proto)) {
		l3 += sizeof(struct shunt_vlan);
		proto >>= 8 * sizeof(struct shunt_vlan);
	}
	if (shunt_family_of(proto) == 6) {
		*family = 6;
#pragma unroll
		for (__u32 i = 0; i < 4; i++)
			key.words[i] = shunt_kernel_word(l3 + __builtin_offsetof(struct ipv6hdr, saddr) + 8 * i);
		*(__u32 *)&key.v6.sport_be = shunt_kernel_word(l3 + sizeof(struct ipv6hdr));
		key.v6.l4_proto = (__u8)shunt_kernel_word(l3 + __builtin_offsetof(struct ipv6hdr, nexthdr));
		return shunt_hash(6, &key);
	}
	*family = 4;
	key.words[0] = shunt_kernel_word(l3 + __builtin_offsetof(struct iphdr, saddr));
	*(__u32 *)&key.v4.sport_be = shunt_kernel_word(l3 + sizeof(struct iphdr));
	key.v4.l4_proto = (__u8)shunt_kernel_word(l3 + __builtin_offsetof(struct iphdr, protocol));
	return shunt_hash(4, &key);
}

/* Loads memory for its cache line. */
static __always_inline void shunt_touch(const void *at)
{
	(void)*(const volatile __u64 *)at;
}

static __always_inline void shunt_touch_bucket(__u32 family, __u64 hash)
{
	const void *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, 0));

	if (bucket)
		shunt_touch(bucket);
}

static __always_inline void shunt_touch_entry(__u32 family, __u64 hash)
{
	const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, 0));
	const char *entry;

	if (!bucket)
		return;
	entry = (const char *)shunt_words_at(family,
					     shunt_slot_entry_for(hash, shunt_slot(bucket, shunt_way_of(hash))));
	if (!entry)
		return;
	shunt_touch(entry);
	shunt_touch(entry + 64);
	if (family == 6)
		shunt_touch(entry + 128);
}

/*
 * Keeps clang from making one look-up of those in the maps of both families: the verifier inlines a look-up only if it
 * is always in the same map.
 */
#define shunt_apart() asm volatile("" ::: "memory")

/* Loads what the next packets need. Three loops, so that the loads of each are close together. */
static __noinline int shunt_load_ahead(__u64 queue, __u32 next)
{
	const struct shunt_ahead ahead = shunt_ahead_at(queue, next);
	__u64 hash[SHUNT_AHEAD];
	__u32 family[SHUNT_AHEAD], count = 0;

	for (__u32 i = 0; i < SHUNT_AHEAD; i++) {
		__u64 frame = shunt_frame_ahead(&ahead, i);

		if (!frame)
			break;
		hash[i] = shunt_hash_ahead(frame, &family[i]);
		count = i + 1;
	}
	for (__u32 i = 0; i < SHUNT_AHEAD && i < count; i++) {
		if (family[i] == 4) {
			shunt_touch_bucket(4, hash[i]);
			shunt_apart();
		} else {
			shunt_touch_bucket(6, hash[i]);
		}
	}
	for (__u32 i = 0; i < SHUNT_AHEAD && i < count; i++) {
		if (family[i] == 4) {
			shunt_touch_entry(4, hash[i]);
			shunt_apart();
		} else {
			shunt_touch_entry(6, hash[i]);
		}
	}
	return 0;
}

static __always_inline void shunt_look_ahead(struct xdp_md *ctx)
{
	__u64 queue;
	__u32 next;

	if (shunt_ahead_is_due(ctx, &queue, &next))
		shunt_load_ahead(queue, next);
}

#endif
