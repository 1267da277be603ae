// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A socket filter on a ctnetlink socket that is subscribed to DESTROY events. It retires the flows of a deleted
 * connection while conntrack reports the event, so `conntrack -D` has taken effect when it returns. It drops every
 * message, so the socket never overruns.
 */
#include "include/ends/finals.h"
#include "include/table/change.h"
#include <linux/netlink.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

enum {
	SHUNT_NF_INET = 2,
	SHUNT_NF_INET6 = 10,
	SHUNT_DELETED = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE,
};

/* An attribute of at most four bytes, with padding. */
struct attr {
	struct nlattr head;
	union {
		__u8 number;
		__be16 port_be;
		__u32 all;
	};
};

/* CTA_TUPLE_PROTO of TCP or UDP. */
struct proto {
	struct nlattr head;
	struct attr number;
	struct attr sport;
	struct attr dport;
};

static __always_inline int has_shape(const struct nlattr *head, __u32 type, __u32 bytes)
{
	return (head->nla_type & NLA_TYPE_MASK) == type && head->nla_len == bytes;
}

static __always_inline __u32 address_bytes(__u32 family)
{
	return family == 4 ? 4 : 16;
}

/* The size of a ctnetlink tuple without a zone. Connections in a zone are never learned. */
static __always_inline __u32 tuple_bytes(__u32 family)
{
	return 2 * sizeof(struct nlattr) + 2 * (sizeof(struct nlattr) + address_bytes(family)) + sizeof(struct proto);
}

/* Reads the tuple at `at` into a key. The key's ifindex and tags stay 0. Returns -1 if the layout is unexpected. */
static __always_inline int read_tuple(struct __sk_buff *skb, __u32 at, __u32 family, __u32 type, union shunt_key *key)
{
	__u32 address = address_bytes(family), step = sizeof(struct nlattr) + address;
	__u32 src_at = at + 3 * sizeof(struct nlattr), proto_at = at + 2 * sizeof(struct nlattr) + 2 * step;
	struct nlattr heads[3]; /* CTA_TUPLE_*, CTA_TUPLE_IP, the source address */
	struct proto proto;

	if (bpf_skb_load_bytes(skb, at, heads, sizeof(heads)) ||
	    bpf_skb_load_bytes(skb, proto_at, &proto, sizeof(proto)))
		return -1;
	if (!has_shape(&heads[0], type, tuple_bytes(family)) ||
	    !has_shape(&heads[1], CTA_TUPLE_IP, sizeof(struct nlattr) + 2 * step) ||
	    !has_shape(&heads[2], family == 4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, step) ||
	    !has_shape(&proto.head, CTA_TUPLE_PROTO, sizeof(proto)) ||
	    !has_shape(&proto.sport.head, CTA_PROTO_SRC_PORT, 6) ||
	    !has_shape(&proto.dport.head, CTA_PROTO_DST_PORT, 6))
		return -1;
	__builtin_memset(key, 0, sizeof(*key));
	if (family == 4) {
		key->v4.sport_be = proto.sport.port_be;
		key->v4.dport_be = proto.dport.port_be;
		key->v4.l4_proto = proto.number.number;
		return bpf_skb_load_bytes(skb, src_at, &key->v4.src_be, 4) ||
		       bpf_skb_load_bytes(skb, src_at + step, &key->v4.dst_be, 4);
	}
	key->v6.sport_be = proto.sport.port_be;
	key->v6.dport_be = proto.dport.port_be;
	key->v6.l4_proto = proto.number.number;
	return bpf_skb_load_bytes(skb, src_at, key->v6.src_be, 16) ||
	       bpf_skb_load_bytes(skb, src_at + step, key->v6.dst_be, 16);
}

static __always_inline void retire(__u32 family, const union shunt_key *key, struct shunt_flow *f)
{
	struct shunt_counters *counters = shunt_counters_of(f->in_slot);

	if (f->flags & (SHUNT_FLOW_STATIC | SHUNT_FLOW_UNTRACKED))
		return;
	if (f->epoch != SHUNT_EPOCH_RETIRED && counters)
		counters->retired++;
	shunt_retire(f, shunt_now(), SHUNT_CONNTRACK_GONE);
	shunt_trace(SHUNT_TRACE_RETIRE, SHUNT_CONNTRACK_GONE, family, key);
}

static __always_inline void retire_in_bucket(__u32 family, const union shunt_key *key, __u64 hash, __u32 index)
{
	const struct shunt_bucket *bucket = shunt_bucket_at(family, index);

	if (!bucket)
		return;
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		__u32 slot = shunt_slot(bucket, way);
		const union shunt_key *have;

		if (shunt_slot_digest(slot) != shunt_digest_of(hash))
			continue;
		have = (const union shunt_key *)shunt_words_at(family, shunt_slot_entry(slot));
		if (have && shunt_same_tuple(family, have, key))
			retire(family, have, shunt_flow_at(family, (__u64 *)have));
	}
}

/* Retires the flows of one direction of a connection, on every port and with any tags. */
static __always_inline void retire_tuple(__u32 family, const union shunt_key *key)
{
	__u64 hash = shunt_hash(family, key);
	__u32 first = shunt_bucket_of(hash, 0);
	__u32 second = shunt_bucket_of(hash, 1);
	struct shunt_tuple tuple;
	struct shunt_expired *expired;

	retire_in_bucket(family, key, hash, first);
	if (second != first)
		retire_in_bucket(family, key, hash, second);
	if (!*(volatile __u64 *)&shunt_usage.expired)
		return;
	shunt_tuple_of(family, key, &tuple);
	expired = bpf_map_lookup_elem(&shunt_expired, &tuple);
	if (!expired)
		return;
	shunt_forget_position(expired, hash);
	shunt_hand_over_expired(&tuple, expired);
	if (!bpf_map_delete_elem(&shunt_expired, &tuple))
		__sync_fetch_and_add(&shunt_usage.expired, -1);
}

static __always_inline void retire_connection(struct __sk_buff *skb, __u32 family)
{
	__u32 at = NLMSG_HDRLEN + sizeof(struct nfgenmsg);
	union shunt_key key;

	if (!read_tuple(skb, at, family, CTA_TUPLE_ORIG, &key))
		retire_tuple(family, &key);
	if (!read_tuple(skb, at + tuple_bytes(family), family, CTA_TUPLE_REPLY, &key))
		retire_tuple(family, &key);
}

SEC("socket")
int shunt_ct_gone(struct __sk_buff *skb)
{
	struct nlmsghdr message;
	struct nfgenmsg family;

	/*
	 * With empty tables, there is nothing to retire. A flow that is being inserted for this connection is counted
	 * before its CPU looks whether the connection is dying, and conntrack marked it dying before this event.
	 */
	if (shunt_empty() && !*(volatile __u64 *)&shunt_usage.expired)
		return 0;
	if (bpf_skb_load_bytes(skb, 0, &message, sizeof(message)) ||
	    bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &family, sizeof(family)) || message.nlmsg_type != SHUNT_DELETED)
		return 0;
	if (family.nfgen_family == SHUNT_NF_INET)
		retire_connection(skb, 4);
	else if (family.nfgen_family == SHUNT_NF_INET6)
		retire_connection(skb, 6);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
