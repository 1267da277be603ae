/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reports of the programs to the daemon and to `shunt watch`. */
#ifndef SHUNT_ABI_REPORTS_H
#define SHUNT_ABI_REPORTS_H

#include <linux/types.h>
#include "abi/flows.h"

enum shunt_event_kind {
	SHUNT_EVENT_SET_LIBERAL = 1, /* set BE_LIBERAL on the connection */
	SHUNT_EVENT_SILENT = 2, /* both directions are silent, and everything was acknowledged */
	SHUNT_EVENT_LAGS = 3, /* conntrack no longer follows the acknowledgements of this direction */
	SHUNT_EVENT_ENDED = 4, /* a genuine RST of this direction, or a FIN soon after a blind packet */
	SHUNT_EVENT_IN_WINDOW = 5, /* an RST within the window, which the receiver may ignore */
	SHUNT_EVENT_BLIND = 6, /* a FIN or RST outside the window: conntrack accepts it, the receiver does not */
	SHUNT_EVENT_TX_ERROR = 7, /* the driver of `ifindex` refuses redirected frames; no connection */
	SHUNT_EVENT_WAKE = 8, /* there is something to learn, and SHUNT_CONTROL_REST is set; no connection */
};

enum shunt_trace_kind {
	SHUNT_TRACE_LEARN = 1, /* a flow was proved and inserted */
	SHUNT_TRACE_ACTIVATE = 2, /* a pending flow became active */
	SHUNT_TRACE_PUNT = 3, /* a packet of a known flow went to Linux */
	SHUNT_TRACE_REFUSE = 4, /* Linux forwarded a packet that taught nothing */
	SHUNT_TRACE_RETIRE = 5, /* a flow was retired */
};

/* An event for the daemon. The tuple is that of one direction of the connection, as in conntrack. */
struct shunt_event {
	__u8 kind; /* enum shunt_event_kind */
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 reply; /* 1 for the reply direction */
	__u32 value; /* IN_WINDOW, BLIND: seconds since the connection's last packet; TX_ERROR: an errno */
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex; /* the ingress port; TX_ERROR: the egress port */
	__u8 src_be[16]; /* an IPv4 address uses the first four bytes */
	__u8 dst_be[16];
};
_Static_assert(sizeof(struct shunt_event) == 48, "shunt_event is ABI");

/* A trace record for `shunt watch`. */
struct shunt_trace {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	struct shunt_tuple tuple; /* as on the wire of `ifindex` */
	__u32 ifindex; /* the ingress port */
	__u16 tags[SHUNT_TAGS_MAX]; /* enum shunt_tag_bits; outermost first */
	__u8 kind; /* enum shunt_trace_kind */
	__u8 why; /* enum shunt_reason */
	__u8 _pad[6];
};
_Static_assert(sizeof(struct shunt_trace) == 64, "shunt_trace is ABI");

enum shunt_final_kind {
	SHUNT_FINAL_FLOW = 1, /* of an entry that is freed: no CPU counts in it any more */
	SHUNT_FINAL_EXPIRED = 2, /* of shunt_expired, as conntrack forgets the connection; only for `shunt watch` */
};

/* Final counters of a flow. Each packet of the fast path is in one record of SHUNT_FINAL_FLOW. */
struct shunt_final {
	struct shunt_tuple tuple; /* SHUNT_FINAL_FLOW: as packets leave; SHUNT_FINAL_EXPIRED: as they arrive */
	__u8 from_src_be[16]; /* SHUNT_FINAL_FLOW: the source as packets arrive */
	__u64 pkts;
	__u64 bytes;
	__u32 learned_ticks; /* first proof */
	__u16 tags[SHUNT_TAGS_MAX]; /* enum shunt_tag_bits; outermost first */
	__u16 in_slot;
	__u8 kind; /* enum shunt_final_kind */
	__u8 why; /* enum shunt_reason: why the flow was retired */
	__u8 _pad[4];
};
_Static_assert(sizeof(struct shunt_final) == 88, "shunt_final is ABI");

/*
 * CPU time of a CPU for packets: receive and transmit softirqs, and NAPI threads. Only counted while somebody asks. The
 * time up to now is total_ns, and the time since softirq_since_ns or thread_since_ns, if one of them is not 0.
 */
struct shunt_net_time {
	__u64 changes; /* odd while the other fields change */
	__u64 total_ns;
	__u64 softirq_since_ns; /* CLOCK_MONOTONIC */
	__u64 thread_since_ns;
};
_Static_assert(sizeof(struct shunt_net_time) == 32, "shunt_net_time is ABI");

#endif
