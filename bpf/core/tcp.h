/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The state of a TCP connection, and whether a FIN or RST fits it. Conntrack cannot decide this for a fast connection,
 * since it has not seen most of the packets. Freestanding.
 */
#ifndef SHUNT_CORE_TCP_H
#define SHUNT_CORE_TCP_H

#include "core/parse.h"

enum {
	SHUNT_TCP_AHEAD = 1 << 20, /* tolerance in bytes beyond the data in flight */
	SHUNT_TCP_IN_FLIGHT = 64 << 20, /* more data in flight means a forged sequence number */
	SHUNT_TCP_WINDOW_MAX = 1 << 30, /* the largest window that TCP can announce */
	SHUNT_TCP_LAG = 256 << 20, /* how far conntrack may lag: 1/8 of the distance at which an RST looks old */
};

enum shunt_end {
	SHUNT_END_UNKNOWN, /* at least one direction has not been seen */
	SHUNT_END_EXACT, /* the next sequence number the receiver expects, now or after the data in flight */
	SHUNT_END_IN_WINDOW, /* within the window: the receiver of an RST answers with a challenge ACK (RFC 5961) */
	SHUNT_END_BLIND, /* outside the window: the receiver ignores the packet */
};

static __always_inline __u32 shunt_tcp_end(__u64 position)
{
	return position;
}

static __always_inline __u32 shunt_tcp_ack(__u64 position)
{
	return shunt_ntohl((__be32)(position >> 32));
}

/* The sequence number of a packet, from the position after its data. */
static __always_inline __u32 shunt_tcp_seq(const struct shunt_packet *p, __u32 family)
{
	return shunt_tcp_end(p->tcp_position) - (p->l3_bytes - shunt_l3_size(family) - p->l4_bytes);
}

/*
 * How a FIN or RST with sequence number `seq` fits the connection. `own` is the position of the last packet in the same
 * direction, `other` that of the last packet in the other direction. The acknowledgement of the other direction counts
 * most, since the forger of a packet in one direction cannot influence it.
 */
static __always_inline enum shunt_end shunt_judge_end(__u8 flags, __u32 seq, __u64 own, __u64 other)
{
	__u32 acked = shunt_tcp_ack(other);
	__u32 in_flight = shunt_tcp_end(own) - acked;
	__u32 ahead = seq - acked;

	if (!own || !other)
		return SHUNT_END_UNKNOWN;
	/* After an old or forged packet, the data in flight is unknown. */
	if (in_flight > SHUNT_TCP_IN_FLIGHT)
		in_flight = 0;
	if (!ahead || ahead == in_flight)
		return SHUNT_END_EXACT;
	if (ahead <= in_flight + SHUNT_TCP_AHEAD)
		return SHUNT_END_IN_WINDOW;
	/* A FIN may be retransmitted together with data that has arrived. Conntrack rejects an RST that is behind. */
	if (!(flags & SHUNT_TCP_RST) && -ahead <= SHUNT_TCP_AHEAD)
		return SHUNT_END_IN_WINDOW;
	return SHUNT_END_BLIND;
}

/*
 * Whether conntrack lags so far behind that it will soon take a genuine RST for an old one. `maxack` is conntrack's
 * highest acknowledgement of the direction that the packet at `position` belongs to. Until then, conntrack's check
 * is better than none. A packet may also be older than `maxack`, by at most a window.
 */
static __always_inline int shunt_tcp_lags(__u64 position, __u32 maxack)
{
	__u32 behind = shunt_tcp_ack(position) - maxack;

	return behind >= SHUNT_TCP_LAG && -behind >= SHUNT_TCP_WINDOW_MAX;
}

/* Whether a packet acknowledges recent data of the other direction. */
static __always_inline int shunt_tcp_acknowledges(__u64 position, __u64 other)
{
	__u32 in_flight = shunt_tcp_end(other) - shunt_tcp_ack(position);

	/* The last packet of the other direction may be old, so in_flight may be slightly negative. */
	return other && in_flight + SHUNT_TCP_AHEAD <= SHUNT_TCP_IN_FLIGHT + SHUNT_TCP_AHEAD;
}

#endif
