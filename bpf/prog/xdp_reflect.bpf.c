// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A host that answers: sends each UDP packet back to where it came from, as it is. Checksums stay right, since ends only
 * change places.
 */
#include "include/bpf.h"

static __always_inline void swap(void *a, void *b, int bytes)
{
	__be16 *left = a, *right = b, kept;

#pragma unroll
	for (int i = 0; i < bytes / 2; i++) {
		kept = left[i];
		left[i] = right[i];
		right[i] = kept;
	}
}

SEC("xdp")
int shunt_reflect(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct shunt_hw_tag none = {};
	struct shunt_packet p;
	union shunt_key key;
	__be16 proto_be;
	void *l3;

	if (shunt_parse_l2(data, end, none, &p, &proto_be) != SHUNT_OK)
		return XDP_PASS;
	l3 = data + p.l2_bytes;
	if (proto_be == shunt_htons(ETH_P_IP)) {
		if (shunt_parse_l3(4, l3, end, 0, &p, &key) != SHUNT_OK || p.l4_proto != IPPROTO_UDP || l3 + 28 > end)
			return XDP_PASS;
		swap(l3 + 12, l3 + 16, 4);
		swap(l3 + 20, l3 + 22, 2);
	} else if (proto_be == shunt_htons(ETH_P_IPV6)) {
		if (shunt_parse_l3(6, l3, end, 0, &p, &key) != SHUNT_OK || p.l4_proto != IPPROTO_UDP || l3 + 48 > end)
			return XDP_PASS;
		swap(l3 + 8, l3 + 24, 16);
		swap(l3 + 40, l3 + 42, 2);
	} else {
		return XDP_PASS;
	}
	swap(data, data + ETH_ALEN, ETH_ALEN);
	/* Not XDP_TX: a veth wakes its peer for that only where the peer has an XDP program. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
