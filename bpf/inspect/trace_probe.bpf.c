// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* `shunt trace --bisect`: functions of the kernel that are called with a traced packet, within one stage. */
#include "inspect/record.h"

/* In a section of its own: the plan, which this program does not use, comes first in .rodata. */
volatile const struct trace_probes probes SEC(".rodata.probes");

/* The context is struct pt_regs, whose layout depends on the architecture: the loader knows it. */
SEC("kprobe.multi")
int trace_function(void *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), skb;
	__u32 index = cookie >> TRACE_COOKIE_NUMBER_BITS;
	struct trace_record *record;

	if (index >= sizeof(probes.register_at) / sizeof(probes.register_at[0]) ||
	    bpf_probe_read_kernel(&skb, sizeof(skb), ctx + probes.register_at[index]))
		return 0;
	record = record_of((void *)skb);
	if (record && record->position == probes.window)
		stamp_at(record, TRACE_PROBE, cookie & ((1 << TRACE_COOKIE_NUMBER_BITS) - 1), bpf_ktime_get_ns());
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
