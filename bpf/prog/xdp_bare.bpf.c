// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What no forwarder can beat: every frame goes to one port, unread. */
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
