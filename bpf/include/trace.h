/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Trace records for `shunt watch`. Without a reader, tracing costs a flag test, off the fast path. */
#ifndef SHUNT_TRACE_H
#define SHUNT_TRACE_H

#include "include/control.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} shunt_traces SEC(".maps");

static __always_inline void shunt_tuple_of(__u32 family, const union shunt_key *key, struct shunt_tuple *tuple)
{
	__builtin_memset(tuple, 0, sizeof(*tuple));
	tuple->family = family;
	if (family == 4) {
		__builtin_memcpy(tuple->src_be, &key->v4.src_be, 4);
		__builtin_memcpy(tuple->dst_be, &key->v4.dst_be, 4);
		tuple->sport_be = key->v4.sport_be;
		tuple->dport_be = key->v4.dport_be;
		tuple->l4_proto = key->v4.l4_proto;
	} else {
		__builtin_memcpy(tuple->src_be, key->v6.src_be, 16);
		__builtin_memcpy(tuple->dst_be, key->v6.dst_be, 16);
		tuple->sport_be = key->v6.sport_be;
		tuple->dport_be = key->v6.dport_be;
		tuple->l4_proto = key->v6.l4_proto;
	}
}

static __always_inline int shunt_write_trace(enum shunt_trace_kind kind, enum shunt_reason why, __u32 family,
					     const union shunt_key *key)
{
	struct shunt_trace *trace = bpf_ringbuf_reserve(&shunt_traces, sizeof(*trace), 0);

	if (!trace) {
		__sync_fetch_and_add(&shunt_usage.traces_lost, 1);
		return 0;
	}
	__builtin_memset(trace, 0, sizeof(*trace));
	trace->at_ns = bpf_ktime_get_ns();
	shunt_tuple_of(family, key, &trace->tuple);
	trace->ifindex = family == 4 ? key->v4.ifindex : key->v6.ifindex;
	trace->tags[0] = family == 4 ? key->v4.tags[0] : key->v6.tags[0];
	trace->tags[1] = family == 4 ? key->v4.tags[1] : key->v6.tags[1];
	trace->kind = kind;
	trace->why = why;
	bpf_ringbuf_submit(trace, 0);
	return 0;
}

/* Global functions, which the verifier checks once each. */
__noinline int shunt_write_trace4(__u32 kind, __u32 why, const struct shunt_key4 *key)
{
	return key ? shunt_write_trace(kind, why, 4, (const union shunt_key *)key) : 0;
}

__noinline int shunt_write_trace6(__u32 kind, __u32 why, const struct shunt_key6 *key)
{
	return key ? shunt_write_trace(kind, why, 6, (const union shunt_key *)key) : 0;
}

static __always_inline void shunt_trace(enum shunt_trace_kind kind, enum shunt_reason why, __u32 family,
					const union shunt_key *key)
{
	if (shunt_likely(!(shunt_control.flags & SHUNT_CONTROL_TRACE)))
		return;
	if (family == 4)
		shunt_write_trace4(kind, why, &key->v4);
	else
		shunt_write_trace6(kind, why, &key->v6);
}

#endif
