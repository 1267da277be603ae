/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parsing from the IP header on: fills a packet description and a flow key. Freestanding: compiled for eBPF and for the
 * host.
 *
 * Every pointer is compared with `end` in the function that dereferences it: the verifier requires this, and
 * sanitizers on the host check it.
 */
#ifndef SHUNT_CORE_PARSE_H
#define SHUNT_CORE_PARSE_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "core/encap.h"

enum {
	SHUNT_TCP_FIN = 0x01,
	SHUNT_TCP_SYN = 0x02,
	SHUNT_TCP_RST = 0x04,
	SHUNT_TCP_ACK = 0x10,
	SHUNT_TCP_BOUNDS = SHUNT_TCP_FIN | SHUNT_TCP_SYN | SHUNT_TCP_RST, /* start or end of a connection */
	SHUNT_DSCP_MASK = 0xfc,
};

/*
 * The position of one direction of a TCP connection after a packet: the sequence number after the packet's data,
 * and the acknowledgement as on the wire. 0 means unknown.
 */
static __always_inline __u64 shunt_tcp_position(__u32 end, __be32 ack_be)
{
	return (__u64)ack_be << 32 | end;
}

/*
 * Parses the ports, and the flags and position of TCP. `bytes` is the length of the L4 header and payload; negative if
 * the IP packet is shorter than its header.
 */
static __always_inline enum shunt_reason shunt_parse_l4(void *l4, void *end, __s32 bytes, struct shunt_packet *p,
							__be32 *ports_be)
{
	struct tcphdr *tcp = l4;
	struct udphdr *udp = l4;

	if (p->l4_proto == IPPROTO_TCP) {
		if (shunt_unlikely((void *)(tcp + 1) > end))
			return SHUNT_BAD_HEADER;
		p->l4_bytes = (((__u8 *)tcp)[12] >> 4) * 4;
		p->tcp_flags = ((__u8 *)tcp)[13];
		if (shunt_unlikely(p->l4_bytes < sizeof(*tcp) || bytes < p->l4_bytes))
			return SHUNT_BAD_HEADER;
		p->tcp_position = shunt_tcp_position(shunt_ntohl(tcp->seq) + bytes - p->l4_bytes, tcp->ack_seq);
	} else if (p->l4_proto == IPPROTO_UDP) {
		if (shunt_unlikely((void *)(udp + 1) > end))
			return SHUNT_BAD_HEADER;
		p->l4_bytes = sizeof(*udp);
		/* Linux uses the shorter of the two lengths. If they disagree, let Linux decide. */
		if (shunt_unlikely(bytes < (__s32)sizeof(*udp) || shunt_ntohs(udp->len) != bytes))
			return SHUNT_BAD_HEADER;
	} else {
		return SHUNT_PROTOCOL;
	}
	/* Copy both ports at once: the key has the layout of the header. */
	*ports_be = *(__be32 *)l4;
	return SHUNT_OK;
}

static __always_inline enum shunt_reason shunt_parse_ipv4(void *l3, void *end, __u32 ifindex, struct shunt_packet *p,
							  struct shunt_key4 *key)
{
	const shunt_l2_u64 *addrs = l3 + __builtin_offsetof(struct iphdr, saddr);
	struct iphdr *ip = l3;

	*key = (struct shunt_key4){ .ifindex = ifindex };
	if (shunt_unlikely((void *)(ip + 1) > end))
		return SHUNT_BAD_HEADER;
	if (shunt_unlikely(*(__u8 *)ip != 0x45))
		return *(__u8 *)ip >> 4 == 4 && (*(__u8 *)ip & 15) > 5 ? SHUNT_OPTIONS : SHUNT_BAD_HEADER;
	p->family = 4;
	p->l4_proto = ip->protocol;
	p->l3_bytes = shunt_ntohs(ip->tot_len);
	p->wire_bytes = p->l3_bytes;
	p->class_and_ttl |= shunt_class_and_ttl(ip->tos & SHUNT_DSCP_MASK, ip->ttl);
	shunt_keep(p->class_and_ttl);
	if (shunt_unlikely(ip->frag_off & shunt_htons(0x3fff)))
		return SHUNT_FRAGMENT;
	/* Copy both addresses: the key has the layout of the header. */
	((__u64 *)key)[0] = addrs[0];
	key->l4_proto = ip->protocol;
	shunt_key_tags(key->tags, p);
	return shunt_parse_l4(ip + 1, end, p->l3_bytes - (__s32)sizeof(*ip), p, (__be32 *)&key->sport_be);
}

static __always_inline enum shunt_reason shunt_parse_ipv6(void *l3, void *end, __u32 ifindex, struct shunt_packet *p,
							  struct shunt_key6 *key)
{
	const shunt_l2_u64 *addrs = l3 + __builtin_offsetof(struct ipv6hdr, saddr);
	struct ipv6hdr *ip = l3;
	__u8 *bytes = l3;

	*key = (struct shunt_key6){ .ifindex = ifindex };
	if (shunt_unlikely((void *)(ip + 1) > end))
		return SHUNT_BAD_HEADER;
	if (shunt_unlikely(bytes[0] >> 4 != 6))
		return SHUNT_BAD_HEADER;
	p->family = 6;
	p->l4_proto = ip->nexthdr;
	p->class_and_ttl |= shunt_class_and_ttl(((bytes[0] << 4) | (bytes[1] >> 4)) & SHUNT_DSCP_MASK, ip->hop_limit);
	shunt_keep(p->class_and_ttl);
	if (shunt_unlikely(ip->nexthdr == IPPROTO_FRAGMENT))
		return SHUNT_FRAGMENT;
	if (shunt_unlikely(ip->nexthdr == IPPROTO_HOPOPTS || ip->nexthdr == IPPROTO_ROUTING ||
			   ip->nexthdr == IPPROTO_DSTOPTS))
		return SHUNT_OPTIONS;
	/* A payload of more than 16 bits (jumbogram, BIG TCP) has length 0 or wraps. Both fail here or at L4. */
	if (shunt_unlikely(shunt_ntohs(ip->payload_len) > 0xffff - sizeof(*ip)))
		return SHUNT_BAD_HEADER;
	p->l3_bytes = shunt_ntohs(ip->payload_len) + sizeof(*ip);
	p->wire_bytes = p->l3_bytes;
	/* Copy both addresses: the key has the layout of the header. */
#pragma unroll
	for (int i = 0; i < 4; i++)
		((__u64 *)key)[i] = addrs[i];
	key->l4_proto = ip->nexthdr;
	shunt_key_tags(key->tags, p);
	return shunt_parse_l4(ip + 1, end, p->l3_bytes - sizeof(*ip), p, (__be32 *)&key->sport_be);
}

static __always_inline enum shunt_reason shunt_parse_l3(__u32 family, void *l3, void *end, __u32 ifindex,
							struct shunt_packet *p, union shunt_key *key)
{
	return family == 4 ? shunt_parse_ipv4(l3, end, ifindex, p, &key->v4) :
			     shunt_parse_ipv6(l3, end, ifindex, p, &key->v6);
}

static __always_inline __u32 shunt_l3_size(__u32 family)
{
	return family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

/* Size of both addresses, which end the L3 header. */
static __always_inline __u32 shunt_addrs_size(__u32 family)
{
	return family == 4 ? 2 * sizeof(__be32) : 2 * sizeof(struct in6_addr);
}

/* Size of the L4 header, without options. */
static __always_inline __u32 shunt_l4_size(__u8 l4_proto)
{
	return l4_proto == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);
}

/* The L4 protocol of an IP header without options, or the next header of IPv6. */
static __always_inline __u8 shunt_l4_proto_of(__u32 family, const void *l3)
{
	return family == 4 ? ((const struct iphdr *)l3)->protocol : ((const struct ipv6hdr *)l3)->nexthdr;
}

/* The TTL or the hop limit of an IP header. */
static __always_inline __u8 shunt_hop_limit_of(__u32 family, const void *l3)
{
	return family == 4 ? ((const struct iphdr *)l3)->ttl : ((const struct ipv6hdr *)l3)->hop_limit;
}

/*
 * The end of the headers of a packet without options. A caller that has found them to be within the frame may pass this
 * as the end of the frame: clang then knows the results of the comparisons with it.
 */
static __always_inline void *shunt_headers_end(__u32 family, __u8 l4_proto, void *l3)
{
	return (__u8 *)l3 + shunt_l3_size(family) + shunt_l4_size(l4_proto);
}

#endif
