/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * SYN, FIN and RST at ingress. A connection that restarts or ends leaves the fast path at once, in both directions.
 * A FIN or RST outside the window is blind: its receiver ignores it, but conntrack accepts it, since fast
 * connections are liberal. Such packets are reported, and the daemon corrects conntrack.
 */
#ifndef SHUNT_ENDS_H
#define SHUNT_ENDS_H

#include "include/events.h"
#include "include/ends/expired.h"
#include "include/ends/reverse.h"

enum {
	SHUNT_BLIND_MS = 20, /* report no second blind packet within this time: the daemon waits for longer */
	SHUNT_BLIND_RECENT_MS = 1000, /* for this long, a genuine end after a blind packet is reported */
};

static __always_inline int shunt_is_recent(__u32 blind_ticks, __u32 now, __u32 ms)
{
	return shunt_is_within(blind_ticks, now, shunt_ticks(ms));
}

static __always_inline __u32 shunt_idle_s(__u32 seen_ticks, __u32 now)
{
	__s32 since = shunt_since(seen_ticks, now);

	return since > 0 ? (__u32)since / shunt_control.ticks_per_s : 0;
}

/*
 * Reports a FIN or RST that its receiver accepts or may accept. `after_blind` means that a blind packet was
 * reported recently, `over` that the connection has already ended. Conntrack handles a plain FIN correctly without
 * the daemon.
 */
static __always_inline void shunt_report_end(enum shunt_end end, __u8 tcp_flags, __u32 family,
					     const union shunt_key *key, int reply, __u32 idle_s, int after_blind,
					     int over)
{
	/* After a genuine FIN or RST, any RST may close the connection in conntrack. */
	if (over && end == SHUNT_END_IN_WINDOW)
		return;
	if (tcp_flags & SHUNT_TCP_RST && end == SHUNT_END_IN_WINDOW)
		shunt_report(SHUNT_EVENT_IN_WINDOW, family, key, reply, idle_s);
	else if ((tcp_flags & SHUNT_TCP_RST && end == SHUNT_END_EXACT) || (after_blind && end != SHUNT_END_UNKNOWN))
		shunt_report(SHUNT_EVENT_ENDED, family, key, reply, 0);
}

/* Handles a SYN, FIN or RST of a known flow. Returns 0 if the packet is blind and the flow stays in use. */
static __always_inline int shunt_handle_end(__u32 family, const struct shunt_packet *p, const union shunt_key *key,
					    __u32 entry, struct shunt_flow *f, __u32 now)
{
	__u32 seen = f->seen_ticks;
	__s32 other_entry;
	struct shunt_cold *cold = shunt_cold_at(family, entry);
	struct shunt_flow *other;
	union shunt_key back;
	enum shunt_end end = SHUNT_END_UNKNOWN;
	int reply = !!(f->flags & SHUNT_FLOW_REPLY);
	/* After that, conntrack has seen all packets of what is now the connection. */
	int over = f->epoch == SHUNT_EPOCH_RETIRED &&
		   (f->retired_why == SHUNT_TCP_FLAGS || f->retired_why == SHUNT_CONNTRACK_GONE);

	shunt_reverse_key(family, f, shunt_new_addrs(f), p->l4_proto, shunt_ifindex_of(f->out_slot), &back);
	other_entry = shunt_find_reverse_entry(family, &back);
	other = shunt_flow_of_entry(family, other_entry);
	if (cold && !(p->tcp_flags & SHUNT_TCP_SYN) && !(f->flags & SHUNT_FLOW_UNTRACKED))
		end = shunt_judge_end(p->tcp_flags, shunt_tcp_seq(p, family), f->tcp_position,
				      shunt_position(family, &back, other));
	if (other && shunt_before(seen, other->seen_ticks))
		seen = other->seen_ticks;
	if (end == SHUNT_END_BLIND) {
		if (over || shunt_is_recent(cold->blind_ticks, now, SHUNT_BLIND_MS) ||
		    shunt_report(SHUNT_EVENT_BLIND, family, key, reply, shunt_idle_s(seen, now)))
			return over;
		cold->blind_ticks = now;
		cold = other ? shunt_cold_at(family, other_entry) : 0;
		if (cold)
			cold->blind_ticks = now;
		return 0;
	}
	if (cold)
		shunt_report_end(end, p->tcp_flags, family, key, reply, shunt_idle_s(seen, now),
				 shunt_is_recent(cold->blind_ticks, now, SHUNT_BLIND_RECENT_MS), over);
	shunt_retire(f, now, SHUNT_TCP_FLAGS);
	shunt_trace(SHUNT_TRACE_RETIRE, SHUNT_TCP_FLAGS, family, key);
	if (other)
		shunt_retire_reverse(family, &back, now, SHUNT_TCP_FLAGS);
	return 1;
}

/*
 * Handles a TCP packet without a flow: it outdates the stored position, unless it is a blind FIN or RST. Returns 0 if
 * it is blind.
 */
static __always_inline int shunt_update_expired(__u32 family, const struct shunt_packet *p, const union shunt_key *key,
						__u64 hash, __u32 now)
{
	enum shunt_end end = SHUNT_END_UNKNOWN;
	struct shunt_expired *expired;

	if (shunt_likely(!shunt_sighting_of(hash)->expired))
		return 1;
	expired = shunt_find_expired(family, key);
	if (!expired || !expired->tcp_position)
		return 1;
	if (p->tcp_flags & (SHUNT_TCP_FIN | SHUNT_TCP_RST) && !(p->tcp_flags & SHUNT_TCP_SYN))
		end = shunt_judge_end(p->tcp_flags, shunt_tcp_seq(p, family), expired->tcp_position,
				      expired->other_position);
	if (end == SHUNT_END_BLIND) {
		if (!shunt_is_recent(expired->blind_ticks, now, SHUNT_BLIND_MS) &&
		    !shunt_report(SHUNT_EVENT_BLIND, family, key, expired->reply,
				  shunt_idle_s(expired->seen_ticks, now)))
			expired->blind_ticks = now;
		return 0;
	}
	shunt_report_end(end, p->tcp_flags, family, key, expired->reply, shunt_idle_s(expired->seen_ticks, now),
			 shunt_is_recent(expired->blind_ticks, now, SHUNT_BLIND_RECENT_MS), 0);
	shunt_forget_position(expired, hash);
	return 1;
}

#endif
