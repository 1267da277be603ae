/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The external engine: forwards packets between rings in memory, in batches. It uses the packet core and the flow table
 * of the kernel programs. Freestanding: no libc, no system call, no clock. Its owner provides the memory, the rings and
 * the time, and does what the engine cannot: hand packets to Linux, and wake up drivers.
 */
#ifndef SHUNT_EXTERNAL_ENGINE_H
#define SHUNT_EXTERNAL_ENGINE_H

#include "abi/shunt_abi.h"
#include "external/sched.h"

enum {
	SHUNT_BATCH = 64, /* packets that are on their way through the engine at the same time */
	/* Bytes that must be free before a frame, for tags. */
	SHUNT_FRAME_ROOM = 4 * SHUNT_TAGS_MAX,
};

/* A packet of a batch. */
struct shunt_frame {
	__u8 *data; /* the Ethernet header; moves if tags are added or removed */
	__u8 *data_end;
	__u32 ifindex; /* the ingress port */
	__u32 l3_bytes; /* result: size of the L3 packet */
	__u32 mark; /* results: of a forwarded packet, as Linux left them */
	__u32 priority;
	__u8 why; /* result: SHUNT_OK if the packet was rewritten, else why it was not, and is unchanged */
	__u8 out_slot; /* result: slot of the egress port */
	__u8 dscp; /* result: upper six bits of the traffic class */
};

/* The descriptor of a received frame, or of one to send: struct xdp_desc of Linux. */
struct shunt_desc {
	__u64 at; /* offset into the packet memory */
	__u32 bytes;
	__u32 options; /* of a frame for Linux: the slot of the ingress port, and the reason in the upper half */
};
_Static_assert(sizeof(struct shunt_desc) == 16, "shunt_desc is struct xdp_desc");

/* A ring with one producer and one consumer, as AF_XDP maps it. The indices run freely. */
struct shunt_ring {
	__u32 *producer;
	__u32 *consumer;
	void *entries; /* struct shunt_desc; for fill and done, __u64 offsets */
	__u32 mask; /* number of entries, a power of two, minus one */
};

/* The rings of a port. A port that the engine does not serve has an ifindex of 0. */
struct shunt_lane {
	struct shunt_ring rx;
	struct shunt_ring tx;
	struct shunt_ring fill; /* free frames for rx */
	struct shunt_ring done; /* frames that were sent */
	struct shunt_sched *sched; /* the scheduler of the port's egress, or 0 */
	struct shunt_policer *policer; /* the policer of the port's ingress, or 0 */
	__u32 ifindex;
};

/* Counters by ingress port. */
struct shunt_lane_counters {
	__u64 pkts; /* forwarded */
	__u64 bytes; /* forwarded, from the L3 header on */
	__u64 slow_pkts; /* passed to Linux */
	__u64 policed_pkts; /* dropped by the policer */
	__u64 tx_full_pkts; /* dropped: the egress ring or queue was full */
	__u64 up_full_pkts; /* dropped: the ring to Linux was full */
	__u64 queue_drops; /* by egress port: dropped by CoDel */
	__u64 reasons[SHUNT_REASONS_MAX]; /* of slow packets, by enum shunt_reason */
};

struct shunt_engine {
	__u8 *memory; /* the packets */
	__u64 memory_bytes;
	__u64 *free; /* offsets of free frames */
	__u32 free_count;
	__u32 free_max;
	__u64 frame_bytes; /* a power of two */
	struct shunt_ring up; /* frames for Linux */
	struct shunt_lane lanes[SHUNT_PORTS_MAX]; /* by slot */
	struct shunt_lane_counters counters[SHUNT_PORTS_MAX];
	__u64 bad_descs; /* descriptors outside the packet memory */
};

/* The memory of the flow tables. */
struct shunt_memory {
	struct shunt_bucket *index[2]; /* by family: IPv4, IPv6 */
	struct shunt_entry4 *entries4;
	struct shunt_entry6 *entries6;
	struct shunt_cold *cold[2];
	__u32 buckets;
	__u32 entries; /* per family */
};

/* The control block. There is one engine per process or core. */
struct shunt_control *shunt_engine_control(void);
/* Uses these tables from now on. */
void shunt_engine_tables(const struct shunt_memory *memory);
/* Inserts a flow that the table does not have. Returns 0, or -ENOSPC. */
int shunt_engine_insert(__u32 family, const void *key, const struct shunt_flow *flow, const __u8 *to, __u32 now);
/* Finds a flow, or returns 0. */
struct shunt_flow *shunt_engine_find(__u32 family, const void *key);
/* Rewrites the packets of known flows that may leave through the slots in `reachable`. At most SHUNT_BATCH frames. */
void shunt_engine_batch(struct shunt_frame *frames, __u32 count, __u64 reachable, __u64 jiffies);
/* One turn over all ports. Returns the number of packets that were received or sent: with 0, the engine may sleep. */
__u32 shunt_engine_poll(struct shunt_engine *e, __u64 jiffies, __u64 now_ns);

#endif
