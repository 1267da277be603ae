// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stands for a VLAN device in tests, on kernels that have none: on a macvlan device, it takes the tag off frames that
 * arrive, drops those without it, and puts it on frames that leave.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>

enum { VID_MASK = 0xfff, PASS_ON = -1 /* TCX_NEXT */, DROP = 2 /* TCX_DROP */ };

volatile const __u32 vid;

SEC("tcx/ingress")
int tags_pop(struct __sk_buff *skb)
{
	if (!skb->vlan_present || (skb->vlan_tci & VID_MASK) != vid)
		return DROP;
	return bpf_skb_vlan_pop(skb) ? DROP : PASS_ON;
}

SEC("tcx/egress")
int tags_push(struct __sk_buff *skb)
{
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), vid) ? DROP : PASS_ON;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
