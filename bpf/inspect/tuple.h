/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the addresses and ports of a packet. */
#ifndef SHUNT_INSPECT_TUPLE_H
#define SHUNT_INSPECT_TUPLE_H

#include "core/parse.h"
#include "inspect/kernel.h"

/* Reads the tuple of an IP packet. Its family is 0 if it is not IP. Returns the length of the IP packet. */
static __noinline __u32 read_tuple(const void *l3, __be16 proto_be, struct trace_tuple *tuple)
{
	struct {
		__be16 sport_be;
		__be16 dport_be;
	} ports;
	struct ipv6hdr ip6;
	struct iphdr ip4;
	__u32 l4_at, bytes;

	__builtin_memset(tuple, 0, sizeof(*tuple));
	if (shunt_family_of(proto_be) == 4) {
		if (bpf_probe_read_kernel(&ip4, sizeof(ip4), l3) || ip4.version != 4)
			return 0;
		tuple->family = 4;
		tuple->src_be[0] = ip4.saddr;
		tuple->dst_be[0] = ip4.daddr;
		tuple->l4_proto = ip4.protocol;
		bytes = shunt_ntohs(ip4.tot_len);
		/* Only the first fragment has ports. */
		if (ip4.frag_off & shunt_htons(0x1fff))
			return bytes;
		l4_at = ip4.ihl * 4;
	} else if (shunt_family_of(proto_be) == 6) {
		if (bpf_probe_read_kernel(&ip6, sizeof(ip6), l3) || ip6.version != 6)
			return 0;
		tuple->family = 6;
		__builtin_memcpy(tuple->src_be, &ip6.saddr, sizeof(tuple->src_be));
		__builtin_memcpy(tuple->dst_be, &ip6.daddr, sizeof(tuple->dst_be));
		tuple->l4_proto = ip6.nexthdr;
		bytes = shunt_ntohs(ip6.payload_len) + sizeof(ip6);
		l4_at = sizeof(ip6);
	} else {
		return 0;
	}
	if ((tuple->l4_proto == IPPROTO_TCP || tuple->l4_proto == IPPROTO_UDP) &&
	    !bpf_probe_read_kernel(&ports, sizeof(ports), l3 + l4_at)) {
		tuple->sport_be = ports.sport_be;
		tuple->dport_be = ports.dport_be;
	}
	return bytes;
}

/*
 * Moves from the tags of a frame to its L3 header, and from their EtherType to that of the packet. Returns -1 on
 * failure.
 */
static __always_inline int skip_tags(const void **l3, __be16 *proto_be)
{
	struct shunt_vlan vlan;

	for (int tag = 0; tag < SHUNT_TAGS_MAX && shunt_is_vlan(*proto_be); tag++) {
		if (bpf_probe_read_kernel(&vlan, sizeof(vlan), *l3))
			return -1;
		*proto_be = vlan.proto_be;
		*l3 += sizeof(vlan);
	}
	return 0;
}

/* Reads the tuple of a packet whose L3 header Linux knows. */
static __always_inline __u32 read_known(const struct sk_buff___shunt *skb, struct trace_tuple *tuple)
{
	return read_tuple(skb->head + skb->network_header, skb->protocol, tuple);
}

#endif
