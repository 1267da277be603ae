/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel's structures that the programs of this folder read. Offsets come from the kernel's BTF. */
#ifndef SHUNT_INSPECT_KERNEL_H
#define SHUNT_INSPECT_KERNEL_H

#include "include/bpf.h"
#include "inspect/trace_abi.h"

#define RELOCATED __attribute__((preserve_access_index))

struct ns_common___shunt {
	__u32 inum;
} RELOCATED;

struct net___shunt {
	struct ns_common___shunt ns;
} RELOCATED;

struct Qdisc_ops___shunt {
	char id[TRACE_COMM_BYTES];
} RELOCATED;

struct Qdisc___shunt {
	const struct Qdisc_ops___shunt *ops;
} RELOCATED;

struct net_device___shunt {
	char name[TRACE_COMM_BYTES];
	__u32 ifindex;
	struct Qdisc___shunt *qdisc;
	struct {
		struct net___shunt *net;
	} nd_net;
} RELOCATED;

struct sock___shunt;

struct sk_buff___shunt {
	struct net_device___shunt *dev;
	struct sock___shunt *sk;
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
	unsigned int end; /* an offset, on 64-bit kernels */
	unsigned long _nfct;
} RELOCATED;

struct skb_shared_info___shunt {
	__u16 gso_size;
	__u16 gso_segs;
} RELOCATED;

/* The L4 payload of each segment of an aggregate; 0 for a packet that is none. */
static __always_inline __u16 segment_bytes(const struct sk_buff___shunt *skb)
{
	const struct skb_shared_info___shunt *shared = (const void *)(skb->head + skb->end);
	__u16 gso = 0;

	bpf_probe_read_kernel(&gso, sizeof(gso), &shared->gso_size);
	return gso;
}

/* The packets that an skb stands for: 1, or the segments of an aggregate. */
static __always_inline __u16 segment_count(const struct sk_buff___shunt *skb)
{
	const struct skb_shared_info___shunt *shared = (const void *)(skb->head + skb->end);
	__u16 count = 0;

	if (segment_bytes(skb))
		bpf_probe_read_kernel(&count, sizeof(count), &shared->gso_segs);
	return count ? count : 1;
}

/* How far `at` is behind `data`. Verifiers allow only 64-bit arithmetic on these pointers: keep clang from others. */
static __always_inline __u64 distance(const void *at, const void *data)
{
	__u64 bytes = (__u64)at;

	barrier_var(bytes);
	bytes -= (__u64)data;
	barrier_var(bytes);
	return bytes;
}

#endif
