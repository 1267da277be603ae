/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the lab's generator and receiver share with their loader. As in shunt_abi.h: fixed width, no holes, every size
 * asserted; the Rust twin is crates/shunt-bpf/src/traffic/abi.rs.
 */
#ifndef SHUNT_TRAFFIC_ABI_H
#define SHUNT_TRAFFIC_ABI_H

#include <linux/types.h>

enum {
	TRAFFIC_HEADERS_MAX = 88, /* Ethernet, two tags, IPv6, TCP: 82 */
	TRAFFIC_SIZES_MAX = 64,
	TRAFFIC_STAMP_BYTES = 12,
	ARRIVAL_WINDOW = 256, /* numbers behind the highest one of which it is known whether they came */
	LATENCY_SUB_BUCKETS = 64,
	LATENCY_BUCKETS = 27 * LATENCY_SUB_BUCKETS,
};

/*
 * What a packet carries behind its L4 header, in network byte order.
 * The time is the low half of CLOCK_MONOTONIC's nanoseconds, so that a frame of 64 bytes has room for it with a VLAN tag:
 * latencies of 4.3 s and more are not told from shorter ones.
 */
struct traffic_stamp {
	__be32 stream_be; /* label << 24 | flow */
	__be32 number_be; /* counts the packets of a flow */
	__be32 sent_be;
};
_Static_assert(sizeof(struct traffic_stamp) == TRAFFIC_STAMP_BYTES, "a stamp is 12 bytes");

/* A number that flows differ in: base + flow / every % count. Host byte order. */
struct traffic_field {
	__u32 base;
	__u32 every;
	__u32 count;
};

/* What packets look like. Constant, so that the verifier takes out what a plan does not use. */
struct traffic_plan {
	__u8 headers[TRAFFIC_HEADERS_MAX]; /* what flows differ in, lengths, IPv4 id and checksums are zero */
	struct traffic_field src; /* of IPv6 the last 32 bits */
	struct traffic_field dst;
	struct traffic_field sport;
	struct traffic_field dport;
	__u16 frame_bytes[TRAFFIC_SIZES_MAX]; /* without FCS, in the order in which they are sent */
	__u32 sizes;
	__u32 flows;
	__u32 out_ifindex;
	__u32 ip_sum; /* of the headers as they stand here: the sum in host byte order, not inverted */
	__u32 l4_sum; /* of pseudo header and L4 header; 0: no checksum */
	__u8 l3_at;
	__u8 l4_at;
	__u8 header_bytes;
	__u8 family;
	__u8 l4_proto;
	__u8 stamped;
	__u8 shuffled; /* flows come in the order of a random generator, else in turn */
	__u8 _pad;
};
_Static_assert(sizeof(struct traffic_plan) == 292, "traffic_plan is ABI");

/* When packets go, and how far it got. The loader writes it between runs. Times are CLOCK_MONOTONIC. */
struct traffic_state {
	__u64 start_ns;
	__u64 end_ns;	/* nothing is sent from then on; 0: no end */
	__u64 limit;	/* nothing is sent beyond so many packets */
	__u64 interval;	/* between packets, in ns / 65536; 0: none */
	__u64 due;	/* of the next packet, since the start, in ns / 65536 */
	__u64 sent;
	__u64 bytes;	/* of frames without FCS */
	__u64 random;
	__u64 late_ns_max; /* how long after it was due a packet went */
	__u64 last_ns;	/* when the latest packet went */
	__u32 burst;	/* packets that go without an interval between them */
	__u32 in_burst;
	__u32 flow;	/* the next; of a capture, the next frame */
	__u32 size;	/* of a capture, the round */
	__u32 label;	/* 8 bits: of whose packets these are */
	__u32 _pad;
};
_Static_assert(sizeof(struct traffic_state) == 104, "traffic_state is ABI");

/* What is sent of a capture. */
struct replay_plan {
	__u64 round_ns; /* from the first frame of a round to that of the next */
	__u32 frames;
	__u32 bytes_max;
	__u32 out_ifindex;
	__u32 _pad;
};
_Static_assert(sizeof(struct replay_plan) == 24, "replay_plan is ABI");

/* A frame of a capture. Its bytes follow. */
struct replay_frame {
	__u64 due_ns; /* since the start of the round */
	__u32 bytes;
	__u32 _pad;
};
_Static_assert(sizeof(struct replay_frame) == 16, "replay_frame is ABI");

/* What the receiver takes. */
struct receive_plan {
	__u32 flows;
	__u32 by_kind; /* what is of a wanted kind, instead of what has a stamp */
	__u32 hand_on; /* to user space, too */
	__u32 shakes; /* the second segment of a TCP handshake is answered by the third */
};
_Static_assert(sizeof(struct receive_plan) == 16, "receive_plan is ABI");

/* What stands before a frame that the receiver hands on. */
struct handed_on {
	__u64 at_ns;
	__u32 bytes;
	__u32 _pad;
};
_Static_assert(sizeof(struct handed_on) == 16, "handed_on is ABI");

/* What has come of one flow. */
struct arrival {
	__u64 seen[ARRIVAL_WINDOW / 64]; /* bit n: next - 1 - n has come */
	__u64 packets;
	__u32 next; /* one more than the highest number */
	__u32 duplicated;
	__u32 reordered; /* RFC 4737: with a lower number than one before */
	__u32 beyond; /* so late that it may also be a duplicate */
	__u32 displaced_max; /* how far behind the highest number one was */
	__u32 transit_ns; /* of the latest packet */
	__u32 jitter; /* RFC 3550, in ns / 16 */
	__u32 label; /* what is here is of packets with this label */
};
_Static_assert(sizeof(struct arrival) == 72, "arrival is ABI");

/* A histogram. */
struct times {
	__u64 ns_min; /* plus one; 0: none yet */
	__u64 ns_max;
	__u64 counts[LATENCY_BUCKETS];
};
_Static_assert(sizeof(struct times) == 16 + 8 * LATENCY_BUCKETS, "times is ABI");

/* What has come to one CPU. */
struct received {
	__u64 packets;
	__u64 bytes; /* of frames without FCS */
	__u64 others; /* packets that are not of this generator; passed on */
	__u64 last_ns;
	struct times latency;
	struct times jitter; /* of RFC 3550, as it is after each packet but the first of a flow */
};
_Static_assert(sizeof(struct received) == 64 + 16 * LATENCY_BUCKETS, "received is ABI");

#endif
