/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Data that the external engine shares with the programs and the daemon. */
#ifndef SHUNT_ABI_EXTERNAL_H
#define SHUNT_ABI_EXTERNAL_H

#include <linux/types.h>
#include "abi/sizes.h"

/* What the external engine counts, by ingress port. */
struct shunt_external_port {
	__u64 pkts; /* forwarded */
	__u64 bytes; /* from the L3 header on */
	__u64 passed_pkts; /* given back to Linux, where the tc program counts them */
	__u64 full_pkts; /* dropped: no room, or the engine took too long */
	__u64 queue_pkts; /* dropped at the queue of their egress port */
	__u64 policed_pkts; /* dropped by the policer */
};
_Static_assert(sizeof(struct shunt_external_port) == 48, "shunt_external_port is ABI");

/* Shared by the external engine, the programs and the daemon. A single element. */
struct shunt_external {
	__u64 beat_ticks; /* the engine's last heartbeat: all 64 bits of jiffies */
	__u32 beat_max_ticks; /* from this age of the heartbeat on, XDP sends packets to tc instead of the engine */
	__u32 inject_next; /* the next frame to pass to Linux */
	__u32 copy_vlan; /* the engine copies frames with this outer VLAN ID from port to port; 0 for none */
	__u32 _own_line[11]; /* XDP reads the line above for each packet; what follows changes with each batch */
	struct shunt_external_port ports[SHUNT_EXTERNAL_PORTS_MAX]; /* by slot */
};
_Static_assert(sizeof(struct shunt_external) == 64 + 48 * 64, "shunt_external is ABI");

/* A frame on its way from the external engine to Linux. */
struct shunt_injected {
	__u32 bytes;
	__u32 _pad;
	__u8 frame[SHUNT_FRAME_MAX];
};
_Static_assert(sizeof(struct shunt_injected) == 8 + 1792, "shunt_injected is ABI");

/*
 * The metadata before a frame that XDP gives to the external engine: where its flow is, which is a hint that the engine
 * checks, and when the frame arrived.
 */
struct shunt_flow_id {
	__u32 entry;
	__u32 family; /* 4 or 6 */
	__u32 arrived_ticks;
};
_Static_assert(sizeof(struct shunt_flow_id) == 12, "shunt_flow_id is ABI");

#endif
