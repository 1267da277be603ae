/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * TCP connections that have fallen silent. Conntrack gives an established connection days, and minutes only while data
 * is not acknowledged. Of a fast connection it has seen some data, and hardly ever the very last acknowledgement, so it
 * would forget an idle one too soon. The daemon tells it.
 */
#ifndef SHUNT_SILENT_H
#define SHUNT_SILENT_H

#include "include/events.h"
#include "include/maps.h"

enum {
	SHUNT_SILENT_MS = 3000,
	/*
	 * The last packets of both directions are a round trip apart where everything was acknowledged. Who gets no
	 * answer repeats itself, soon more than this after the last packet of the other side.
	 */
	SHUNT_APART_MS = 1000,
};

static __always_inline int shunt_tell_silent(__u32 family, const union shunt_key *key, const struct shunt_flow *f)
{
	struct shunt_event *event = bpf_ringbuf_reserve(&shunt_events, sizeof(*event), 0);

	if (!event)
		return -1;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = SHUNT_EVENT_SILENT;
	event->family = family;
	event->l4_proto = IPPROTO_TCP;
	event->reply = !!(f->flags & SHUNT_FLOW_REPLY);
	if (family == 4) {
		event->sport_be = key->v4.sport_be;
		event->dport_be = key->v4.dport_be;
		event->ifindex = key->v4.ifindex;
		__builtin_memcpy(event->src, &key->v4.src_be, 4);
		__builtin_memcpy(event->dst, &key->v4.dst_be, 4);
	} else {
		event->sport_be = key->v6.sport_be;
		event->dport_be = key->v6.dport_be;
		event->ifindex = key->v6.ifindex;
		__builtin_memcpy(event->src, key->v6.src, 16);
		__builtin_memcpy(event->dst, key->v6.dst, 16);
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Tells of the connection that a flow belongs to, once for each time that it falls silent. */
static __always_inline void shunt_notice_silence(__u32 family, const union shunt_key *key, struct shunt_flow *f,
						 struct shunt_cold *cold, const struct shunt_sweep *s)
{
	__u32 proto = family == 4 ? key->v4.l4_proto : key->v6.l4_proto;
	struct shunt_flow *other;
	union shunt_key back;
	__u32 entry;
	__s32 apart;

	if (proto != IPPROTO_TCP || f->flags & (SHUNT_FLOW_STATIC | SHUNT_FLOW_UNTRACKED) || f->epoch == SHUNT_EPOCH_RETIRED ||
	    shunt_since(f->seen_ticks, s->now_ticks) <= (__s32)s->silent_ticks || cold->told_ticks == f->seen_ticks)
		return;
	shunt_reverse_key(family, f, shunt_to(f), proto, shunt_ifindex_of(f->out_slot), &back);
	other = shunt_find_by(family, &back, shunt_hash(family, &back), &entry);
	if (other) {
		/* One of the two is enough, once both are silent. */
		if (f->flags & SHUNT_FLOW_REPLY ||
		    shunt_since(other->seen_ticks, s->now_ticks) <= (__s32)s->silent_ticks)
			return;
		apart = shunt_since(other->seen_ticks, f->seen_ticks);
		if (apart < 0)
			apart = -apart;
		if (apart > (__s32)shunt_ticks(SHUNT_APART_MS)) {
			cold->told_ticks = f->seen_ticks;
			return;
		}
	}
	/* Where the ring is full the next sweep tells. */
	if (!shunt_tell_silent(family, key, f))
		cold->told_ticks = f->seen_ticks;
}

#endif
