/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The next frames in the ring of a veth (drivers/net/veth.c), which wait for a NAPI poll. */
#ifndef SHUNT_RING_VETH_H
#define SHUNT_RING_VETH_H

#include "include/send/ring/words.h"

struct ptr_ring___shunt {
	int consumer_head;
	void **queue;
} __attribute__((preserve_access_index));

struct veth_rq___shunt {
	struct xdp_rxq_info___shunt xdp_rxq;
	struct ptr_ring___shunt xdp_ring;
} __attribute__((preserve_access_index));

struct xdp_frame___shunt {
	void *data;
} __attribute__((preserve_access_index));

enum { VETH_XDP_FLAG = 1 }; /* in the lowest bit of an address in the ring: a struct xdp_frame, not an sk_buff */

/* Whether the next frames are due to be looked at, and where: for shunt_ahead_at(). */
static __always_inline int shunt_ahead_is_due(struct xdp_md *ctx, __u64 *queue, __u32 *next)
{
	struct xdp_buff___shunt *xdp = bpf_cast_to_kern_ctx(ctx);
	__u64 ring = (__u64)xdp->rxq - shunt_offset(struct veth_rq___shunt, xdp_rxq) +
		     shunt_offset(struct veth_rq___shunt, xdp_ring);

	*next = shunt_kernel_field(struct ptr_ring___shunt, ring, consumer_head);
	if (*next % SHUNT_AHEAD)
		return 0;
	*queue = shunt_kernel_field(struct ptr_ring___shunt, ring, queue);
	return 1;
}

/* The next frames. */
struct shunt_ahead {
	__u64 places;
};

static __always_inline struct shunt_ahead shunt_ahead_at(__u64 queue, __u32 next)
{
	return (struct shunt_ahead){ .places = queue + (__u64)next * sizeof(void *) };
}

/*
 * The address of the data of a frame; 0 if there is none. A ring has a multiple of SHUNT_AHEAD places, so the frames do
 * not wrap.
 */
static __always_inline __u64 shunt_frame_ahead(const struct shunt_ahead *ahead, __u32 number)
{
	__u64 at = shunt_kernel_word(ahead->places + number * sizeof(void *));

	if (!(at & VETH_XDP_FLAG))
		return 0;
	return shunt_kernel_field(struct xdp_frame___shunt, at - VETH_XDP_FLAG, data);
}

#endif
