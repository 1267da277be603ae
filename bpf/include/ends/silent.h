/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Silent TCP connections. Conntrack keeps an idle established connection for days, but only for minutes while data
 * is unacknowledged. It hardly ever sees the last acknowledgement of a fast connection, and would time the
 * connection out too early. The daemon corrects conntrack when the connection falls silent.
 */
#ifndef SHUNT_SILENT_H
#define SHUNT_SILENT_H

#include "include/events.h"
#include "include/table/maps.h"
#include "include/ends/reverse.h"

enum {
	SHUNT_SILENT_MS = 3000,
	/*
	 * If everything was acknowledged, the last packets of both directions are a round trip apart. A sender
	 * without an answer retransmits, and is soon further apart than this.
	 */
	SHUNT_APART_MS = 1000,
};

/*
 * Reports the connection of a flow, once each time that the connection falls silent. The next sweep after a use forgets
 * the report. Should a use and a new silence be between two sweeps, the time tells.
 */
static __always_inline void shunt_report_silence(__u32 family, const union shunt_key *key, struct shunt_flow *f,
						 struct shunt_cold *cold, const struct shunt_sweep *s)
{
	__u32 proto = family == 4 ? key->v4.l4_proto : key->v6.l4_proto;
	__u32 reported = f->seen_ticks | 1;
	struct shunt_flow *other;
	union shunt_key back;
	__s32 apart;

	if (proto != IPPROTO_TCP || f->flags & (SHUNT_FLOW_STATIC | SHUNT_FLOW_UNTRACKED) ||
	    f->epoch == SHUNT_EPOCH_RETIRED)
		return;
	if (shunt_since(f->seen_ticks, s->now_ticks) <= (__s32)s->silent_ticks) {
		if (cold->silent_ticks)
			cold->silent_ticks = 0;
		return;
	}
	if (cold->silent_ticks == reported)
		return;
	shunt_reverse_key(family, f, shunt_new_addrs(f), proto, shunt_ifindex_of(f->out_slot), &back);
	other = shunt_flow_of_entry(family, shunt_find_reverse_entry(family, &back));
	if (other) {
		/* Report once per connection, from the original direction, when both are silent. */
		if (f->flags & SHUNT_FLOW_REPLY ||
		    shunt_since(other->seen_ticks, s->now_ticks) <= (__s32)s->silent_ticks)
			return;
		apart = shunt_since(other->seen_ticks, f->seen_ticks);
		if (apart < 0)
			apart = -apart;
		if (apart > (__s32)shunt_ticks(SHUNT_APART_MS)) {
			cold->silent_ticks = reported;
			return;
		}
	}
	/* If the ring is full, the next sweep reports again. */
	if (!shunt_report(SHUNT_EVENT_SILENT, family, key, !!(f->flags & SHUNT_FLOW_REPLY), 0))
		cold->silent_ticks = reported;
}

#endif
