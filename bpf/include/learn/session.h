/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Learns the sessions of PPPoE, by two looks at one packet: as it leaves a ppp port, and as it leaves the Ethernet port
 * below. In between, ppp and PPPoE put their headers before it, on the same CPU, and keep skb->tc_index.
 */
#ifndef SHUNT_SESSION_H
#define SHUNT_SESSION_H

#include "include/learn/egress.h"
#include "include/table/sessions.h"

/* The last packet that left a port without layer 2 on this CPU. */
struct shunt_descending {
	__u64 packet; /* the identity of the sk_buff; 0 if there is none */
	__u32 ifindex; /* of the port */
	__u32 family;
	__u8 l3[SHUNT_L3_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_descending);
} shunt_descending SEC(".maps");

/* Notes a packet that leaves a port without layer 2, for the port below. `l3` is its header. */
static __always_inline void shunt_descend(struct __sk_buff *skb, __u32 family, const __u8 *l3)
{
	__u32 zero = 0;
	struct shunt_descending *down = bpf_map_lookup_elem(&shunt_descending, &zero);

	/* Aggregates are cut into segments below. */
	if (!down || skb->gso_size)
		return;
	down->packet = shunt_skb_identity(skb);
	down->ifindex = skb->ifindex;
	down->family = family;
	__builtin_memcpy(down->l3, l3, SHUNT_L3_MAX);
	skb->tc_index = SHUNT_COOKIE_DESCENDS;
}

/* Whether the header behind a session's is the one that was noted. */
static __always_inline int shunt_has_l3(struct __sk_buff *skb, __u32 at, const struct shunt_descending *down)
{
	__u64 l3[SHUNT_L3_MAX / 8] = {};
	const __u64 *was = (const __u64 *)down->l3;
	__u64 differ = 0;

	if (down->family == 4 ? bpf_skb_load_bytes(skb, at, l3, sizeof(struct iphdr)) :
				bpf_skb_load_bytes(skb, at, l3, sizeof(struct ipv6hdr)))
		return 0;
#pragma unroll
	for (__u32 i = 0; i < SHUNT_L3_MAX / 8; i++)
		differ |= l3[i] ^ was[i];
	return !differ;
}

/* Renews the session of a ppp port, or notes that it has become another one. */
static __always_inline void shunt_store_session(__u32 ppp, const struct shunt_session *s)
{
	struct shunt_session *have = bpf_map_lookup_elem(&shunt_sessions, &ppp);
	struct shunt_session_key key = shunt_session_key(s), former;
	const __u32 *owner;

	if (have && have->below == s->below && have->tags == s->tags &&
	    !shunt_differ(have->header, s->header, SHUNT_L2_MAX / 2)) {
		have->proved_ticks = s->proved_ticks;
		return;
	}
	if (have) {
		former = shunt_session_key(have);
		owner = bpf_map_lookup_elem(&shunt_session_ports, &former);
		/* Another ppp port may have got the number meanwhile. */
		if (owner && *owner == ppp)
			bpf_map_delete_elem(&shunt_session_ports, &former);
	}
	bpf_map_update_elem(&shunt_sessions, &ppp, s, BPF_ANY);
	bpf_map_update_elem(&shunt_session_ports, &key, &ppp, BPF_ANY);
}

/* Learns the session of a packet that was noted by shunt_descend(), and leaves an Ethernet port. */
__noinline int shunt_out_descends(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	__u32 zero = 0, family, bytes, at;
	struct shunt_session s = { .proved_ticks = shunt_now(), .below = skb->ifindex };
	struct shunt_descending *down;
	struct shunt_pppoe *header;
	struct shunt_packet p;

	down = bpf_map_lookup_elem(&shunt_descending, &zero);
	skb->tc_index = 0;
	if (!port || port->flags & SHUNT_PORT_NO_L2 || !down || down->packet != shunt_skb_identity(skb))
		return SHUNT_TC_NEXT;
	down->packet = 0;
	if (shunt_parse_l2(data, end, shunt_skb_tag(skb), &p, &family) != SHUNT_OK || family || p.tags > 1)
		return SHUNT_TC_NEXT;
	at = shunt_bound(p.l2_bytes, 31);
	header = data + at;
	if (!shunt_is_pppoe(header, end) || shunt_pppoe_family(header, &bytes) != down->family)
		return SHUNT_TC_NEXT;
	at += sizeof(*header);
	/* Linux does not pad packets here. */
	if (skb->len != at + bytes)
		return SHUNT_TC_NEXT;
	shunt_describe_session(&s, data, &p, header);
	if (shunt_has_l3(skb, at, down))
		shunt_store_session(down->ifindex, &s);
	return SHUNT_TC_NEXT;
}

#endif
