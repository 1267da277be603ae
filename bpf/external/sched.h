/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Egress scheduler of the external engine: a shaper, strict priorities, and deficit round robin (DRR) among classes of
 * one priority. Each class has a queue with a limit in bytes and CoDel (RFC 8289). Freestanding: the caller provides
 * the memory and the time.
 */
#ifndef SHUNT_EXTERNAL_SCHED_H
#define SHUNT_EXTERNAL_SCHED_H

#include <linux/types.h>

enum {
	SHUNT_CLASSES = 16,
	SHUNT_DSCPS = 64,
	SHUNT_MARK_RULES = 16,
	SHUNT_QUANTUM_MIN = 256,
	SHUNT_QUANTUM_MAX = 1 << 24,
};

#define SHUNT_NO_ITEM 0xffffffffU

/* A token bucket. A rate of 0 lets everything pass. */
struct shunt_bucket_meter {
	__u64 bytes_per_s;
	__u64 burst_ns; /* how long the rate takes for the burst */
	__u64 due_ns; /* when all that was sent would have been sent at the rate */
	__u64 rest; /* of the division that gave due_ns */
};

struct shunt_policer {
	struct shunt_bucket_meter meter;
	__u64 passed_pkts;
	__u64 dropped_pkts;
};

struct shunt_class_config {
	__u32 priority; /* 0 is served first */
	__u32 quantum; /* bytes per round of DRR: the weight */
	__u32 limit_bytes;
	__u32 target_us; /* CoDel: acceptable delay; 0 turns CoDel off */
	__u32 interval_us; /* CoDel: how long the delay may be above the target */
};

struct shunt_mark_rule {
	__u32 mark;
	__u32 mask; /* 0 ends the rules */
	__u32 class_id;
};

struct shunt_sched_config {
	__u64 bytes_per_s; /* 0 does not shape */
	__u32 burst_bytes;
	__s32 overhead_bytes; /* added to the size of each packet, for framing that the port does not see */
	__u32 classes;
	__u32 default_class;
	struct shunt_class_config class_config[SHUNT_CLASSES];
	struct shunt_mark_rule mark_rules[SHUNT_MARK_RULES]; /* the first rule that matches decides */
	__u8 dscp_class[SHUNT_DSCPS]; /* used if no rule matches; class number plus one, 0 for the default class */
};

struct shunt_queued {
	__u64 handle; /* the caller's */
	__u64 since_ns;
	__u32 bytes;
	__u32 next; /* index of the next packet in the queue, or of the next free item */
};

/* Counters and gauges of a class. Bytes are those of frames, without overhead. */
struct shunt_class_counters {
	__u64 sent_pkts;
	__u64 sent_bytes;
	__u64 dropped_full; /* the queue was at its limit, or had its share of the items */
	__u64 dropped_codel;
	__u64 delay_sum_ns; /* of packets that were sent */
	__u64 delay_max_ns;
	__u64 backlog_bytes;
	__u64 backlog_pkts;
};

struct shunt_class {
	struct shunt_class_counters counters;
	__u64 above_since_ns; /* CoDel: when the delay will have been above the target for an interval; 0 if below */
	__u64 drop_next_ns;
	__u32 drops; /* CoDel: since dropping began */
	__u32 drops_before; /* CoDel: when dropping began last */
	__u32 dropping;
	__u32 head;
	__u32 tail;
	__s32 deficit;
};

struct shunt_sched {
	struct shunt_sched_config config;
	struct shunt_bucket_meter meter;
	struct shunt_class classes[SHUNT_CLASSES];
	__u32 turn[SHUNT_CLASSES]; /* by priority: the class whose turn it is */
	struct shunt_queued *items;
	__u32 items_max;
	__u32 free;
	__u32 largest_bytes; /* of the packets so far: CoDel drops nothing from a class that holds no more */
	__u32 own_items; /* of each class; the others are for whoever comes first */
};

enum shunt_sched_verdict {
	SHUNT_SCHED_EMPTY = 0, /* nothing is queued */
	SHUNT_SCHED_WAIT = 1, /* the shaper lets nothing go before shunt_sched_wake_ns() */
	SHUNT_SCHED_SENT = 2, /* the item is to be sent now */
	SHUNT_SCHED_DROPPED = 3, /* CoDel dropped the item; call again */
};

/* Sets a rate and a burst. What was sent before still counts. */
void shunt_meter_set(struct shunt_bucket_meter *m, __u64 bytes_per_s, __u32 burst_bytes);
/* Returns 1 if a packet conforms. If not, counts it as dropped, and returns 0. */
int shunt_police(struct shunt_policer *policer, __u32 bytes, __u64 now_ns);
/*
 * Prepares a scheduler without packets. `items` is room for packets of all classes together. Half of it belongs to the
 * classes in equal parts, so that none can take the room of another; the other half is for whoever comes first.
 */
void shunt_sched_init(struct shunt_sched *s, const struct shunt_sched_config *config, struct shunt_queued *items,
		      __u32 items_max);
/*
 * Changes the configuration. Packets stay in their queues; those of classes that are gone move to the default class.
 * Returns 0, or -1 if the configuration is invalid.
 */
int shunt_sched_configure(struct shunt_sched *s, const struct shunt_sched_config *config);
/* Queues a packet by its DSCP and mark. Returns 0 if there is no room, and counts the packet as dropped. */
int shunt_sched_enqueue(struct shunt_sched *s, __u64 handle, __u32 bytes, __u8 dscp, __u32 mark, __u64 now_ns);
/* Takes the next packet. */
enum shunt_sched_verdict shunt_sched_dequeue(struct shunt_sched *s, __u64 now_ns, struct shunt_queued *item);
/* When the shaper lets the next packet go. */
__u64 shunt_sched_wake_ns(const struct shunt_sched *s);
/* The class of a packet. */
__u32 shunt_sched_class(const struct shunt_sched_config *config, __u8 dscp, __u32 mark);

#endif
