/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether conntrack's state of a connection allows the fast path to forward its packets. */
#ifndef SHUNT_JUDGE_H
#define SHUNT_JUDGE_H

#include "include/learn/egress.h"
#include "include/events.h"
#include "include/skb.h"

/* A connection in the kernel's memory, and what learning knows of it. */
struct shunt_connection {
	unsigned long at; /* the address of its nf_conn; 0 if there is none */
	const struct nf_conn___shunt *ct; /* a copy in the scratch space */
	int reply; /* the packet belongs to the reply direction */
	int held; /* the packet holds a reference */
};

static __always_inline int shunt_ct_is_offloaded(const struct nf_conn___shunt *ct)
{
	return !!(ct->status & (SHUNT_IPS_OFFLOAD | SHUNT_IPS_HW_OFFLOAD));
}

/* Copies the connection at an address. Returns -1 on failure. */
static __always_inline int shunt_ct_copy(const struct egress *s, unsigned long at)
{
	__u32 bytes = bpf_core_type_size(struct nf_conn___shunt);

	return bpf_probe_read_kernel(s->scratch->connection, bytes < SHUNT_CT_MAX ? bytes : SHUNT_CT_MAX,
				     (const void *)at);
}

#ifdef SHUNT_WITHOUT_KFUNCS

/* Such a connection has no packets with a reference to it, and no kfunc finds it. */
static __always_inline unsigned long shunt_ct_find_offloaded(const struct egress *s, __u32 family, unsigned long at,
							     __u8 *dir)
{
	(void)s;
	(void)family;
	(void)at;
	*dir = 0;
	return 0;
}

#else

/*
 * Finds a connection that nf_flowtable has taken over, whose packets it forwards without conntrack, by the reversed
 * tuple of a packet at egress. With `at`, finds only the connection there. Returns its address, or 0 if there is none,
 * or if it is being deleted; `dir` is the direction that matched.
 */
static __always_inline unsigned long shunt_ct_find_offloaded(const struct egress *s, __u32 family, unsigned long at,
							     __u8 *dir)
{
	struct bpf_ct_opts___shunt opts = { .netns_id = -1, .l4proto = s->c->l4_proto };
	const __be16 *ports = (const __be16 *)s->scratch->seen.l4;
	const __u32 *addr = shunt_header_addrs(family, &s->scratch->seen);
	struct bpf_sock_tuple tuple = {};
	unsigned long found;
	struct nf_conn___shunt *ct;

	/* The address of a kfunc would say the same, but 6.1 refuses to load it. */
	if (!bpf_core_type_exists(struct bpf_ct_opts___shunt))
		return 0;
	if (family == 4) {
		__builtin_memcpy(&tuple.ipv4.saddr, addr + 1, 4);
		__builtin_memcpy(&tuple.ipv4.daddr, addr, 4);
		tuple.ipv4.sport = ports[1];
		tuple.ipv4.dport = ports[0];
		ct = bpf_skb_ct_lookup(s->skb, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, addr + 4, 16);
		__builtin_memcpy(tuple.ipv6.daddr, addr, 16);
		tuple.ipv6.sport = ports[1];
		tuple.ipv6.dport = ports[0];
		ct = bpf_skb_ct_lookup(s->skb, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	}
	if (!ct)
		return 0;
	found = (unsigned long)ct;
	if ((at && found != at) || !shunt_ct_is_offloaded(ct) || ct->status & SHUNT_IPS_DYING ||
	    (!at && shunt_ct_copy(s, found)))
		found = 0;
	bpf_ct_release(ct);
	*dir = opts.dir;
	return found;
}

#endif

/*
 * Finds the connection of a packet at egress, and copies it. The address is 0 if conntrack does not track the packet,
 * or only in a zone.
 */
static __always_inline struct shunt_connection shunt_ct_find(const struct egress *s, __u32 family)
{
	struct shunt_connection found = { .ct = (const struct nf_conn___shunt *)s->scratch->connection };
	unsigned long nfct = shunt_skb_connection(s->skb);
	__u8 dir = 0;

	found.at = nfct & ~(unsigned long)SHUNT_CTINFO_MASK;
	found.held = !!found.at;
	if (found.held) {
		found.reply = (nfct & SHUNT_CTINFO_MASK) >= SHUNT_CTINFO_REPLY;
		if (shunt_ct_copy(s, found.at))
			found.at = 0;
	} else {
		found.at = shunt_ct_find_offloaded(s, family, 0, &dir);
		/* The look-up used the reversed tuple, so the packet belongs to the other direction. */
		found.reply = dir == 0;
	}
	if (found.at && bpf_core_field_exists(found.ct->zone) && found.ct->zone.id)
		found.at = 0;
	return found;
}

/* Whether a connection is being deleted by now, or is gone. */
static __always_inline int shunt_ct_is_dying(const struct egress *s, __u32 family, const struct shunt_connection *found)
{
	unsigned long status;
	__u8 dir;

	if (!found->held)
		return !shunt_ct_find_offloaded(s, family, found->at, &dir);
	status = BPF_CORE_READ_BITFIELD_PROBED((const struct nf_conn___shunt *)found->at, status);
	return !!(status & SHUNT_IPS_DYING);
}

/*
 * Whether a direction of a connection has these addresses and ports, the source first. Addresses have one word with
 * IPv4, and four with IPv6.
 */
static __always_inline int shunt_ct_same_tuple(__u32 family, const struct nf_conntrack_tuple___shunt *t,
					       const __u32 *src, const __u32 *dst, __be16 sport_be, __be16 dport_be)
{
	if (t->src.u.all != sport_be || t->dst.u.all != dport_be)
		return 0;
	if (family == 4)
		return t->src.u3.all[0] == src[0] && t->dst.u3.all[0] == dst[0];
	return t->src.u3.all[0] == src[0] && t->src.u3.all[1] == src[1] && t->src.u3.all[2] == src[2] &&
	       t->src.u3.all[3] == src[3] && t->dst.u3.all[0] == dst[0] && t->dst.u3.all[1] == dst[1] &&
	       t->dst.u3.all[2] == dst[2] && t->dst.u3.all[3] == dst[3];
}

/* Whether the candidate has the tuple of one direction, and the packet at egress the reversed tuple of the other. */
static __always_inline int shunt_ct_same_tuples(const struct egress *s, __u32 family,
						const struct nf_conntrack_tuple___shunt *in,
						const struct nf_conntrack_tuple___shunt *back)
{
	__u32 next = family == 4 ? 1 : 4;
	const __be16 *old_ports = (const __be16 *)s->c->headers.l4;
	const __be16 *new_ports = (const __be16 *)s->scratch->seen.l4;
	const __u32 *old = shunt_header_addrs(family, &s->c->headers);
	const __u32 *new = shunt_header_addrs(family, &s->scratch->seen);

	return shunt_ct_same_tuple(family, in, old, old + next, old_ports[0], old_ports[1]) &&
	       shunt_ct_same_tuple(family, back, new + next, new, new_ports[1], new_ports[0]);
}

/* Asks the daemon to set IP_CT_TCP_FLAG_BE_LIBERAL on both directions of a connection. */
static __always_inline void shunt_ct_request_liberal(__u32 family, const struct nf_conn___shunt *ct, __u32 ifindex)
{
	const struct nf_conntrack_tuple___shunt *t = &ct->tuplehash[0].tuple;
	struct shunt_event *event = bpf_ringbuf_reserve(&shunt_events, sizeof(*event), 0);
	__u32 *src, *dst;

	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = SHUNT_EVENT_SET_LIBERAL;
	event->family = family;
	event->l4_proto = IPPROTO_TCP;
	event->sport_be = t->src.u.all;
	event->dport_be = t->dst.u.all;
	event->ifindex = ifindex;
	src = (__u32 *)event->src_be;
	dst = (__u32 *)event->dst_be;
	src[0] = t->src.u3.all[0];
	dst[0] = t->dst.u3.all[0];
	if (family == 6) {
		src[1] = t->src.u3.all[1];
		src[2] = t->src.u3.all[2];
		src[3] = t->src.u3.all[3];
		dst[1] = t->dst.u3.all[1];
		dst[2] = t->dst.u3.all[2];
		dst[3] = t->dst.u3.all[3];
	}
	bpf_ringbuf_submit(event, 0);
}

/*
 * Reports a connection that is too far ahead of conntrack.
 *
 * Liberal or not, conntrack advances its window only by packets inside the window. Once it has missed more than a
 * window, its state stays where it is. When the connection is 2 GiB ahead, conntrack takes an RST for an old one
 * and calls it invalid. It would not do so without IP_CT_TCP_FLAG_MAXACK_SET, so the daemon clears that flag. A
 * packet with a damaged or forged acknowledgement must not cause this: the packet must acknowledge what the other
 * direction has sent.
 */
static __always_inline void shunt_ct_report_lag(const struct egress *s, __u32 family, const struct nf_conn___shunt *ct,
						int reply)
{
	__u32 maxack[2] = { ct->proto.tcp.seen[0].td_maxack, ct->proto.tcp.seen[1].td_maxack };
	__u8 flags[2] = { ct->proto.tcp.seen[0].flags, ct->proto.tcp.seen[1].flags };
	const struct shunt_flow *other;
	union shunt_key key;

	/* No variable index: CO-RE relocations of conntrack's structures need constant offsets. */
	if (!((reply ? flags[1] : flags[0]) & SHUNT_TCP_MAXACK_SET) ||
	    !shunt_tcp_lags(shunt_candidate_position(s->c), reply ? maxack[1] : maxack[0]))
		return;
	other = shunt_find_reverse(s, family);
	if (!other || !shunt_tcp_acknowledges(shunt_candidate_position(s->c), other->tcp_position))
		return;
	shunt_candidate_key(family, s->c, &key);
	shunt_report(SHUNT_EVENT_LAGS, family, &key, reply, 0);
}

/*
 * Whether conntrack's state allows this connection on the fast path. Adds SHUNT_FLOW_REPLY and SHUNT_FLOW_UNREPLIED to
 * `flags`.
 */
static __always_inline enum shunt_reason shunt_ct_judge(const struct egress *s, __u32 family,
							const struct shunt_connection *found, __u8 *flags)
{
	const struct nf_conn___shunt *ct = found->ct;
	unsigned long status = ct->status;
	struct nf_ct_ext___shunt *ext = ct->ext;
	__u8 both;

	if (found->reply) {
		*flags |= SHUNT_FLOW_REPLY;
		if (!shunt_ct_same_tuples(s, family, &ct->tuplehash[1].tuple, &ct->tuplehash[0].tuple))
			return SHUNT_OTHER_TUPLE;
	} else if (!shunt_ct_same_tuples(s, family, &ct->tuplehash[0].tuple, &ct->tuplehash[1].tuple)) {
		return SHUNT_OTHER_TUPLE;
	}
	if (status & SHUNT_IPS_DYING)
		return SHUNT_DYING;
	if (!(status & SHUNT_IPS_CONFIRMED))
		return SHUNT_UNCONFIRMED;
	/* A connection that a helper expected may have the helper too, without the status bit. */
	if (status & SHUNT_IPS_HELPER || (ext && BPF_CORE_READ(ext, offset[0])))
		return SHUNT_HELPER;
	if (bpf_core_field_exists(ct->mark) &&
	    shunt_mark_excluded(ct->mark, shunt_control.exclude_ct_mark, shunt_control.exclude_ct_mark_mask))
		return SHUNT_EXCLUDED;
	if (status & (SHUNT_IPS_SEQ_ADJUST | SHUNT_IPS_NAT_CLASH))
		return SHUNT_SEQ_ADJUST;
	if (s->c->l4_proto == IPPROTO_UDP) {
		if (status & SHUNT_IPS_SEEN_REPLY)
			return SHUNT_OK;
		*flags |= SHUNT_FLOW_UNREPLIED;
		if (shunt_control.flags & (family == 4 ? SHUNT_CONTROL_HOLD_UDP4 : SHUNT_CONTROL_HOLD_UDP6))
			return SHUNT_OLD_EPOCH; /* ingress has let it pass, so the hold has begun since */
		if (shunt_control.flags & (family == 4 ? SHUNT_CONTROL_HOLD_NEW4 : SHUNT_CONTROL_HOLD_NEW6))
			return SHUNT_UNREPLIED;
		return shunt_control.flags & SHUNT_CONTROL_UDP_UNREPLIED ? SHUNT_OK : SHUNT_UNREPLIED;
	}
	if (ct->proto.tcp.state != SHUNT_TCP_CONNTRACK_ESTABLISHED || !(status & SHUNT_IPS_ASSURED))
		return SHUNT_NOT_ESTABLISHED;
	both = ct->proto.tcp.seen[0].flags & ct->proto.tcp.seen[1].flags;
	/*
	 * In a connection picked up midstream, conntrack accepts any RST until it has seen an acknowledgement from each
	 * end. If the daemon cleared the flag (shunt_ct_report_lag()), td_maxack is still set.
	 */
	if (!(both & SHUNT_TCP_MAXACK_SET) && (!ct->proto.tcp.seen[0].td_maxack || !ct->proto.tcp.seen[1].td_maxack))
		return SHUNT_NOT_ESTABLISHED;
	if (!(both & SHUNT_TCP_BE_LIBERAL)) {
		shunt_ct_request_liberal(family, ct, s->c->ifindex);
		return SHUNT_NOT_LIBERAL;
	}
	shunt_ct_report_lag(s, family, ct, !!(*flags & SHUNT_FLOW_REPLY));
	return SHUNT_OK;
}

/*
 * Schedules the next proof well before conntrack times the connection out, since the timeout may be short (nft
 * `ct timeout`): conntrack must see a packet by then.
 */
static __always_inline void shunt_ct_limit_reprove(const struct egress *s, const struct nf_conn___shunt *ct,
						   struct shunt_flow *f)
{
	__u32 ticks = (ct->timeout - s->now) / 3;

	if (ticks < shunt_control.reprove_ticks)
		f->reprove_at_ticks = s->now + ticks;
}

#endif
