// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Redirects every frame to one port without reading it: an upper bound for any forwarder. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

volatile const __u32 out_ifindex;

SEC("xdp")
int shunt_bare(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_redirect(out_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
