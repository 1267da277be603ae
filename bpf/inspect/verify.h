/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which packets `shunt verify` copies, and where the copies go. The objects share these maps. */
#ifndef SHUNT_INSPECT_VERIFY_H
#define SHUNT_INSPECT_VERIFY_H

#include "inspect/tuple.h"
#include "inspect/verify_abi.h"

#define VERIFY_TUPLES(name)                                                                                            \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, VERIFY_FLOWS_MAX);                                                                 \
		__type(key, struct trace_tuple);                                                                       \
		__type(value, struct verify_flow);                                                                     \
	} name SEC(".maps")

/* Flows by the addresses and ports of packets that enter and that leave. */
VERIFY_TUPLES(verify_enters);
VERIFY_TUPLES(verify_leaves);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct verify_window);
} verify_window SEC(".maps");

/* Records that did not fit the buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} verify_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} verify_records SEC(".maps");

static __always_inline struct verify_window *window(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&verify_window, &zero);
}

static __always_inline int is_open(void)
{
	struct verify_window *w = window();

	return w && w->open;
}

static __always_inline void note_sent(long error)
{
	__u32 zero = 0;
	__u64 *lost = bpf_map_lookup_elem(&verify_lost, &zero);

	if (error && lost)
		__sync_fetch_and_add(lost, 1);
}

/* Where to write, and how many bytes of the frame. */
static __always_inline __u64 verify_flags(__u32 captured)
{
	return BPF_F_CURRENT_CPU | (__u64)captured << 32;
}

/* Takes a packet into the window. */
static __always_inline int enter(__u32 bytes)
{
	struct verify_window *w = window();

	if (!w || !w->open || (long long)w->left <= 0)
		return 0;
	__sync_fetch_and_sub(&w->left, bytes + VERIFY_PACKET_COST);
	return 1;
}

#endif
