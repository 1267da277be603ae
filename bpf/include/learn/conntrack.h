/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The conntrack fields that learning reads, relocated by CO-RE, and conntrack's kfuncs (Linux 5.18). */
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
struct nf_ct_ext {
	__u8 offset[1];
};

struct nf_conn {
	__u32 timeout; /* the low half of the jiffies at which the connection times out */
	unsigned long status;
	struct nf_ct_ext *ext;
	__u32 mark;
	struct nf_conntrack_tuple_hash___shunt tuplehash[2];
	union {
		struct ip_ct_tcp___shunt tcp;
	} proto;
};

#pragma clang attribute pop

/* The layout of the first version; later kernels accept this size. */
struct bpf_ct_opts___shunt {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 tuple_size,
				  struct bpf_ct_opts___shunt *opts, __u32 opts_size) __ksym;
void bpf_ct_release(struct nf_conn *ct) __ksym;

#endif
