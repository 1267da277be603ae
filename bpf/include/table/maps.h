/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps that several objects use. The loader makes objects share maps of the same name. */
#ifndef SHUNT_MAPS_H
#define SHUNT_MAPS_H

#include "include/table/table.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHUNT_PORTS_MAX);
	__type(key, __u32); /* ifindex */
	__type(value, struct shunt_port);
} shunt_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHUNT_PORTS_MAX);
	__type(key, __u32); /* slot */
	__type(value, struct shunt_counters);
} shunt_counters SEC(".maps");

static __always_inline struct shunt_port *shunt_port_of(__u32 ifindex)
{
	struct shunt_port *port = &shunt_port_cache.by_ifindex[ifindex % SHUNT_PORTS_MAX];

	if (shunt_likely(port->ifindex == ifindex))
		return port;
	return bpf_map_lookup_elem(&shunt_ports, &ifindex);
}

static __always_inline __u32 shunt_ifindex_of(__u32 slot)
{
	return shunt_port_cache.ifindex[slot % SHUNT_PORTS_MAX];
}

static __always_inline struct shunt_counters *shunt_counters_of(__u32 slot)
{
	return bpf_map_lookup_elem(&shunt_counters, &slot);
}

static __always_inline void shunt_count_reason(struct shunt_counters *counters, enum shunt_reason why)
{
	counters->reasons[why & (SHUNT_REASONS_MAX - 1)]++;
}

/* This CPU, as a flow's home CPU. */
static __always_inline __u8 shunt_this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return cpu < SHUNT_NO_CPU ? cpu : SHUNT_NO_CPU;
}

/*
 * Makes a CPU the home of a flow that is due for a proof, in two steps: until the next proof, all CPUs count the flow
 * atomically, so that no packet is lost that the former home CPU is counting right now.
 */
static __always_inline void shunt_move_home(struct shunt_flow *f, __u8 cpu)
{
	if (f->home_cpu != cpu)
		f->home_cpu = f->home_cpu == SHUNT_NO_CPU ? cpu : SHUNT_NO_CPU;
}

/* Counts packets of a flow where every CPU may. Rare, so not inlined. */
static __noinline int shunt_count_remote(__u32 family, __u32 entry, __u64 pkts, __u32 bytes)
{
	struct shunt_cold *cold = shunt_cold_at(family, entry);

	if (cold) {
		__sync_fetch_and_add(&cold->remote_pkts, pkts);
		__sync_fetch_and_add(&cold->remote_bytes, bytes);
	}
	return 0;
}

/* Counts a packet of a flow. A flow nearly always stays on its home CPU, which counts without atomics. */
static __always_inline void shunt_count_flow(__u32 family, struct shunt_flow *f, const __u32 *entry, __u32 bytes,
					     __u32 now)
{
	__u32 pkts;

	f->seen_ticks = now;
	if (shunt_unlikely(f->home_cpu != bpf_get_smp_processor_id())) {
		shunt_count_remote(family, *entry, 1, bytes);
		return;
	}
	f->bytes += bytes;
	pkts = f->pkts + 1;
	/* Keep clang from comparing with the old value instead. */
	asm("" : "+r"(pkts));
	f->pkts = pkts;
	if (shunt_unlikely(!pkts))
		shunt_count_remote(family, *entry, 1ULL << 32, 0);
}

#endif
