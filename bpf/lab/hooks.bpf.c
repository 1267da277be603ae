// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that return at once: what the hooks of a port cost by themselves. And one that only counts tuples, which any
 * program must do before it can know which connections are worth a flow.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "core/parse.h"

enum { TUPLE_BITS = 15 };

__u32 seen[1 << TUPLE_BITS];

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

static __always_inline void count(__u32 family, struct __sk_buff *skb, void *l3, void *end)
{
	struct shunt_packet p;
	union shunt_key key;
	__u64 hash = 0;

	shunt_untagged(&p);
	if (shunt_parse_l3(family, l3, end, skb->ifindex, &p, &key) != SHUNT_OK)
		return;
	for (__u32 i = 0; i < (family == 4 ? sizeof(key.v4) : sizeof(key.v6)) / 8; i++)
		hash = (hash ^ key.words[i]) * 0x9e3779b97f4a7c15ULL;
	seen[hash >> (64 - TUPLE_BITS)]++;
}

SEC("tcx/ingress")
int hook_count(struct __sk_buff *skb)
{
	void *l3 = shunt_untagged_l3((void *)(long)skb->data);
	void *end = (void *)(long)skb->data_end;
	__u32 family;

	if (l3 > end)
		return -1; /* TCX_NEXT */
	family = shunt_family_of(shunt_proto_before(l3));
	if (family == 4)
		count(4, skb, l3, end);
	else if (family == 6)
		count(6, skb, l3, end);
	return -1; /* TCX_NEXT */
}

SEC("tcx/egress")
int hook_egress(struct __sk_buff *skb)
{
	(void)skb;
	return -1; /* TCX_NEXT */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
