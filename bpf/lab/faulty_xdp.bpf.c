// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Stands for a broken engine xdp, in tests of `shunt verify`. */
#include "lab/faulty.h"

/* The device to which frames go. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} faulty_exit SEC(".maps");

SEC("xdp.frags")
int faulty_xdp(struct xdp_md *ctx)
{
	const struct plan *plan = plan_of();
	struct headers h;
	__u32 fault;

	if (!plan || plan->off || bpf_xdp_load_bytes(ctx, 0, &h, sizeof(h)))
		return XDP_PASS;
	fault = next_fault(plan);
	if (fault == FAULT_DELAY || !forward(&h, plan, fault))
		return XDP_PASS;
	if (fault == FAULT_DROP || bpf_xdp_store_bytes(ctx, 0, &h, sizeof(h)))
		return XDP_DROP;
	return bpf_redirect_map(&faulty_exit, 0, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
