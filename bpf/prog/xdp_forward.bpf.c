// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * XDP ingress: forwards packets of active flows whose egress port XDP can reach. All other packets pass unchanged and
 * uncounted; the tc program of the same port counts them by reason.
 */
#include "include/maps.h"

#define SHUNT_FRAME struct xdp_md
#define SHUNT_LOAD_BYTES bpf_xdp_load_bytes
#include "include/verify.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, SHUNT_PORTS_MAX);
	__type(key, __u32); /* slot */
	__type(value, __u32); /* ifindex */
} shunt_devmap SEC(".maps");

/* Trims the padding after the L3 packet. Returns nonzero on failure. */
static __always_inline int trim(struct xdp_md *ctx, const struct shunt_flow *f, __u32 want)
{
	__u32 have = bpf_xdp_get_buff_len(ctx), bytes;

	if (have < want)
		return -1;
	bytes = shunt_frame_bytes(f, want, have);
	return have > bytes ? (int)bpf_xdp_adjust_tail(ctx, (int)(bytes - have)) : 0;
}

/* Whether the L4 checksum is within the first buffer and finished. */
static __always_inline int is_summed(const struct shunt_packet *p, __u32 family, const struct shunt_flow *f, void *l3,
				     void *end)
{
	__u32 l3_size = shunt_l3_size(family);
	__u16 *check = l3 + l3_size + shunt_check_offset(p->l4_proto);

	return (void *)(check + 1) <= end &&
	       (!(f->flags & SHUNT_FLOW_PARTIAL) ||
		!shunt_looks_partial(family, l3, p->l4_proto, p->l3_bytes - l3_size, *check));
}

static __always_inline int drop(struct shunt_counters *counters)
{
	counters->dropped_pkts++;
	shunt_count_reason(counters, SHUNT_HALF_WRITTEN);
	return XDP_DROP;
}

/* Whether the egress driver accepts multi-buffer frames. */
static __always_inline int takes_frags(const struct shunt_flow *f)
{
	const struct shunt_port *port = shunt_port_of(shunt_ifindex_of(f->out_slot));

	return port && port->flags & SHUNT_PORT_XDP_FRAGS;
}

/*
 * Whether the kernel will redirect a frame with two tags: it allows room for one tag beyond the MTU of the egress
 * device. Frames with at most one tag fit, since Linux has forwarded packets of their size.
 */
static __always_inline int fits(struct xdp_md *ctx, const struct shunt_flow *f, __u32 l3_bytes)
{
	__u32 with_inner_tag = l3_bytes + 4;

	return !bpf_check_mtu(ctx, shunt_ifindex_of(f->out_slot), &with_inner_tag, 0, 0);
}

static __always_inline int forward(struct xdp_md *ctx, const struct shunt_packet *p, __u32 family, struct shunt_flow *f,
				   __u32 entry, void *eth, void *l3, void *end)
{
	__u64 now = shunt_now();
	enum shunt_reason why = shunt_decide(f, p, eth, &shunt_control, now);
	struct shunt_counters *counters;
	int room;

	if (shunt_unlikely(why == SHUNT_REPROVE)) {
		/* Advance the time here, so that one packet of a burst is punted by tc, and not all of them. */
		f->reprove_at_ticks = now + shunt_control.reprove_ticks;
		f->punt_due = 1;
	}
	if (shunt_unlikely(why != SHUNT_OK))
		return XDP_PASS;
	if (family == 4 && !shunt_ipv4_header_good(l3))
		return XDP_PASS;
	/* Keep clang from recomputing the addresses of the members from the entry. */
	asm("" : "+r"(f));
	counters = shunt_counters_of(f->in_slot);
	if (!counters)
		return XDP_PASS;
	if (shunt_unlikely(p->l2_bytes + p->l3_bytes != ctx->data_end - ctx->data)) {
		if (!is_summed(p, family, f, l3, end) || trim(ctx, f, p->l2_bytes + p->l3_bytes))
			return XDP_PASS;
		eth = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		l3 = eth + p->l2_bytes;
		if ((long)bpf_xdp_get_buff_len(ctx) > end - (void *)eth && !takes_frags(f))
			return XDP_PASS;
	}
	if (shunt_unlikely(f->out_tags > 1) && !fits(ctx, f, p->l3_bytes))
		return XDP_PASS;
	if (!is_summed(p, family, f, l3, end))
		return XDP_PASS;
	if (shunt_unlikely(shunt_control.flags & SHUNT_CONTROL_VERIFY_XDP) &&
	    !shunt_checksum_good(ctx, p, family, f, l3, end))
		return XDP_PASS;
	shunt_rewrite(l3, l3 + shunt_l3_size(family), family, p->l4_proto, f, shunt_new_addrs(f),
		      SHUNT_CHECKSUM_FINISHED);
	room = p->l2_bytes - ETH_HLEN - 4 * f->out_tags;
	if (shunt_unlikely(room)) {
		if (bpf_xdp_adjust_head(ctx, room)) {
			/* The driver left no headroom for tags; use tc from now on. */
			f->flags &= ~SHUNT_FLOW_XDP;
			return drop(counters);
		}
		eth = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		if (eth + SHUNT_L2_MAX > end)
			return drop(counters);
	}
	/* Keep clang from reloading eth. */
	asm("" : "+r"(eth));
	shunt_copy_l2(eth, f->l2, f->out_tags);
	/* Fails if the egress port was removed. */
	if (shunt_unlikely(bpf_redirect_map(&shunt_devmap, f->out_slot, XDP_DROP) != XDP_REDIRECT))
		return drop(counters);
	counters->xdp_pkts++;
	counters->xdp_bytes += p->l3_bytes;
	f->tcp_position = p->tcp_position;
	shunt_count_flow(family, f, entry, p->l3_bytes, now);
	return XDP_REDIRECT;
}

static __always_inline int handle(struct xdp_md *ctx, struct shunt_packet *p, __u32 family, struct ethhdr *eth,
				  void *end)
{
	void *l3 = (void *)eth + p->l2_bytes;
	union shunt_key key;
	struct shunt_flow *f;
	__u32 entry;

	if (shunt_parse_l3(family, l3, end, ctx->ingress_ifindex, p, &key) != SHUNT_OK || shunt_admit(p) != SHUNT_OK)
		return XDP_PASS;
	f = shunt_find(family, &key, shunt_hash(family, &key), &entry);
	if (!f || !(f->flags & SHUNT_FLOW_XDP))
		return XDP_PASS;
	return forward(ctx, p, family, f, entry, eth, l3, end);
}

SEC("xdp.frags")
int shunt_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct shunt_hw_tag none = {};
	struct shunt_packet p;
	__be16 proto_be;

	if (shunt_empty() || shunt_parse_l2(data, end, none, &p, &proto_be) != SHUNT_OK)
		return XDP_PASS;
	if (proto_be == shunt_htons(ETH_P_IP))
		return handle(ctx, &p, 4, data, end);
	if (proto_be == shunt_htons(ETH_P_IPV6))
		return handle(ctx, &p, 6, data, end);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
