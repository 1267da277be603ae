// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Programs that return at once: what the hooks of a port cost by themselves. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int hook_xdp(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

SEC("tcx/ingress")
int hook_ingress(struct __sk_buff *skb)
{
	(void)skb;
	return -1; /* TCX_NEXT */
}

SEC("tcx/egress")
int hook_egress(struct __sk_buff *skb)
{
	(void)skb;
	return -1; /* TCX_NEXT */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
