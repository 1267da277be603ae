/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Surveys: what kinds of packets a port receives. The policy chooses the port's engine by them. */
#ifndef SHUNT_SURVEY_H
#define SHUNT_SURVEY_H

#include "include/table/maps.h"
#include "include/skb.h"

/*
 * The least headroom of a buffer that native XDP of a virtual device uses in place. Such a device takes XDP frames with
 * any headroom, and their senders may have used up to two VLAN tags of it, so this is a bit less than
 * XDP_PACKET_HEADROOM (256). Drivers and sockets leave far less.
 */
enum { SHUNT_XDP_HEADROOM = 192 };

#ifdef SHUNT_WITHOUT_BTF

static __always_inline int shunt_skb_needs_copy(struct __sk_buff *skb)
{
	(void)skb;
	return 1;
}

#else

struct sk_buff___survey {
	unsigned int data_len;
	__u8 cloned : 1;
	__u8 head_frag : 1;
} __attribute__((preserve_access_index));

/*
 * Whether native XDP of a veth would have to copy the packet: its buffer is cloned, not linear, not from a page, or
 * without headroom. Sockets make such packets; XDP frames that became packets are not such.
 */
static __always_inline int shunt_skb_needs_copy(struct __sk_buff *skb)
{
	struct sk_buff___survey *kernel = (void *)skb;

	if (bpf_cast_to_kern_ctx)
		kernel = bpf_cast_to_kern_ctx(skb);
	/* Helpers read the fields on every kernel; surveys are short. */
	return BPF_CORE_READ_BITFIELD_PROBED(kernel, cloned) || !BPF_CORE_READ_BITFIELD_PROBED(kernel, head_frag) ||
	       BPF_CORE_READ(kernel, data_len) || shunt_skb_headroom(skb) < SHUNT_XDP_HEADROOM;
}

#endif

/* The number of frames that a packet was before they were merged. */
static __always_inline __u32 shunt_skb_segments(struct __sk_buff *skb)
{
	if (!skb->gso_size)
		return 1;
	/* The number of segments is 0 if another machine made the aggregate. */
	return skb->gso_segs ? skb->gso_segs : skb->len / skb->gso_size + 1;
}

/* Counts a packet by its kind. Not inlined, so that programs keep their registers when there is no survey. */
static __noinline int shunt_survey(struct __sk_buff *skb)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	struct shunt_counters *counters = port ? shunt_counters_of(port->slot) : 0;
	__u32 pkts = 1;

	if (!counters)
		return 0;
	if (skb->gso_size) {
		pkts = shunt_skb_segments(skb);
		counters->aggregated_pkts += pkts;
	} else if (shunt_skb_needs_copy(skb)) {
		counters->copied_pkts++;
	}
	counters->surveyed_pkts += pkts;
	return 0;
}

#endif
