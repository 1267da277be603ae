/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the external engine, which runs in a process of its own, shares with the programs. */
#ifndef SHUNT_EXTERNAL_H
#define SHUNT_EXTERNAL_H

#include "include/table/maps.h"

struct shunt_external shunt_external SEC(".bss.external");

/* The AF_XDP sockets of the engine, by slot of the port times SHUNT_QUEUES_MAX, plus the queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, SHUNT_EXTERNAL_PORTS_MAX *SHUNT_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} shunt_sockets SEC(".maps");

/* Frames that the engine passes to Linux. The engine writes them through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SHUNT_INJECTED_MAX);
	__type(key, __u32);
	__type(value, struct shunt_injected);
} shunt_injected SEC(".maps");

/* Whether the engine's heartbeat is recent. A socket outlives an engine that hangs. */
static __always_inline int shunt_engine_alive(void)
{
	return shunt_now() < shunt_external.beat_ticks + shunt_external.beat_max_ticks;
}

#endif
