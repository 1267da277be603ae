// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A host that answers: returns each UDP packet to its sender with unchanged contents, and answers a SYN with the second
 * segment of the handshake. Counts other TCP segments without an answer.
 */
#include "include/bpf.h"
#include "lab/traffic.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unanswered SEC(".maps");

static __always_inline int take(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&unanswered, &zero);

	if (count)
		++*count;
	return XDP_DROP;
}

static __always_inline int answer(struct xdp_md *ctx, struct shunt_packet *p, __u32 family, void *frame, void *end)
{
	void *l3 = frame + p->l2_bytes;
	void *l4 = l3 + shunt_l3_size(family);
	union shunt_key key;

	if (shunt_parse_l3(family, l3, end, 0, p, &key) != SHUNT_OK || l4 + sizeof(struct udphdr) > end)
		return XDP_PASS;
	if (p->l4_proto == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end || ((__u8 *)tcp)[13] & SHUNT_TCP_ACK ||
		    !traffic_answer_handshake(tcp, p->l3_bytes - shunt_l3_size(family) - p->l4_bytes))
			return take();
	}
	traffic_swap_ends(frame, l3, family);
	/* Not XDP_TX: a veth wakes its peer for XDP_TX only if the peer has an XDP program. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

SEC("xdp")
int shunt_reflect(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct shunt_hw_tag none = {};
	struct shunt_packet p;
	__u32 family;

	if (shunt_parse_l2(data, end, none, &p, &family) != SHUNT_OK)
		return XDP_PASS;
	if (family == 4)
		return answer(ctx, &p, 4, data, end);
	if (family == 6)
		return answer(ctx, &p, 6, data, end);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
