/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The external engine: forwards packets between rings in memory, in batches. It uses the packet core and the flow table
 * of the kernel programs. Freestanding: no libc, no system call, no clock. Its owner provides the memory, the rings and
 * the time, and does what the engine cannot: hand packets to Linux, and wake up drivers.
 */
#ifndef SHUNT_EXTERNAL_ENGINE_H
#define SHUNT_EXTERNAL_ENGINE_H

#include "core/encap.h"
#include "external/sched.h"

enum {
	SHUNT_BATCH = 64, /* packets that are on their way through the engine at the same time */
	/* Bytes that must be free before a frame: for tags, or for struct shunt_flow_id. */
	SHUNT_FRAME_ROOM = sizeof(struct shunt_flow_id),
	/* The first half are the ports by slot; the others are further queues of theirs. */
	SHUNT_QUEUE_PAIRS_MAX = 2 * SHUNT_EXTERNAL_PORTS_MAX,
};
_Static_assert(SHUNT_FRAME_ROOM >= (int)SHUNT_L2_GROWTH, "there is room for tags");

/* A packet of a batch. */
struct shunt_frame {
	__u8 *data; /* the Ethernet header; moves if tags are added or removed */
	__u8 *data_end;
	__u32 ifindex; /* the ingress port */
	__u32 l3_bytes; /* result: size of the L3 packet */
	__u32 mark; /* result: of a forwarded packet, as Linux left it */
	__u32 order; /* result: frames of one flow have the same */
	__u8 why; /* result: SHUNT_OK if the packet was rewritten, else why it was not, and is unchanged */
	__u8 out_slot; /* result: slot of the egress port */
	__u8 dscp; /* result: upper six bits of the traffic class */
	__u8 late; /* result: to be dropped, since the packet waited until its connection was gone */
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

/*
 * The rings of a queue of a port. The first queue of a port sends. A queue pair that is not in use has an ifindex of 0.
 */
struct shunt_queue_pair {
	struct shunt_ring rx;
	struct shunt_ring tx;
	struct shunt_ring fill; /* free frames for rx */
	struct shunt_ring done; /* frames that were sent */
	struct shunt_sched *sched; /* the scheduler of the port's egress, or 0 */
	struct shunt_policer *policer; /* the policer of the port's ingress, or 0 */
	__u32 ifindex;
	__u32 slot; /* of the port */
};

/* Counters by ingress port. */
struct shunt_ingress_counters {
	__u64 pkts; /* forwarded */
	__u64 bytes; /* forwarded, from the L3 header on */
	__u64 slow_pkts; /* passed to Linux */
	__u64 policed_pkts; /* dropped by the policer */
	__u64 tx_full_pkts; /* dropped: the egress ring or queue was full */
	__u64 up_full_pkts; /* dropped: the ring to Linux was full */
	__u64 late_pkts; /* dropped: the batch took too long, or the packet waited until its connection was gone */
	__u64 queue_pkts; /* dropped at the queue of the egress port: it was full, or CoDel shortened it */
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
	struct shunt_queue_pair pairs[SHUNT_QUEUE_PAIRS_MAX];
	__u32 pairs_end; /* no queue pair from here on is in use */
	__u32 batch_count;
	__u32 batch_slot; /* of the ingress port */
	__u32 copy_vlan; /* frames with this outer VLAN ID leave by the other port in copy_slots, unchanged; 0 for none */
	__u32 copy_slots[2];
	__u64 reachable; /* slots of the ports that packets may leave by */
	struct shunt_frame batch[SHUNT_BATCH]; /* received and rewritten; to be sent in this order */
	struct shunt_ingress_counters counters[SHUNT_EXTERNAL_PORTS_MAX];
	__u64 bad_descs; /* descriptors outside the packet memory */
};

/* The memory of the flow tables, the control block, and the groups of stations. */
struct shunt_memory {
	struct shunt_control *control;
	__u32 *groups; /* SHUNT_GROUPS */
	struct shunt_bucket *index[2]; /* by family: IPv4, IPv6 */
	struct shunt_entry4 *entries4;
	struct shunt_entry6 *entries6;
	struct shunt_cold *cold[2];
	__u32 buckets;
	__u32 entries; /* per family */
};

/* Uses these tables from now on. There is one engine per process or core. */
void shunt_engine_tables(const struct shunt_memory *memory);
/* Inserts a flow that the table does not have. Returns 0, or -ENOSPC. */
int shunt_engine_insert(__u32 family, const void *key, const struct shunt_flow *flow, const __u8 *to, __u32 now);
/* Finds a flow, or returns 0. */
struct shunt_flow *shunt_engine_find(__u32 family, const void *key);
/* Rewrites the packets of known flows that may leave through the slots in `reachable`. At most SHUNT_BATCH frames. */
void shunt_engine_batch(struct shunt_frame *frames, __u32 count, __u64 reachable, __u64 jiffies);
/*
 * The steps of a turn, for owners that look at the clock in between. An entry of the flow table is not reused for 100
 * ms (SHUNT_RETIRED_MS), so a batch that took longer from its receipt on must be discarded.
 *
 * Receives a batch of a queue pair, after the last one has been settled, and rewrites it. Returns the number of
 * packets.
 */
__u32 shunt_engine_receive(struct shunt_engine *e, __u32 pair, __u64 jiffies, __u64 now_ns);
/*
 * Hands the frames of the batch on. Returns how many remain: they follow frames of their flows that go to Linux, which
 * the owner must pass on before the next call.
 */
__u32 shunt_engine_settle(struct shunt_engine *e, __u64 now_ns);
/* Drops the batch. */
void shunt_engine_discard(struct shunt_engine *e);
/* Sends what the schedulers let go now. Returns the number of packets. */
__u32 shunt_engine_send(struct shunt_engine *e, __u64 now_ns);
/*
 * One turn over all queue pairs. Returns the number of packets that were received, sent or handed on: with 0, the
 * engine may sleep. The owner passes on the frames for Linux after each turn.
 */
__u32 shunt_engine_poll(struct shunt_engine *e, __u64 jiffies, __u64 now_ns);

#endif
