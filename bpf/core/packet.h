/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parsing: turns a frame into a packet description and a flow key. Freestanding: compiled for eBPF and for the
 * host.
 *
 * Every pointer is compared with `end` in the function that dereferences it: the verifier requires this, and
 * sanitizers on the host check it.
 */
#ifndef SHUNT_CORE_PACKET_H
#define SHUNT_CORE_PACKET_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "abi/shunt_abi.h"

/* The kernel's headers for user space define it as a mere hint. */
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define shunt_likely(x) __builtin_expect(!!(x), 1)
#define shunt_unlikely(x) __builtin_expect(!!(x), 0)

/* Keeps a value in one register: clang would compute parts of it again, or load it in parts. */
#ifdef __bpf__
#define shunt_keep(x) asm("" : "+r"(x))
#else
#define shunt_keep(x) ((void)(x))
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define shunt_ntohs(x) __builtin_bswap16(x)
#define shunt_ntohl(x) __builtin_bswap32(x)
#else
#define shunt_ntohs(x) (x)
#define shunt_ntohl(x) (x)
#endif
#define shunt_htons(x) shunt_ntohs(x)

/*
 * Words of headers. An L2 header begins at any even address, and an IP header at a multiple of four on machines that
 * cannot load words from elsewhere. eBPF loads words from anywhere; clang would load bytes if the types had a smaller
 * alignment.
 */
#ifdef __bpf__
typedef __u32 shunt_l2_u32;
typedef __u64 shunt_l2_u64;
#else
typedef __u32 shunt_l2_u32 __attribute__((aligned(2)));
typedef __u64 shunt_l2_u64 __attribute__((aligned(2)));
#endif

enum {
	SHUNT_TCP_FIN = 0x01,
	SHUNT_TCP_SYN = 0x02,
	SHUNT_TCP_RST = 0x04,
	SHUNT_TCP_ACK = 0x10,
	SHUNT_TCP_BOUNDS = SHUNT_TCP_FIN | SHUNT_TCP_SYN | SHUNT_TCP_RST, /* start or end of a connection */
	SHUNT_DSCP_MASK = 0xfc,
};

/* A VLAN tag that the driver stripped; `present` is 0 if there is none. */
struct shunt_hw_tag {
	__be16 tpid_be;
	__u16 tci;
	__u32 present;
};

/* The key of either family. The family is a compile-time constant wherever a key is used. */
union shunt_key {
	struct shunt_key4 v4;
	struct shunt_key6 v6;
	__u64 words[6]; /* IPv4 uses three */
};

struct shunt_packet {
	__u64 tcp_position; /* see shunt_tcp_position(); 0 for UDP */
	__be16 tpid_be[SHUNT_TAGS_MAX]; /* outermost first, including a tag that the driver stripped */
	__be16 tci_be[SHUNT_TAGS_MAX];
	/* As in struct shunt_flow, to be compared as one word. */
	union {
		struct {
			/* DSCP in 0xfc, priority and DEI of the outer tag in 0xf00, of the inner in 0xf000 */
			__u16 class_bits;
			__u8 ttl;
			__u8 _zero;
		};
		__u32 class_and_ttl;
	};
	__u16 l2_bytes; /* of the L2 header in the frame, without a stripped tag */
	__u16 l3_bytes; /* from the IP header; for a GSO aggregate, of the whole */
	__u16 wire_bytes; /* of the L3 packet, or of the largest segment of an aggregate */
	__u8 tags;
	__u8 family;
	__u8 l4_proto;
	__u8 l4_bytes; /* of the L4 header */
	__u8 tcp_flags;
};
_Static_assert(sizeof(struct shunt_packet) == 32, "crates/shunt-bpf/src/core.rs has the same layout");

/* The TTL, from the whole word: clang would split the word early for a member that is rarely needed. */
static __always_inline __u8 shunt_ttl_of(__u32 class_and_ttl)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return class_and_ttl >> 16;
#else
	return class_and_ttl >> 8;
#endif
}

static __always_inline int shunt_is_vlan(__be16 tpid_be)
{
	return tpid_be == shunt_htons(ETH_P_8021Q) || tpid_be == shunt_htons(ETH_P_8021AD);
}

static __always_inline void shunt_add_tag(struct shunt_packet *p, __be16 tpid_be, __be16 tci_be)
{
	/* Constant indices keep the struct in registers. */
	if (p->tags == 0) {
		p->tpid_be[0] = tpid_be;
		p->tci_be[0] = tci_be;
		p->class_bits |= (shunt_ntohs(tci_be) >> 4) & 0x0f00;
	} else {
		p->tpid_be[1] = tpid_be;
		p->tci_be[1] = tci_be;
		p->class_bits |= shunt_ntohs(tci_be) & 0xf000;
	}
	p->tags++;
}

struct shunt_vlan {
	__be16 tci_be;
	__be16 proto_be;
};

/* Parses the Ethernet header and at most two VLAN tags. */
static __always_inline enum shunt_reason shunt_parse_l2(void *data, void *end, struct shunt_hw_tag hw,
							struct shunt_packet *p, __be16 *proto_be)
{
	struct shunt_vlan *vlan = data + ETH_HLEN;

	*p = (struct shunt_packet){ .l2_bytes = ETH_HLEN };
	if ((void *)vlan > end)
		return SHUNT_BAD_HEADER;
	if (hw.present)
		shunt_add_tag(p, hw.tpid_be, shunt_htons(hw.tci));
	/* struct ethhdr is packed, and would make the compiler load the field in two halves. */
	*proto_be = vlan[-1].proto_be;
	if (shunt_likely(!shunt_is_vlan(*proto_be)))
		return SHUNT_OK;
	if ((void *)(vlan + 1) > end)
		return SHUNT_BAD_HEADER;
	shunt_add_tag(p, *proto_be, vlan->tci_be);
	*proto_be = vlan->proto_be;
	p->l2_bytes += sizeof(*vlan);
	if (!shunt_is_vlan(*proto_be))
		return SHUNT_OK;
	if (p->tags == SHUNT_TAGS_MAX)
		return SHUNT_TAGS;
	vlan++;
	if ((void *)(vlan + 1) > end)
		return SHUNT_BAD_HEADER;
	shunt_add_tag(p, *proto_be, vlan->tci_be);
	*proto_be = vlan->proto_be;
	p->l2_bytes += sizeof(*vlan);
	return shunt_is_vlan(*proto_be) ? SHUNT_TAGS : SHUNT_OK;
}

/* Begins the description of a frame without VLAN tags. */
static __always_inline void shunt_untagged(struct shunt_packet *p)
{
	*p = (struct shunt_packet){ .l2_bytes = ETH_HLEN };
}

/*
 * The position of one direction of a TCP connection after a packet: the sequence number after the packet's data,
 * and the acknowledgement as on the wire. 0 means unknown.
 */
static __always_inline __u64 shunt_tcp_position(__u32 end, __be32 ack_be)
{
	return (__u64)ack_be << 32 | end;
}

/*
 * Parses the ports, and the flags and position of TCP. `bytes` is the length of the L4 header and payload; negative if the
 * IP packet is shorter than its header.
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

static __always_inline void shunt_key_tags(__u16 tags[SHUNT_TAGS_MAX], const struct shunt_packet *p)
{
	__u16 ad = shunt_htons(ETH_P_8021AD);

	tags[0] = 0;
	tags[1] = 0;
	if (shunt_unlikely(p->tags > 0))
		tags[0] = SHUNT_TAG_PRESENT | (p->tpid_be[0] == ad ? SHUNT_TAG_8021AD : 0) |
			  (shunt_ntohs(p->tci_be[0]) & SHUNT_TAG_VID);
	if (p->tags > 1)
		tags[1] = SHUNT_TAG_PRESENT | (p->tpid_be[1] == ad ? SHUNT_TAG_8021AD : 0) |
			  (shunt_ntohs(p->tci_be[1]) & SHUNT_TAG_VID);
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
	p->ttl = ip->ttl;
	p->l3_bytes = shunt_ntohs(ip->tot_len);
	p->wire_bytes = p->l3_bytes;
	p->class_bits |= ip->tos & SHUNT_DSCP_MASK;
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
	p->ttl = ip->hop_limit;
	p->class_bits |= ((bytes[0] << 4) | (bytes[1] >> 4)) & SHUNT_DSCP_MASK;
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

/*
 * The end of the headers of a packet without options. A caller that has found them to be within the frame may pass this as
 * the end of the frame: clang then knows the results of the comparisons with it.
 */
static __always_inline void *shunt_headers_end(__u32 family, __u8 l4_proto, void *l3)
{
	return (__u8 *)l3 + shunt_l3_size(family) + shunt_l4_size(l4_proto);
}

#endif
