/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The next frames in the used ring of a virtio_net device (drivers/net/virtio_net.c, drivers/virtio/virtio_ring.c). The
 * driver takes a buffer out of the ring before it calls the program, so that `last_used_idx` is that of the next one.
 * Only split rings whose buffers are used in any order: the two other kinds have no number for each buffer there.
 */
#ifndef SHUNT_RING_VIRTIO_H
#define SHUNT_RING_VIRTIO_H

#include "include/send/ring/words.h"

struct receive_queue___shunt {
	void *vq;
	struct xdp_rxq_info___shunt xdp_rxq;
} __attribute__((preserve_access_index));

struct virtnet_info___shunt {
	__u8 hdr_len;
} __attribute__((preserve_access_index));

struct virtio_device___shunt {
	void *priv; /* struct virtnet_info */
} __attribute__((preserve_access_index));

struct virtqueue___shunt {
	void *vdev;
} __attribute__((preserve_access_index));

struct vring___shunt {
	unsigned int num;
	void *used;
} __attribute__((preserve_access_index));

struct vring_desc_state_split___shunt {
	void *data;
} __attribute__((preserve_access_index));

struct vring_virtqueue_split___shunt {
	struct vring___shunt vring;
	void *desc_state; /* struct vring_desc_state_split, by the number of a buffer */
} __attribute__((preserve_access_index));

struct vring_virtqueue___shunt {
	struct virtqueue___shunt vq;
	__u16 last_used_idx;
	struct vring_virtqueue_split___shunt split;
} __attribute__((preserve_access_index));

/* Which kind of ring it is: before Linux 7.0, and from then on. 0 is a split ring, used in any order, in both. */
enum vq_layout { VQ_LAYOUT_SPLIT };
struct vring_virtqueue___before {
	_Bool packed_ring;
} __attribute__((preserve_access_index));
struct vring_virtqueue___since {
	enum vq_layout layout;
} __attribute__((preserve_access_index));

/*
 * Virtio 1.3, section 2.7.8: the used ring begins with two numbers of 16 bits, flags and an index. Elements of two
 * numbers of 32 bits follow: that of a buffer, and its length.
 */
enum { USED_INDEX_SHIFT = 16, USED_ELEMENTS = 4, USED_ELEMENT = 8 };

static __always_inline int shunt_is_plain_ring(__u64 queue)
{
	if (bpf_core_field_exists(struct vring_virtqueue___before, packed_ring))
		return !(__u8)shunt_kernel_field(struct vring_virtqueue___before, queue, packed_ring);
	return (__u32)shunt_kernel_field(struct vring_virtqueue___since, queue, layout) == VQ_LAYOUT_SPLIT;
}

/* Whether the next frames are due to be looked at, and where: for shunt_ahead_at(). */
static __always_inline int shunt_ahead_is_due(struct xdp_md *ctx, __u64 *queue, __u32 *next)
{
	struct xdp_buff___shunt *xdp = bpf_cast_to_kern_ctx(ctx);
	__u64 rq = (__u64)xdp->rxq - shunt_offset(struct receive_queue___shunt, xdp_rxq);

	*queue = shunt_kernel_field(struct receive_queue___shunt, rq, vq);
	*next = (__u16)shunt_kernel_field(struct vring_virtqueue___shunt, *queue, last_used_idx);
	return *next % SHUNT_AHEAD == 0 && shunt_is_plain_ring(*queue);
}

/* The next frames. */
struct shunt_ahead {
	__u64 elements;
	__u64 states;
	__u32 filled; /* number of frames */
	__u32 header; /* bytes before each frame */
};

static __always_inline struct shunt_ahead shunt_ahead_at(__u64 queue, __u32 next)
{
	__u64 used = shunt_kernel_field(struct vring_virtqueue___shunt, queue, split.vring.used);
	__u32 places = shunt_kernel_field(struct vring_virtqueue___shunt, queue, split.vring.num);
	__u64 device = shunt_kernel_field(struct vring_virtqueue___shunt, queue, vq.vdev);
	__u64 info = shunt_kernel_field(struct virtio_device___shunt, device, priv);

	return (struct shunt_ahead){
		.elements = used + USED_ELEMENTS + (next & (places - 1)) * USED_ELEMENT,
		.states = shunt_kernel_field(struct vring_virtqueue___shunt, queue, split.desc_state),
		.filled = (__u16)((shunt_kernel_word(used) >> USED_INDEX_SHIFT) - next),
		.header = (__u8)shunt_kernel_field(struct virtnet_info___shunt, info, hdr_len),
	};
}

/*
 * The address of the data of a frame; 0 if there is none. A ring has a power of two of places, so that the frames wrap
 * only in one with fewer than SHUNT_AHEAD.
 */
static __always_inline __u64 shunt_frame_ahead(const struct shunt_ahead *ahead, __u32 number)
{
	__u64 buffer, data;

	if (number >= ahead->filled)
		return 0;
	buffer = (__u32)shunt_kernel_word(ahead->elements + number * USED_ELEMENT);
	data = shunt_kernel_field(struct vring_desc_state_split___shunt,
				  ahead->states + buffer * bpf_core_type_size(struct vring_desc_state_split___shunt),
				  data);
	return data ? data + ahead->header : 0;
}

#endif
