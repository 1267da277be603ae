/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data shared between the lab's programs and their loader. Fixed width, no holes. The build of crates/shunt-traffic
 * makes the Rust twin. Times are CLOCK_MONOTONIC.
 */
#ifndef SHUNT_LAB_TRAFFIC_ABI_H
#define SHUNT_LAB_TRAFFIC_ABI_H

#include <linux/types.h>

enum {
	TRAFFIC_HEADERS_MAX = 88, /* Ethernet, two tags, IPv6, TCP: 82 */
	TRAFFIC_SIZES_MAX = 64,
	TRAFFIC_STAMP_BYTES = 12,
	ARRIVAL_WINDOW = 256, /* numbers behind the highest one for which arrivals are remembered */
	LATENCY_SUB_BUCKETS = 64,
	LATENCY_BUCKETS = 27 * LATENCY_SUB_BUCKETS,
	SEGMENT_SMALL_BYTES = 128, /* a frame with a bare acknowledgement fits */
	SEGMENT_BYTES = 2048, /* a frame of an MTU of 1500 fits; both are powers of two */
	TRAFFIC_CATCH_UP_NS = 200000, /* a sender that was held up for longer does not catch up */
	TRAFFIC_HELD_NS = 400000, /* a sender that is only too slow is never late by as much */
	TRAFFIC_STEPS_MAX = 256,
	TRAFFIC_STREAMS_MAX = 32, /* streams of one sender and of one receiver */
	/*
	 * One frame of this many goes to a stream in turn, due or not: a stream that the loader has started or changed
	 * has another time than the one in `turns`.
	 */
	TRAFFIC_ASK_EACH = 64,
	TRAFFIC_WARM_UP_FLOW = 0xffffff, /* the flow in the stamp of packets that do not count */
};

/*
 * The stamp that a generated packet carries after its L4 header. The time is the low half of the clock in ns, so that a
 * 64-byte frame with a VLAN tag has room for the stamp. Latencies wrap at 4.3 s.
 */
struct traffic_stamp {
	__be32 stream_be; /* label << 24 | flow */
	__be32 number_be; /* per flow */
	__be32 sent_be;
};
_Static_assert(sizeof(struct traffic_stamp) == TRAFFIC_STAMP_BYTES, "a stamp is 12 bytes");

/* A value that differs between flows: base + flow / every % count. Host byte order. */
struct traffic_field {
	__u32 base;
	__u32 every;
	__u32 count;
};

/* The addresses (for IPv6, the last 32 bits) and ports of a packet. Host byte order. */
struct traffic_ends {
	__u32 src;
	__u32 dst;
	__u16 sport;
	__u16 dport;
};
_Static_assert(sizeof(struct traffic_ends) == 12, "traffic_ends is ABI");

/* The contents of packets. Constant, so that the verifier removes the code that a plan does not use. */
struct traffic_plan {
	__u8 headers[TRAFFIC_HEADERS_MAX]; /* lengths, IPv4 id, checksums and per-flow values are zero */
	struct traffic_field src; /* for IPv6, the last 32 bits */
	struct traffic_field dst;
	struct traffic_field sport;
	struct traffic_field dport;
	__u16 frame_bytes[TRAFFIC_SIZES_MAX]; /* without FCS, in sending order */
	__u32 sizes; /* number of elements in use in frame_bytes */
	__u32 flows;
	__u32 ip_sum; /* sum of the IPv4 header in `headers`, in host byte order, not inverted */
	__u32 l4_sum; /* sum of the pseudo header and L4 header; 0: no checksum */
	__u8 l3_at;
	__u8 l4_at;
	__u8 header_bytes;
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 stamped; /* packets carry a stamp */
	__u8 shuffled; /* flows come in pseudo-random order instead of in turn */
	__u8 listed; /* addresses and ports of each flow come from a list instead of src to dport */
	__u32 first_flow; /* what the stamp adds to the number of a flow */
	__u8 stepped; /* the rate follows the table of steps */
	__u8 mixed; /* one of several streams of a sender */
	__u8 turn; /* the stream's place among them */
	/*
	 * Packets differ by IPv4 id, stamp and checksums only: `headers` has lengths, addresses and ports, too, and the
	 * sums include them. Such a plan is stamped, and neither stepped nor mixed.
	 */
	__u8 fixed;
};
_Static_assert(sizeof(struct traffic_plan) == 296, "traffic_plan is ABI");

/* A part of a schedule with one rate. Times are since the start, in ns / 65536. */
struct traffic_step {
	__u64 from; /* the first packet is due then */
	__u64 until; /* no packet is due from then on; 0: the table ends before this step */
	__u64 interval; /* between packets; 0: no pacing */
};
_Static_assert(sizeof(struct traffic_step) == 24, "traffic_step is ABI");

/* The steps of a schedule, as a ring: the loader may write steps that lie ahead while the sender runs. */
struct traffic_steps {
	struct traffic_step at[TRAFFIC_STEPS_MAX];
};

/* When a sender of several streams must look at each of them next; all ones: never. */
struct traffic_turns {
	__u64 look_at_ns[TRAFFIC_STREAMS_MAX];
};

/* The schedule and the progress. Written by the loader between runs. */
struct traffic_state {
	__u64 start_ns;
	__u64 end_ns; /* send nothing from this time on; 0: no end */
	__u64 limit; /* send at most this many packets that count */
	__u64 slots; /* number of packets that are due before the end; all ones: no end */
	__u64 interval; /* between packets, in ns / 65536; 0: no pacing */
	__u64 due; /* when the next packet is due, since the start, in ns / 65536 */
	__u64 sent;
	__u64 unsent; /* packets that were left out because the sender was late */
	__u64 idle_ns; /* time in which the next packet was not due yet */
	__u64 looked_ns; /* when it was last seen not to be due */
	__u64 held_unsent; /* those of `unsent` that were left out after a long delay */
	__u64 put_off_ns; /* in a replay: how much later than planned the next frames are due */
	__u64 bytes; /* without FCS */
	__u64 random; /* state of the pseudo-random order */
	__u64 late_ns_max; /* the longest delay of a packet after it was due */
	__u64 last_ns; /* when the last packet was sent */
	__u32 burst; /* packets per burst */
	__u32 in_burst; /* packets of the current burst that were sent */
	__u32 flow; /* the next flow; in a replay, the next frame */
	__u32 size; /* the next size; in a replay, the round */
	__u32 label; /* 8 bits that tell the packets of one run from others */
	__u32 bunch; /* most overdue packets that leave at once: a multiple of `burst` */
	__u64 warm_until; /* packets that are due before do not count; since the start, in ns / 65536 */
	__u64 warm_sent; /* those of `sent` that do not count */
	__u64 warm_unsent; /* those of `unsent` that do not count */
	__u32 step; /* the current step */
	__u32 warm; /* the packet that was last due does not count */
	__u32 unasked; /* packets that may be sent before the next look at the schedule */
	__u32 _pad;
};
_Static_assert(sizeof(struct traffic_state) == 192, "traffic_state is ABI");

struct replay_plan {
	__u64 round_ns; /* duration of a round */
	__u32 frames;
	__u32 bytes_max; /* of the largest frame */
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

struct receive_plan {
	__u32 flows;
	__u32 by_kind; /* account for frames of the kinds in `kinds` instead of stamped packets */
	__u32 capture; /* copy frames to user space */
	__u32 handshakes; /* answer the second segment of a TCP handshake with the third */
};
_Static_assert(sizeof(struct receive_plan) == 16, "receive_plan is ABI");

/* Precedes a frame that is copied to user space. */
struct captured_frame {
	__u64 at_ns;
	__u32 bytes;
	__u32 _pad;
};
_Static_assert(sizeof(struct captured_frame) == 16, "captured_frame is ABI");

/* A range of ports. Host byte order. */
struct segments_ports {
	__u32 first;
	__u32 count;
};
_Static_assert(sizeof(struct segments_ports) == 8, "segments_ports is ABI");

/* The TCP segments to hand over, by their ports as they arrive. */
struct segments_plan {
	struct segments_ports source;
	struct segments_ports destination;
};
_Static_assert(sizeof(struct segments_plan) == 16, "segments_plan is ABI");

/* The packets of one flow that arrived. */
struct arrival {
	__u64 seen[ARRIVAL_WINDOW / 64]; /* bit n: number next - 1 - n has arrived */
	__u64 packets; /* including duplicates */
	__u32 next; /* the highest number that arrived, plus one */
	__u32 duplicated;
	__u32 reordered; /* RFC 4737: the number is lower than an earlier one */
	__u32 beyond; /* reordered by more than the window: may also be duplicates */
	__u32 displaced_max; /* largest distance behind the highest number */
	__u32 transit_ns; /* of the last packet */
	__u32 jitter; /* RFC 3550, in ns / 16 */
	__u32 label; /* of the packets that are accounted here */
	struct traffic_ends ends; /* of the first of these packets */
	__u32 stream; /* the element of the totals; written by the loader */
};
_Static_assert(sizeof(struct arrival) == 88, "arrival is ABI");

/* A histogram of times. */
struct times {
	__u64 ns_min; /* plus one; 0: empty */
	__u64 ns_max;
	__u64 shift; /* of the last time, by which its bucket was found */
	__u64 counts[LATENCY_BUCKETS];
};
_Static_assert(sizeof(struct times) == 24 + 8 * LATENCY_BUCKETS, "times is ABI");

/* The packets that one CPU received. */
struct received {
	__u64 packets;
	__u64 bytes; /* without FCS */
	__u64 others; /* packets of other origin, passed on */
	__u64 last_ns;
	__u64 clock_ns; /* the last reading of the clock */
	__u64 clock_uses; /* frames that may still take that reading as their time */
	struct times latency;
	struct times jitter; /* RFC 3550, after each packet of a flow but its first */
};
_Static_assert(sizeof(struct received) == 96 + 16 * LATENCY_BUCKETS, "received is ABI");

#endif
