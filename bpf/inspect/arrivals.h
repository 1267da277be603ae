/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which device keeps a CPU busy: the candidate of a majority vote over the packets of one softirq. */
#ifndef SHUNT_INSPECT_ARRIVALS_H
#define SHUNT_INSPECT_ARRIVALS_H

#include "inspect/record.h"

struct trace_arrivals {
	__u64 dev; /* the candidate */
	__u32 votes; /* packets of the candidate above those of all others */
	__u32 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_arrivals);
} trace_arrivals SEC(".maps");

static __always_inline struct trace_arrivals *arrivals(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_arrivals, &zero);
}

/* This CPU receives a packet from a device. */
static __always_inline void count_arrival(const struct net_device___shunt *dev)
{
	struct trace_arrivals *all = arrivals();
	__u64 address = (__u64)dev;

	if (!all)
		return;
	all->packets++;
	if (all->dev == address) {
		all->votes++;
	} else if (all->votes) {
		all->votes--;
	} else {
		all->dev = address;
		all->votes = 1;
	}
}

/* A device whose packets exceed all others by half of all packets; NULL if none does. */
static __always_inline const struct net_device___shunt *busiest_device(const struct trace_arrivals *all)
{
	return all->packets && 2 * all->votes >= all->packets ? (const void *)all->dev : NULL;
}

#endif
