/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads that are followed: those that read or sent a traced packet, and kernel threads that received one. */
#ifndef SHUNT_INSPECT_THREADS_H
#define SHUNT_INSPECT_THREADS_H

#include "inspect/record.h"

/* By thread: whether it waits for a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACE_THREADS);
	__type(key, __u32);
	__type(value, __u32);
} trace_threads SEC(".maps");

/* From now on, the current thread is followed. */
static __always_inline void follow_thread(void)
{
	__u32 thread = bpf_get_current_pid_tgid(), waits = 0;

	if (thread && !bpf_map_lookup_elem(&trace_threads, &thread))
		bpf_map_update_elem(&trace_threads, &thread, &waits, BPF_NOEXIST);
}

/* The same, if it is one of the kernel's threads that receive packets. */
static __always_inline void follow_receiver(void)
{
	char comm[TRACE_COMM_BYTES];

	if (bpf_get_current_comm(comm, sizeof(comm)))
		return;
	if (!__builtin_memcmp(comm, "napi", 4) || !__builtin_memcmp(comm, "ksof", 4))
		follow_thread();
}

#endif
