/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Look-ahead: XDP handles one packet at a time, so with many flows each packet waits for memory twice, for its bucket
 * and for its entry. At every eighth packet, the functions below read the next eight frames in the ring of the driver
 * and load their buckets, then their entries, so that these loads wait for memory together.
 *
 * All of it is a hint. What is loaded is not used; a frame that is something else, or a ring that is not as expected,
 * costs time and nothing else. The memory of the kernel is read through bpf_rdonly_cast(), which returns 0 for an
 * address that cannot be read.
 *
 * Known ring: that of veth.
 */
#ifndef SHUNT_AHEAD_H
#define SHUNT_AHEAD_H

#include "include/table/maps.h"
#include <bpf/bpf_core_read.h>

enum { SHUNT_AHEAD = 8 }; /* frames; a power of two, and about as many loads as a core keeps track of */

struct xdp_rxq_info___shunt {
	void *dev;
} __attribute__((preserve_access_index));

struct xdp_buff___shunt {
	struct xdp_rxq_info___shunt *rxq;
} __attribute__((preserve_access_index));

struct ptr_ring___shunt {
	int consumer_head;
	void **queue;
} __attribute__((preserve_access_index));

/* drivers/net/veth.c: the frames that wait for a NAPI poll. */
struct veth_rq___shunt {
	struct xdp_rxq_info___shunt xdp_rxq;
	struct ptr_ring___shunt xdp_ring;
} __attribute__((preserve_access_index));

struct xdp_frame___shunt {
	void *data;
} __attribute__((preserve_access_index));

/* A struct of every kernel that begins with a number. */
struct timespec64___shunt {
	__s64 tv_sec;
} __attribute__((preserve_access_index));

enum { VETH_XDP_FLAG = 1 }; /* in the lowest bit of an address in the ring: a struct xdp_frame, not an sk_buff */

/* Linux 6.2, commits fd264ca02094 and a35b9af4ec2c. */
void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
void *bpf_rdonly_cast(const void *at, __u32 btf_id) __ksym;

/* Reads eight bytes of the kernel's memory; 0 if they cannot be read. */
static __always_inline __u64 shunt_kernel_word(__u64 at)
{
	struct timespec64___shunt *word =
		bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct timespec64___shunt));

	return word->tv_sec;
}

#define shunt_offset(type, field) __builtin_preserve_field_info(((type *)0)->field, BPF_FIELD_BYTE_OFFSET)

/* The position of the next frames in the ring of a veth. */
struct shunt_ahead {
	__u64 queue;
	__u32 next;
};

/* Returns 0 unless the next frames are due to be looked at. */
static __always_inline int shunt_ahead_is_due(struct xdp_md *ctx, struct shunt_ahead *ahead)
{
	struct xdp_buff___shunt *xdp = bpf_cast_to_kern_ctx(ctx);
	__u64 ring = (__u64)xdp->rxq - shunt_offset(struct veth_rq___shunt, xdp_rxq) +
		     shunt_offset(struct veth_rq___shunt, xdp_ring);

	ahead->next = shunt_kernel_word(ring + shunt_offset(struct ptr_ring___shunt, consumer_head));
	if (ahead->next % SHUNT_AHEAD)
		return 0;
	ahead->queue = shunt_kernel_word(ring + shunt_offset(struct ptr_ring___shunt, queue));
	return 1;
}

/*
 * The address of the data of a frame in the ring; 0 if there is none. A ring has a multiple of SHUNT_AHEAD places, so
 * the frames do not wrap.
 */
static __always_inline __u64 shunt_frame_ahead(const struct shunt_ahead *ahead, __u32 number)
{
	__u64 at = shunt_kernel_word(ahead->queue + (__u64)(ahead->next + number) * sizeof(void *));

	if (!(at & VETH_XDP_FLAG))
		return 0;
	return shunt_kernel_word(at - VETH_XDP_FLAG + shunt_offset(struct xdp_frame___shunt, data));
}

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
	const struct shunt_ahead ahead = { .queue = queue, .next = next };
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
	struct shunt_ahead ahead;

	if (shunt_ahead_is_due(ctx, &ahead))
		shunt_load_ahead(ahead.queue, ahead.next);
}

#endif
