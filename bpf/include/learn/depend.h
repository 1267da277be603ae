/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a flow depends on: the stations and addresses whose change ends it. */
#ifndef SHUNT_DEPEND_H
#define SHUNT_DEPEND_H

#include "include/changes/stations.h"
#include "include/learn/egress.h"

/* What to do with each dependency of a flow. A result of 0 means that the flow must not be installed. */
enum visit {
	VISIT_MARK, /* mark it, so that its next change ends the flow */
	VISIT_CHECK, /* find out whether it has changed since the packet arrived */
};

/* The stations that a flow depends on, hashed. */
struct stations {
	__u64 from; /* a bridge must see a packet of a source that moved, to learn its new place */
	__u64 to; /* the destination must stay where the packet went */
};

static __always_inline struct stations stations_of(const struct egress *s)
{
	return (struct stations){ .from = shunt_station(shunt_source_mac(s->c->headers.l2)),
				  .to = shunt_station(s->scratch->seen.l2) };
}

static __always_inline int visit_station(const struct egress *s, __u64 hash, enum visit what)
{
	return what == VISIT_MARK ? shunt_mark(hash, s->c->epoch) : !shunt_has_changed(hash, s->c->changes);
}

static __always_inline int visit_stations(const struct egress *s, struct stations stations, enum visit what)
{
	return visit_station(s, stations.to, what) && visit_station(s, stations.from, what);
}

static __always_inline int visit_address(const struct egress *s, __u32 family, const void *address, enum visit what)
{
	__u64 hi, lo;

	shunt_address_words(family, address, &hi, &lo);
	return what == VISIT_MARK ? shunt_mark_address(family, hi, lo, s->c->epoch) :
				    !shunt_address_has_changed(family, hi, lo, s->c->changes);
}

/*
 * The addresses that rules and routes may look at: those before and after translation. The reverse direction has the
 * same ones.
 */
static __always_inline int shunt_visit_addresses(const struct egress *s, __u32 family, enum visit what)
{
	const void *old = shunt_header_addrs(family, &s->c->headers), *new = s->scratch->to;
	__u32 next = family == 4 ? 4 : 16;

	if (!visit_address(s, family, old, what) || !visit_address(s, family, old + next, what))
		return 0;
	if (!(s->scratch->flow.flags & SHUNT_FLOW_NAT))
		return 1;
	return visit_address(s, family, new, what) && visit_address(s, family, new + next, what);
}

/* Sets the group and the epoch of a flow, and marks its stations. */
static __always_inline int shunt_mark_stations(const struct egress *s, struct shunt_flow *f)
{
	struct stations stations = stations_of(s);

	f->group = shunt_group(stations.from, stations.to);
	/* Read before shunt_is_unchanged(), which refuses if a station had changed by then. */
	f->epoch = s->c->epoch + *(volatile __u32 *)&shunt_groups[shunt_bound(f->group, SHUNT_GROUPS - 1)];
	return visit_stations(s, stations, VISIT_MARK);
}

/* Whether a station of the flow keeps changing. */
static __noinline int shunt_stations_are_unstable(const __u8 *from, const __u8 *to)
{
	__u64 now = shunt_now();

	return from && to && (shunt_is_unstable(from, now) || shunt_is_unstable(to, now));
}

/* Whether nothing that the flow depends on, and that has been marked, has changed since the packet arrived. */
static __always_inline int shunt_is_unchanged(const struct egress *s, __u32 family)
{
	/* Atomic, so that changes are read after the marks were set or seen. */
	if (shunt_likely(__sync_fetch_and_add(&shunt_changes.count, 0) == s->c->changes))
		return 1;
	return visit_stations(s, stations_of(s), VISIT_CHECK) && shunt_visit_addresses(s, family, VISIT_CHECK);
}

#endif
