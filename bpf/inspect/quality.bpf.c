// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Round trips and losses of TCP beyond each port, from the packets that enter and leave by it. Both directions of a
 * connection pass a port with the same addresses, so NAT does not matter, and the router itself is not in between.
 */
#define SHUNT_WITHOUT_KFUNCS
#include "include/learn/conntrack.h"
#include "inspect/quality_flow.h"

/* The number of the network namespace. Written by the loader. */
volatile const __u32 quality_netns SEC(".rodata.quality");

/* A packet with data inside the router. */
struct quality_transit {
	__u64 at; /* 0: it has left */
	__u32 seq;
	__u32 ack;
};

/* Ports by ifindex: enum quality_side. */
QUALITY_MAP(BPF_MAP_TYPE_HASH, quality_ports, QUALITY_PORTS, __u32, __u32);
QUALITY_MAP(BPF_MAP_TYPE_ARRAY, quality_router, QUALITY_SIDES, __u32, struct quality_router);
QUALITY_MAP(BPF_MAP_TYPE_ARRAY, quality_transits, QUALITY_TRANSITS, __u32, struct quality_transit);

static __always_inline struct quality_transit *transit_of(const struct quality_packet *p)
{
	__u32 slot = p->seq * 0x9e3779b1 >> 22;

	return bpf_map_lookup_elem(&quality_transits, &slot);
}

static __always_inline void start_transit(const struct quality_packet *p, __u64 now)
{
	struct quality_transit *transit = transit_of(p);

	if (!transit)
		return;
	transit->seq = p->seq;
	transit->ack = p->ack;
	transit->at = now;
}

/* No router changes sequence numbers. An aggregate may leave as segments; the first one has its number. */
static __always_inline void end_transit(const struct quality_packet *p, __u32 side, __u64 now)
{
	struct quality_transit *transit = transit_of(p);
	struct quality_router *router;
	__u64 at = transit ? transit->at : 0;

	if (!at || transit->seq != p->seq || transit->ack != p->ack || now < at)
		return;
	transit->at = 0;
	router = bpf_map_lookup_elem(&quality_router, &side);
	if (router)
		count_time(&router->transit, units(now - at));
}

/*
 * The host behind NAT that sent a packet: the source of its direction, from conntrack. Packets of the fast path do not
 * name their connection, but the first one and one every two seconds take the slow path. Returns -1 if it is unknown.
 */
static __always_inline int sender_behind_nat(const struct sk_buff___shunt *skb, __u32 family, __be32 *host_be)
{
	union nf_inet_addr___shunt addr = {};
	const struct nf_conn___shunt *ct;
	__u64 connection, info;

	if (!bpf_core_field_exists(skb->_nfct) || !bpf_core_type_exists(struct nf_conn___shunt))
		return -1;
	connection = skb->_nfct;
	info = connection & SHUNT_CTINFO_MASK;
	ct = (const void *)(connection & ~(__u64)SHUNT_CTINFO_MASK);
	if (!ct || info == SHUNT_CTINFO_UNTRACKED)
		return -1;
	if (info >= SHUNT_CTINFO_REPLY)
		BPF_CORE_READ_INTO(&addr, ct, tuplehash[1].tuple.src.u3);
	else
		BPF_CORE_READ_INTO(&addr, ct, tuplehash[0].tuple.src.u3);
	host_be[0] = addr.all[0];
	if (family == 6) {
		host_be[1] = addr.all[1];
		host_be[2] = addr.all[2];
		host_be[3] = addr.all[3];
	}
	return 0;
}

/*
 * The host that sent a packet to the WAN side. Returns 1 if its connection is not known, and the address is that of the
 * packet. A socket tells nothing: that of a sender in another namespace stays with fast packets.
 */
static __always_inline int sender(const struct sk_buff___shunt *skb, const struct quality_packet *p, __be32 *host_be)
{
	if (!sender_behind_nat(skb, p->key.family, host_be))
		return 0;
	__builtin_memcpy(host_be, p->key.inside_be, sizeof(p->key.inside_be));
	return 1;
}

/* A packet leaves of a connection that is not followed yet. */
static __always_inline void open(const struct sk_buff___shunt *skb, const struct quality_packet *p, __u32 side,
				 __u64 now)
{
	__u32 is_syn = !!(p->flags & SHUNT_TCP_SYN), end = p->seq + p->bytes + is_syn;
	struct quality_opening *known = bpf_map_lookup_elem(&quality_openings, &p->key);
	struct quality_opening opening = {
		.at = now,
		.end = end,
		.ack = p->ack,
		.has_bytes = end != p->seq,
		.has_ack = !!(p->flags & SHUNT_TCP_ACK),
		.is_syn = is_syn,
	};

	if (p->flags & SHUNT_TCP_RST)
		return;
	if (known && known->has_bytes && opening.has_bytes && !is_before(known->end, end)) {
		known->at = 0;
		return;
	}
	/* The acknowledgement of further bytes would be that of the first ones, too. */
	if (known && !is_syn && (known->has_bytes || !opening.has_bytes))
		return;
	if (side == QUALITY_WAN)
		opening.is_assumed = sender(skb, p, opening.host_be);
	bpf_map_update_elem(&quality_openings, &p->key, &opening, BPF_ANY);
}

/*
 * Whether a packet answers what has left: it acknowledges its bytes, or continues what it acknowledges. Nobody who did
 * not see that can invent one.
 */
static __always_inline int is_answer(const struct quality_opening *opening, const struct quality_packet *p)
{
	if (!(p->flags & SHUNT_TCP_ACK))
		return 0;
	return (opening->has_bytes && p->ack - opening->end < QUALITY_NEAR) ||
	       (opening->has_ack && p->bytes && p->seq - opening->ack < QUALITY_NEAR);
}

/* The answer to a connection's opening: from now on, it is followed. */
static __noinline struct quality_flow *answered(struct quality_packet *p, __u32 side, __u64 now)
{
	struct quality_opening *opening = bpf_map_lookup_elem(&quality_openings, &p->key);
	struct quality_flow *f;
	__u64 at;
	__u32 zero = 0, is_syn;

	if (!opening || !is_answer(opening, p))
		return NULL;
	f = bpf_map_lookup_elem(&quality_new_flow, &zero);
	if (!f || bpf_map_update_elem(&quality_flows, &p->key, f, BPF_NOEXIST))
		return NULL;
	f = bpf_map_lookup_elem(&quality_flows, &p->key);
	if (!f)
		return NULL;
	f->host.family = p->key.family;
	f->host.side = side;
	f->host.is_assumed = side == QUALITY_WAN && opening->is_assumed;
	if (side == QUALITY_LAN)
		__builtin_memcpy(f->host.addr_be, p->key.outside_be, sizeof(f->host.addr_be));
	else
		__builtin_memcpy(f->host.addr_be, opening->host_be, sizeof(f->host.addr_be));
	f->acked = p->ack;
	f->recovered = p->ack;
	/* The first data may be acknowledged late; a SYN is not. */
	at = opening->has_bytes && p->ack == opening->end ? opening->at : 0;
	is_syn = opening->is_syn;
	bpf_map_delete_elem(&quality_openings, &p->key);
	if (at)
		note_round_trip(f, units(now - at), is_syn, 0);
	return f;
}

static __always_inline void enter(struct quality_packet *p, __u32 side, __u64 now)
{
	struct quality_flow *f = bpf_map_lookup_elem(&quality_flows, &p->key);

	if (p->bytes)
		start_transit(p, now);
	if (!f)
		f = answered(p, side, now);
	else if (p->flags & SHUNT_TCP_ACK)
		acknowledged(f, p, now);
	if (!f)
		return;
	if (p->flags & SHUNT_TCP_SYN)
		restart(&f->in, p->seq + 1);
	else if (p->bytes)
		data_in(f, p, now);
}

static __always_inline void leave(const struct sk_buff___shunt *skb, struct quality_packet *p, __u32 side, __u64 now)
{
	struct quality_flow *f = bpf_map_lookup_elem(&quality_flows, &p->key);

	if (p->bytes)
		end_transit(p, side, now);
	/* A new connection with the addresses and ports of an old one. */
	if (f && (p->flags & (SHUNT_TCP_SYN | SHUNT_TCP_ACK)) == SHUNT_TCP_SYN) {
		bpf_map_delete_elem(&quality_flows, &p->key);
		f = NULL;
	}
	if (!f) {
		open(skb, p, side, now);
		return;
	}
	if (f->host.is_assumed)
		f->host.is_assumed = sender(skb, p, f->host.addr_be);
	if (p->flags & SHUNT_TCP_SYN)
		restart(&f->out, p->seq + 1);
	else if (p->bytes)
		data_out(f, p, now);
	left(f, p, now);
}

/* The side of the port that a packet is at; NULL if it is not at a port. */
static __always_inline const __u32 *side_of(const struct sk_buff___shunt *skb, struct quality_packet *p)
{
	const struct net_device___shunt *dev = skb->dev;

	if (!dev || dev->nd_net.net->ns.inum != quality_netns)
		return NULL;
	p->key.ifindex = dev->ifindex;
	return bpf_map_lookup_elem(&quality_ports, &p->key.ifindex);
}

static __always_inline int is_tcp(const struct sk_buff___shunt *skb, const void *l3, __be16 proto_be,
				  struct quality_packet *p)
{
	struct quality_unseen *missed;
	__u32 before = distance(l3, skb->data), bytes = skb->len, elsewhere = skb->data_len;
	int found;

	/* An aggregate is not linear. */
	if (elsewhere)
		p->segment_bytes = segment_bytes(skb);
	found = read_packet(l3, proto_be, bytes - elsewhere - before, bytes - before, p);
	if (found < 0) {
		missed = unseen();
		if (missed)
			count(&missed->unread, 1);
	}
	return found > 0;
}

SEC("tp_btf/netif_receive_skb")
int quality_entering(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct quality_packet p = {};
	const __u32 *side = side_of(skb, &p);
	const void *l3;
	__be16 proto_be;

	if (!side)
		return 0;
	l3 = skb->data;
	proto_be = skb->protocol;
	if (!skip_tags(&l3, &proto_be) && is_tcp(skb, l3, proto_be, &p))
		enter(&p, *side, bpf_ktime_get_ns());
	return 0;
}

/* net_dev_start_xmit(skb, dev): behind qdiscs and segmentation. */
SEC("tp_btf/net_dev_start_xmit")
int quality_leaving(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct quality_packet p = { .leaves = 1 };
	const __u32 *side = side_of(skb, &p);
	const void *l3;

	if (!side)
		return 0;
	l3 = skb->head + skb->network_header;
	if (is_tcp(skb, l3, skb->protocol, &p))
		leave(skb, &p, *side, bpf_ktime_get_ns());
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
