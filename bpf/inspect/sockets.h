/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What connects the packets of local TCP with calls of programs: send calls, readers, and answers that are awaited. */
#ifndef SHUNT_INSPECT_SOCKETS_H
#define SHUNT_INSPECT_SOCKETS_H

#include "inspect/record.h"

/* Tables by socket or tuple, one entry for each hash. A newer entry replaces an older one. */
struct trace_sockets {
	__u64 sender[TRACE_SOCKETS];
	__u64 sent_ns[TRACE_SOCKETS]; /* 0: no packet of this call is awaited */
	__u64 reader[TRACE_SOCKETS]; /* 0: none */
	__u32 slot[TRACE_SOCKETS]; /* of the reader's packet */
	__u32 awaited[TRACE_SOCKETS]; /* hash of the tuple of an answer; 0: none */
	__u64 awaited_until_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_sockets);
} trace_sockets SEC(".maps");

/* The packet that has last passed LOCAL_IN on this CPU: it comes to its socket before the next one does. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} trace_delivered SEC(".maps");

static __always_inline __u64 *delivered(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_delivered, &zero);
}

static __always_inline struct trace_sockets *all_sockets(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_sockets, &zero);
}

static __always_inline __u32 entry_of_socket(const void *sk)
{
	__u32 address = (__u64)sk;

	return (address >> 6 ^ address >> 14) & (TRACE_SOCKETS - 1);
}

/* A send call of this socket runs. Its next packet began with it. */
static __always_inline void note_sent(const void *sk)
{
	struct trace_sockets *all = all_sockets();
	__u32 at = entry_of_socket(sk);

	if (!all)
		return;
	all->sender[at] = (__u64)sk;
	all->sent_ns[at] = bpf_ktime_get_ns();
}

/* When the send call was made whose data this socket sends now; 0 if that is unknown. */
static __always_inline __u64 take_sent(const void *sk)
{
	struct trace_sockets *all = all_sockets();
	__u32 at = entry_of_socket(sk);
	__u64 sent_ns;

	if (!all || all->sender[at] != (__u64)sk)
		return 0;
	sent_ns = all->sent_ns[at];
	all->sent_ns[at] = 0;
	return sent_ns;
}

/* From now on, the record is known by its socket: TCP may free the skb without a tracepoint. */
static __always_inline void wait_for_reader(const void *sk, struct trace_record *record)
{
	struct trace_sockets *all = all_sockets();
	struct trace_keys *keys = keys_of_packets();
	__u32 at = entry_of_socket(sk);

	if (!all || !keys || all->reader[at]) {
		/* An earlier packet of the socket waits: the reader may take both at once. */
		finish(record, TRACE_DONE);
		return;
	}
	*key_of(keys, record->slot) = 1;
	all->slot[at] = record->slot;
	all->reader[at] = (__u64)sk;
}

/* Returns the record that waits for this socket's reader, and forgets it if `take`. */
static __always_inline struct trace_record *waiting_record(const void *sk, int take)
{
	struct trace_sockets *all = all_sockets();
	struct trace_keys *keys = keys_of_packets();
	__u32 at = entry_of_socket(sk), slot;

	if (!all || !keys || all->reader[at] != (__u64)sk)
		return NULL;
	slot = all->slot[at];
	if (take)
		all->reader[at] = 0;
	if (*key_of(keys, slot) != 1) {
		/* The record was stale, and its slot has been given away. */
		all->reader[at] = 0;
		return NULL;
	}
	return bpf_map_lookup_elem(&trace_records, &slot);
}

static __noinline __u32 hash_of_way(const __u32 *src_be, const __u32 *dst_be, __be16 sport_be, __be16 dport_be)
{
	__u32 hash = (__u32)sport_be << 16 | dport_be;

	for (int n = 0; n < 4; n++)
		hash = (hash ^ src_be[n]) * 0x9e3779b1 + (dst_be[n] ^ hash >> 15) * 0x85ebca6b;
	return hash | 1;
}

/* Trace the first packet that comes back, too. */
static __always_inline void await(const struct trace_tuple *sent)
{
	struct trace_sockets *all = all_sockets();
	__u32 hash = hash_of_way(sent->dst_be, sent->src_be, sent->dport_be, sent->sport_be);

	if (!all)
		return;
	all->awaited[(hash >> 8) & (TRACE_SOCKETS - 1)] = hash;
	all->awaited_until_ns = bpf_ktime_get_ns() + TRACE_STALE_NS;
}

/* Whether any answer is awaited. */
static __always_inline __u32 awaited(void)
{
	struct trace_sockets *all = all_sockets();

	if (!all || !all->awaited_until_ns)
		return 0;
	if (all->awaited_until_ns < bpf_ktime_get_ns()) {
		all->awaited_until_ns = 0;
		return 0;
	}
	return 1;
}

/* Whether this packet is an answer that is awaited; it is awaited once. */
static __always_inline __u32 take_awaited(const struct trace_tuple *came)
{
	struct trace_sockets *all = all_sockets();
	__u32 hash = hash_of_way(came->src_be, came->dst_be, came->sport_be, came->dport_be), at;

	at = (hash >> 8) & (TRACE_SOCKETS - 1);
	if (!all || all->awaited[at] != hash)
		return 0;
	all->awaited[at] = 0;
	return 1;
}

#endif
