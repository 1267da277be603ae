/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the TCP header of a packet at a port. */
#ifndef SHUNT_INSPECT_QUALITY_PACKET_H
#define SHUNT_INSPECT_QUALITY_PACKET_H

#include "inspect/tuple.h"
#include "inspect/quality.h"

enum {
	TCP_NOP = 1,
	TCP_SACK = 5,
	TCP_STAMP = 8,
	TCP_STAMP_BYTES = 10,
	TCP_OPTIONS_MAX = 20, /* that are read to find a block of SACK */
};

/* A connection at a port: the end beyond the port, and the end on the other side of the router. */
struct quality_key {
	__be32 outside_be[4];
	__be32 inside_be[4];
	__be16 outside_port_be;
	__be16 inside_port_be;
	__u32 ifindex;
	__u32 family;
};

struct quality_packet {
	struct quality_key key;
	__u32 leaves; /* set by the caller: 1 if the packet leaves by the port */
	__u32 seq;
	__u32 ack;
	__u32 bytes; /* of payload */
	__u32 segment_bytes; /* of payload, of each segment of an aggregate; set by the caller, 0 for no aggregate */
	__u32 flags;
	__u32 has_stamp;
	__u32 stamp;
	__u32 echo;
	__u32 options_bytes;
	__u64 options_at;
};

/* A TCP header with the time stamps that most systems put first. */
struct quality_header {
	struct tcphdr tcp;
	__u8 nops[2];
	__u8 kind;
	__u8 bytes;
	__be32 stamp_be;
	__be32 echo_be;
};

static __always_inline void set_addresses(struct quality_key *key, const void *src, const void *dst, __u32 bytes,
					  int leaves)
{
	if (leaves) {
		__builtin_memcpy(key->outside_be, dst, bytes);
		__builtin_memcpy(key->inside_be, src, bytes);
	} else {
		__builtin_memcpy(key->outside_be, src, bytes);
		__builtin_memcpy(key->inside_be, dst, bytes);
	}
}

/* Reads a TCP header, with `linear` bytes from the L3 header on that can be read. Returns -1 if it has fewer. */
static __always_inline int read_tcp(const void *l3, __u32 l4_at, __u32 l3_bytes, __u32 linear, struct quality_packet *p)
{
	struct quality_header h;
	__u32 header;

	if (l4_at + sizeof(h.tcp) > linear || bpf_probe_read_kernel(&h, sizeof(h), l3 + l4_at))
		return -1;
	header = (((__u8 *)&h.tcp)[12] >> 4) * 4;
	if (header < sizeof(h.tcp) || l4_at + header > l3_bytes || l4_at + header > linear)
		return -1;
	p->key.outside_port_be = p->leaves ? h.tcp.dest : h.tcp.source;
	p->key.inside_port_be = p->leaves ? h.tcp.source : h.tcp.dest;
	p->seq = shunt_ntohl(h.tcp.seq);
	p->ack = shunt_ntohl(h.tcp.ack_seq);
	p->flags = ((__u8 *)&h.tcp)[13];
	p->bytes = l3_bytes - l4_at - header;
	p->options_at = (__u64)l3 + l4_at + sizeof(h.tcp);
	p->options_bytes = header - sizeof(h.tcp);
	if (header >= sizeof(h) && h.nops[0] == TCP_NOP && h.nops[1] == TCP_NOP && h.kind == TCP_STAMP &&
	    h.bytes == TCP_STAMP_BYTES) {
		p->has_stamp = 1;
		p->stamp = shunt_ntohl(h.stamp_be);
		p->echo = shunt_ntohl(h.echo_be);
	}
	return 0;
}

/*
 * Reads a packet of `total` bytes from its L3 header on; the first `linear` bytes can be read. Returns 1 for TCP, 0 for
 * another packet, and -1 for TCP that cannot be read.
 */
static __noinline int read_packet(const void *l3, __be16 proto_be, __u32 linear, __u32 total, struct quality_packet *p)
{
	struct ipv6hdr ip6;
	struct iphdr ip4;
	__u32 l4_at, l3_bytes;

	p->key.family = shunt_family_of(proto_be);
	if (p->key.family == 4) {
		if (bpf_probe_read_kernel(&ip4, sizeof(ip4), l3) || ip4.version != 4 || ip4.protocol != IPPROTO_TCP ||
		    ip4.frag_off & shunt_htons(0x3fff))
			return 0;
		l4_at = ip4.ihl * 4;
		l3_bytes = shunt_ntohs(ip4.tot_len);
		set_addresses(&p->key, &ip4.saddr, &ip4.daddr, sizeof(ip4.saddr), p->leaves);
	} else if (p->key.family == 6) {
		if (bpf_probe_read_kernel(&ip6, sizeof(ip6), l3) || ip6.version != 6 || ip6.nexthdr != IPPROTO_TCP)
			return 0;
		l4_at = sizeof(ip6);
		l3_bytes = shunt_ntohs(ip6.payload_len) + sizeof(ip6);
		set_addresses(&p->key, &ip6.saddr, &ip6.daddr, sizeof(ip6.saddr), p->leaves);
	} else {
		return 0;
	}
	/* Lengths of aggregates above 64 KiB are 0. */
	if (p->segment_bytes)
		l3_bytes = total;
	return read_tcp(l3, l4_at, l3_bytes, linear, p) ? -1 : 1;
}

/* The bytes that the receiver had already, as it says by SACK (RFC 2883); 0 if there are none. */
static __noinline __u32 duplicate_bytes(struct quality_packet *p)
{
	struct {
		__be32 from_be;
		__be32 to_be;
	} block;
	__u8 option[2] = {};
	__u32 at = 0;

	for (__u32 n = 0; n < TCP_OPTIONS_MAX && at + sizeof(option) + sizeof(block) <= p->options_bytes; n++) {
		if (bpf_probe_read_kernel(option, sizeof(option), (void *)(p->options_at + at)) || !option[0])
			return 0;
		if (option[0] == TCP_NOP) {
			at++;
			continue;
		}
		if (option[0] == TCP_SACK) {
			if (bpf_probe_read_kernel(&block, sizeof(block), (void *)(p->options_at + at + 2)) ||
			    is_before(p->ack, shunt_ntohl(block.to_be)))
				return 0;
			return shunt_ntohl(block.to_be) - shunt_ntohl(block.from_be);
		}
		if (option[1] < sizeof(option))
			return 0;
		at += option[1];
	}
	return 0;
}

#endif
