/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps. Each object that includes this names all it uses; the loader gives every object the same ones. */
#ifndef SHUNT_MAPS_H
#define SHUNT_MAPS_H

#include "include/bpf.h"

/* Not preallocated: a router with ten flows pays for ten. The size is set when the object is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct shunt_key4);
	__type(value, struct shunt_flow);
} shunt_flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct shunt_key6);
	__type(value, struct shunt_flow);
} shunt_flows6 SEC(".maps");

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_control);
} shunt_control SEC(".maps");

/* The flow table of a family that is known where the code is compiled. */
static __always_inline struct shunt_flow *shunt_lookup(__u32 family, const union shunt_key *key)
{
	return family == 4 ? bpf_map_lookup_elem(&shunt_flows4, &key->v4) :
			     bpf_map_lookup_elem(&shunt_flows6, &key->v6);
}

static __always_inline struct shunt_control *shunt_the_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&shunt_control, &zero);
}

static __always_inline struct shunt_counters *shunt_counters_of(__u32 slot)
{
	return bpf_map_lookup_elem(&shunt_counters, &slot);
}

static __always_inline void shunt_count_reason(struct shunt_counters *counters, enum shunt_reason why)
{
	counters->reasons[why & (SHUNT_REASONS_MAX - 1)]++;
}

/* A flow nearly always stays on one CPU, which then counts without atomics. */
static __always_inline void shunt_count_flow(struct shunt_flow *f, __u32 bytes, __u64 now_ns)
{
	if (shunt_likely(f->home_cpu == bpf_get_smp_processor_id())) {
		f->pkts++;
		f->bytes += bytes;
	} else {
		__sync_fetch_and_add(&f->away_pkts, 1);
		__sync_fetch_and_add(&f->away_bytes, bytes);
	}
	f->seen_ns = now_ns;
}

#endif
