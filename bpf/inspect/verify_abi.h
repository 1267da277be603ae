/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data shared between the programs of `shunt verify` and their loader. Fixed width, no holes. The build of
 * crates/shunt-inspect makes the Rust twin. Times are CLOCK_MONOTONIC.
 */
#ifndef SHUNT_INSPECT_VERIFY_ABI_H
#define SHUNT_INSPECT_VERIFY_ABI_H

#include <linux/types.h>

enum {
	VERIFY_FLOWS_MAX = 64,
	/* Bytes of a frame that are copied: with its header, a record of perf has at most 64 KiB. */
	VERIFY_FRAME_MAX = 65280,
	/* What a packet costs of the window besides its bytes. */
	VERIFY_PACKET_COST = 1024,
	/* Ports with an XDP program. */
	VERIFY_PORTS_MAX = 1024,
};

/* Where a packet was seen. */
enum verify_place {
	VERIFY_ENTERS = 1, /* netif_receive_skb: behind GRO, before tc; or the driver, before XDP; the packet follows */
	VERIFY_LEAVES = 2, /* net_dev_start_xmit, or the devmap of XDP: the driver is called; the frame follows */
	VERIFY_DROPPED = 3, /* Linux drops an skb */
	VERIFY_DROPPED_LEAVING = 5, /* likewise, at the port by which it leaves */
	VERIFY_RECEIVED = 4, /* netif_receive_skb, of a packet that was seen before XDP; the packet follows */
};

/* A flow to observe: the value for its tuple. */
struct verify_flow {
	__u32 number;
	__u32 ifindex; /* where its packets enter, or leave */
	__u32 before_xdp; /* 1: its packets are seen before XDP, where they enter, and not behind GRO */
	__u32 _pad;
};
_Static_assert(sizeof(struct verify_flow) == 16, "verify_flow is ABI");

/* Which packets to observe. */
struct verify_window {
	__u64 left; /* bytes of packets that may still enter it; as a signed number, 0 or less: none */
	__u32 open; /* 1: packets that entered it may still leave the router */
	__u32 _pad;
};
_Static_assert(sizeof(struct verify_window) == 16, "verify_window is ABI");

/* A packet at a place. `captured` bytes of the frame follow. */
struct verify_record {
	__u64 at_ns;
	__u32 place; /* enum verify_place */
	__u32 flow; /* number of the flow */
	__u32 is_tracked; /* LEAVES, DROPPED_LEAVING: 1 if conntrack has seen it, so that it took the slow path */
	__u32 bytes; /* of the whole frame */
	__u32 captured;
	__u32 reason; /* where it was dropped: enum skb_drop_reason */
	__u16 l3_at; /* where the L3 header starts in the frame */
	__u16 segment_bytes; /* L4 payload of each segment of an aggregate; 0: it is none */
	__u16 sum_from; /* where the L4 checksum starts that a device is to finish; 0: none is */
	__u16 tag_tci; /* of a tag beside the frame */
	__be16 tag_tpid_be; /* 0: without one */
	__u16 packets; /* where it was dropped: how many the skb stands for */
	__u16 _pad[2];
};
_Static_assert(sizeof(struct verify_record) == 48, "verify_record is ABI");

#endif
