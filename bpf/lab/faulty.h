/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Forwards UDP over IPv4 from one device to another as a router does, apart from a fault in one packet of many. */
#ifndef SHUNT_LAB_FAULTY_H
#define SHUNT_LAB_FAULTY_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum fault {
	FAULT_NONE = 0,
	FAULT_PAYLOAD = 1, /* changes a bit of the payload */
	FAULT_DROP = 2,
	FAULT_DELAY = 3, /* gives the packet another priority, by which a qdisc delays it; XDP leaves it to tc */
	FAULT_MAC = 4, /* sends to another MAC */
};

enum { PAYLOAD_BYTE = 20 };

struct plan {
	__u32 to_ifindex;
	__u32 fault; /* enum fault */
	__u32 every; /* one packet in this number has the fault */
	__u32 priority; /* FAULT_DELAY */
	__u8 macs[12]; /* destination and source */
	__u32 off; /* 1: Linux forwards everything */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan);
} faulty_plan SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} faulty_count SEC(".maps");

struct headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	__u8 payload[PAYLOAD_BYTE + 1];
} __attribute__((packed));

/* The fault of the next packet. */
static __always_inline __u32 next_fault(const struct plan *plan)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&faulty_count, &zero);

	if (!count || !plan->every)
		return FAULT_NONE;
	return (__sync_fetch_and_add(count, 1) + 1) % plan->every ? FAULT_NONE : plan->fault;
}

/* Forwards a packet. Returns 0 if it is none for the engine. */
static __always_inline int forward(struct headers *h, const struct plan *plan, __u32 fault)
{
	__u32 sum;

	if (h->eth.h_proto != bpf_htons(ETH_P_IP) || h->ip.ihl != 5 || h->ip.protocol != IPPROTO_UDP || h->ip.ttl <= 1)
		return 0;
	__builtin_memcpy(&h->eth, plan->macs, sizeof(plan->macs));
	h->ip.ttl--;
	sum = h->ip.check + bpf_htons(0x100);
	h->ip.check = sum + (sum >> 16);
	if (fault == FAULT_PAYLOAD)
		h->payload[PAYLOAD_BYTE] ^= 4;
	if (fault == FAULT_MAC)
		h->eth.h_dest[5] ^= 1;
	return 1;
}

static __always_inline const struct plan *plan_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&faulty_plan, &zero);
}

#endif
