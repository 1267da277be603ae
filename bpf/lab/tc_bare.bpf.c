// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Redirects every packet at tc ingress to one port without reading it: an upper bound for any forwarder at tc. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

volatile const __u32 out_ifindex;

SEC("tcx/ingress")
int shunt_tc_bare(struct __sk_buff *skb)
{
	(void)skb;
	return bpf_redirect(out_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
