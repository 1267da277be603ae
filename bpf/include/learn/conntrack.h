/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The conntrack fields that learning reads, relocated by CO-RE. An sk_buff names its connection, so they are copied
 * from there; conntrack's kfuncs (Linux 5.18) are needed only for connections that nf_flowtable has taken over.
 */
#ifndef SHUNT_CONNTRACK_H
#define SHUNT_CONNTRACK_H

#include "include/bpf.h"
#include <bpf/bpf_core_read.h>

enum {
	SHUNT_IPS_SEEN_REPLY = 1 << 1,
	SHUNT_IPS_ASSURED = 1 << 2,
	SHUNT_IPS_CONFIRMED = 1 << 3,
	SHUNT_IPS_SEQ_ADJUST = 1 << 6,
	SHUNT_IPS_DYING = 1 << 9,
	SHUNT_IPS_NAT_CLASH = 1 << 12,
	SHUNT_IPS_HELPER = 1 << 13,
	SHUNT_IPS_OFFLOAD = 1 << 14,
	SHUNT_IPS_HW_OFFLOAD = 1 << 15,

	SHUNT_CTINFO_MASK = 7, /* of sk_buff._nfct: enum ip_conntrack_info; the rest is the address of a nf_conn */
	SHUNT_CTINFO_REPLY = 3, /* IP_CT_IS_REPLY; from here on, a packet belongs to the reply direction */
	SHUNT_CTINFO_UNTRACKED = 7,

	SHUNT_CT_MAX = 512, /* the most bytes of a nf_conn that are copied; about 250 on a 64-bit kernel */

	SHUNT_TCP_CONNTRACK_ESTABLISHED = 3,
	SHUNT_TCP_BE_LIBERAL = 0x08,
	SHUNT_TCP_MAXACK_SET = 0x20,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

union nf_inet_addr___shunt {
	__u32 all[4];
};

struct nf_conntrack_man___shunt {
	union nf_inet_addr___shunt u3;
	union {
		__be16 all;
	} u;
};

struct nf_conntrack_tuple___shunt {
	struct nf_conntrack_man___shunt src;
	struct {
		union nf_inet_addr___shunt u3;
		union {
			__be16 all;
		} u;
	} dst;
};

struct nf_conntrack_tuple_hash___shunt {
	struct nf_conntrack_tuple___shunt tuple;
};

struct ip_ct_tcp_state___shunt {
	__u32 td_maxack; /* the highest acknowledgement; valid if SHUNT_TCP_MAXACK_SET is set */
	__u8 flags;
};

struct ip_ct_tcp___shunt {
	struct ip_ct_tcp_state___shunt seen[2];
	__u8 state;
};

/* Offsets of a connection's extensions, 0 for none. The helper's extension is the first. */
struct nf_ct_ext___shunt {
	__u8 offset[1];
};

struct nf_conntrack_zone___shunt {
	__u16 id;
};

struct nf_conn___shunt {
	struct nf_conntrack_zone___shunt zone; /* only with CONFIG_NF_CONNTRACK_ZONES */
	__u32 timeout; /* the low half of the jiffies at which the connection times out */
	unsigned long status;
	struct nf_ct_ext___shunt *ext;
	__u32 mark;
	struct nf_conntrack_tuple_hash___shunt tuplehash[2];
	union {
		struct ip_ct_tcp___shunt tcp;
	} proto;
};

#pragma clang attribute pop

#ifndef SHUNT_WITHOUT_KFUNCS

/* The layout of the first version; later kernels accept this size. */
struct bpf_ct_opts___shunt {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

struct nf_conn___shunt *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 tuple_size,
					  struct bpf_ct_opts___shunt *opts, __u32 opts_size) __ksym __weak;
void bpf_ct_release(struct nf_conn___shunt *ct) __ksym __weak;

#endif

#endif
