/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* CPU time for packets, by CPU: net_time.bpf.c and napi_time.bpf.c write it, the daemon reads it by mmap. */
#ifndef SHUNT_NET_TIME_H
#define SHUNT_NET_TIME_H

#include "include/bpf.h"
#include "abi/reports.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets the number of possible CPUs */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32); /* CPU */
	__type(value, struct shunt_net_time);
} shunt_net_times SEC(".maps");

static __always_inline struct shunt_net_time *shunt_net_time_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&shunt_net_times, &cpu);
}

/* Adds the time since `*since_ns`, if that is not 0, and sets it to 0. */
static __always_inline void shunt_add_net_time(struct shunt_net_time *time, __u64 *since_ns)
{
	if (!*since_ns)
		return;
	/* Full barriers: a reader that finds the same even number twice has read fields that belong together. */
	__sync_lock_test_and_set(&time->changes, time->changes + 1);
	time->total_ns += bpf_ktime_get_ns() - *since_ns;
	*since_ns = 0;
	__sync_lock_test_and_set(&time->changes, time->changes + 1);
}

#endif
