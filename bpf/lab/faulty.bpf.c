// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Stands for a broken engine tc, in tests of `shunt verify`. */
#include "lab/faulty.h"

enum { PASS_ON = -1 /* TCX_NEXT */, DROP = 2 /* TCX_DROP */ };

SEC("tcx/ingress")
int faulty(struct __sk_buff *skb)
{
	const struct plan *plan = plan_of();
	struct headers h;
	__u32 fault;

	if (!plan || plan->off || bpf_skb_load_bytes(skb, 0, &h, sizeof(h)))
		return PASS_ON;
	fault = next_fault(plan);
	if (!forward(&h, plan, fault))
		return PASS_ON;
	if (fault == FAULT_DROP || bpf_skb_store_bytes(skb, 0, &h, sizeof(h), 0))
		return DROP;
	skb->priority = fault == FAULT_DELAY ? plan->priority : 0;
	return bpf_redirect(plan->to_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
