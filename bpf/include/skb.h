/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a program needs to know of an skb beyond its UAPI mirror. */
#ifndef SHUNT_SKB_H
#define SHUNT_SKB_H

#include "include/bpf.h"
#include <bpf/bpf_core_read.h>

enum {
	SHUNT_SUMMED_COMPLETE = 2, /* CHECKSUM_COMPLETE: the driver gives the sum over the packet */
	SHUNT_SUMMED_PARTIAL = 3,  /* CHECKSUM_PARTIAL: the L4 checksum is left for the device to finish */
	SHUNT_SUMMED_UNKNOWN = 4,  /* without BTF nobody knows where ip_summed is */
};

#ifdef SHUNT_WITHOUT_BTF

enum { SHUNT_SUMMED_IS_KNOWN = 0 };

/* Aggregates are left for the device to finish, but for those of rx-gro-list. */
static __always_inline __u32 shunt_skb_summed(struct __sk_buff *skb)
{
	return skb->gso_size ? SHUNT_SUMMED_PARTIAL : SHUNT_SUMMED_UNKNOWN;
}

#else

enum { SHUNT_SUMMED_IS_KNOWN = 1 };

struct sk_buff___shunt {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

/* Linux 6.2, commit fd264ca02094. */
void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* skb->ip_summed. Before 6.2 it can only be had by a helper; the context is the sk_buff itself. */
static __always_inline __u32 shunt_skb_summed(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed);
	kernel = bpf_cast_to_kern_ctx(skb);
	return BPF_CORE_READ_BITFIELD(kernel, ip_summed);
}

#endif

static __always_inline struct shunt_hw_tag shunt_skb_tag(struct __sk_buff *skb)
{
	if (shunt_likely(!skb->vlan_present))
		return (struct shunt_hw_tag){};
	return (struct shunt_hw_tag){ .tpid_be = skb->vlan_proto, .tci = skb->vlan_tci, .present = 1 };
}

/* The size that an aggregate's segments will have, for comparison with an MTU. */
static __always_inline void shunt_skb_wire_bytes(struct __sk_buff *skb, struct shunt_packet *p)
{
	if (skb->gso_size)
		p->wire_bytes = shunt_l3_size(p->family) + p->l4_bytes + skb->gso_size;
}

/* Whether something follows the IP packet in its frame. */
static __always_inline int shunt_skb_padded(struct __sk_buff *skb, const struct shunt_packet *p)
{
	return skb->len > (__u32)p->l2_bytes + p->l3_bytes;
}

/* By what the kernel takes the packet for; where that is a tag, there may be as much as there can be. */
static __always_inline __u32 shunt_skb_headers(struct __sk_buff *skb)
{
	if (skb->protocol == shunt_htons(ETH_P_IP))
		return ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr);
	if (skb->protocol == shunt_htons(ETH_P_IPV6))
		return ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);
	return SHUNT_L2_MAX + SHUNT_L3_MAX + sizeof(struct tcphdr);
}

/*
 * Programs need the headers in one piece; drivers may leave part of them in fragments. Nothing behind them is asked
 * for: TCP keeps what it has sent, and of such an skb the kernel would copy the whole head.
 */
static __always_inline void shunt_skb_pull(struct __sk_buff *skb)
{
	__u64 has = (void *)(long)skb->data_end - (void *)(long)skb->data;

	if (shunt_unlikely(has < skb->len)) {
		__u32 want = shunt_skb_headers(skb);

		if (has < want)
			bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
	}
}

#endif
