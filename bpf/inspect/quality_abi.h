/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data shared between the programs of `shunt quality` and their loader. Fixed width, no holes. The build of
 * crates/shunt-inspect makes the Rust twin. Times are in units of 1024 ns.
 */
#ifndef SHUNT_INSPECT_QUALITY_ABI_H
#define SHUNT_INSPECT_QUALITY_ABI_H

#include <linux/types.h>

enum {
	QUALITY_PORTS = 1024,
	QUALITY_FLOWS = 8192, /* connections that are followed, each at both of its ports */
	QUALITY_OPENING = 4096, /* those that have not been answered yet */
	QUALITY_HOSTS = 512, /* a host on the LAN side and on the WAN side: two */
	QUALITY_HOLES = 8, /* of a direction of a connection at a time */
	QUALITY_TRANSITS = 1024, /* packets inside the router; a power of two */
	QUALITY_STEPS = 16, /* buckets for each doubling; a power of two */
	QUALITY_BUCKETS = 368, /* up to 34 s; longer times are in the last one */
	QUALITY_WAITS = 48828, /* 50 ms */
};

/* On which side of the router a port is. */
enum quality_side {
	QUALITY_LAN = 0,
	QUALITY_WAN = 1,
	QUALITY_SIDES = 2,
};

/* A host, as seen at the ports of a side. All zeros but `side`: those for which there was no room. */
struct quality_host {
	__u32 addr_be[4]; /* IPv4 in the first word, with zeros behind it */
	__u16 family; /* 4 or 6 */
	/* 1: the address is that of packets whose connection is not known; behind NAT, it is the router's */
	__u16 is_assumed;
	__u32 side;
};
_Static_assert(sizeof(struct quality_host) == 24, "quality_host is ABI");

/* Numbers of times, by bucket: quality_bucket() in bpf/inspect/quality.h. */
struct quality_times {
	__u32 count[QUALITY_BUCKETS];
};

/*
 * What lies beyond the ports of a side, for one host. `in` is from there to the router, `out` from the router to there.
 * Segments are those of TCP with data.
 */
struct quality_tally {
	struct quality_times prompt; /* round trips */
	struct quality_times delayed; /* round trips that may include a delayed acknowledgement */
	/* prompt round trips, less the shortest one of their connection and what their sender may have waited */
	struct quality_times excess;
	__u64 in_segments; /* arrived */
	__u64 in_lost; /* missing, and sent again later */
	__u64 in_reordered; /* missing for a moment */
	__u64 in_unclear; /* old ones; too many were missing at a time to tell which */
	__u64 out_segments; /* left */
	__u64 out_repeated; /* left, although they had left before */
	__u64 out_duplicate; /* the receiver says that it had them already */
	__u64 out_unclear;
};

/* Time inside the router, for packets that leave by a side. */
struct quality_router {
	struct quality_times transit;
};

/* What was not seen. */
struct quality_unseen {
	__u64 unread; /* packets whose headers are not in the linear part of their skb */
	__u64 hosts; /* counts that went to the host without an address */
};

#endif
