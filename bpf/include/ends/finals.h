/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Final counters of flows, for the daemon's ledger of hosts. Without a reader, they cost a flag test per freed entry.
 */
#ifndef SHUNT_FINALS_H
#define SHUNT_FINALS_H

#include "include/ends/expired.h"

/* How long an entry waits for room in the ring. Then its counters are lost: the reader must not keep entries. */
enum { SHUNT_FINAL_WAIT_MS = 3000 };

/* The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} shunt_finals SEC(".maps");

/*
 * Hands over the counters of an entry that no CPU uses any more. Returns 0 if the ring is full and the entry should be
 * freed later.
 */
static __always_inline int shunt_hand_over(__u32 family, const union shunt_key *key, struct shunt_flow *f,
					   struct shunt_cold *cold, __u32 now)
{
	__u64 pkts = f->pkts + cold->remote_pkts;
	struct shunt_final *final;

	if (!pkts || !(shunt_control.flags & SHUNT_CONTROL_FINALS))
		return 1;
	final = bpf_ringbuf_reserve(&shunt_finals, sizeof(*final), 0);
	if (!final) {
		if (shunt_since(f->retired_ticks, now) < (__s32)shunt_ticks(SHUNT_FINAL_WAIT_MS))
			return 0;
		shunt_usage.finals_lost++;
		return 1;
	}
	__builtin_memset(final, 0, sizeof(*final));
	/* The entry has left the index, and its key has lost its ports with the ifindex. */
	final->tuple.family = family;
	final->tuple.sport_be = f->sport_be;
	final->tuple.dport_be = f->dport_be;
	if (family == 4) {
		final->tuple.l4_proto = key->v4.l4_proto;
		__builtin_memcpy(final->tuple.src_be, shunt_new_addrs(f), 4);
		__builtin_memcpy(final->tuple.dst_be, shunt_new_addrs(f) + 4, 4);
		__builtin_memcpy(final->from_src_be, &key->v4.src_be, 4);
	} else {
		final->tuple.l4_proto = key->v6.l4_proto;
		__builtin_memcpy(final->tuple.src_be, shunt_new_addrs(f), 16);
		__builtin_memcpy(final->tuple.dst_be, shunt_new_addrs(f) + 16, 16);
		__builtin_memcpy(final->from_src_be, key->v6.src_be, 16);
	}
	final->pkts = pkts;
	final->bytes = f->bytes + cold->remote_bytes;
	final->learned_ticks = cold->learned_ticks;
	final->tags[0] = family == 4 ? key->v4.tags[0] : key->v6.tags[0];
	final->tags[1] = family == 4 ? key->v4.tags[1] : key->v6.tags[1];
	final->kind = SHUNT_FINAL_FLOW;
	final->in_slot = f->in_slot;
	final->why = f->epoch == SHUNT_EPOCH_RETIRED ? f->retired_why : SHUNT_OK;
	bpf_ringbuf_submit(final, 0);
	/* If the entry cannot be freed now, it comes here again. */
	f->pkts = 0;
	cold->remote_pkts = 0;
	return 1;
}

/* Hands over the counters of flows that had left the table before their connection ended, to be shown with its end. */
static __always_inline void shunt_hand_over_expired(const struct shunt_tuple *tuple,
						    const struct shunt_expired *expired)
{
	__u32 readers = SHUNT_CONTROL_FINALS | SHUNT_CONTROL_TRACE;
	struct shunt_final *final;

	if ((shunt_control.flags & readers) != readers)
		return;
	final = bpf_ringbuf_reserve(&shunt_finals, sizeof(*final), 0);
	if (!final)
		return;
	__builtin_memset(final, 0, sizeof(*final));
	final->tuple = *tuple;
	final->pkts = expired->pkts;
	final->bytes = expired->bytes;
	final->kind = SHUNT_FINAL_EXPIRED;
	bpf_ringbuf_submit(final, 0);
}

#endif
