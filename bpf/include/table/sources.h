/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Entries of the flow tables by the host that opened the connection, and by the port through which it did so. No host
 * starves the others, and hosts that are invented behind one port do not starve those behind other ports.
 */
#ifndef SHUNT_SOURCES_H
#define SHUNT_SOURCES_H

#include "include/control.h"

enum {
	/* Entries per free entry: alone, a host gets 4/5 of a table, and a port 16/17. */
	SHUNT_SHARE = 4,
	SHUNT_PORT_SHARE = 16,
};

/* Number of entries, of both families, by the hashed address of the host that opened the connection. */
__u32 shunt_sources[SHUNT_SOURCES] SEC(".bss.sources");

/* The same by the slot of the port through which the connection was opened. */
__u32 shunt_opened[SHUNT_PORTS_MAX] SEC(".bss.opened");

/* The index of the counter of a source: an IPv4 address, or an IPv6 /64, since a host may use any address in a /64. */
static __always_inline __u32 shunt_source_of(__u32 family, const __u32 *address)
{
	__u64 hash = family == 4 ? address[0] : (__u64)address[1] << 32 | address[0];

	hash = (hash ^ shunt_control.seed) * 0x9e3779b97f4a7c15ULL;
	return (hash >> 32) % SHUNT_SOURCES;
}

/* The source that opened the connection of a flow. A reply's translated destination is that host. */
static __always_inline __u32 shunt_opener(__u32 family, const void *key, const struct shunt_flow *f, const __u8 *to)
{
	const __u32 *answered = (const __u32 *)to + (family == 4 ? 1 : 4);

	return shunt_source_of(family, f->flags & SHUNT_FLOW_REPLY ? answered : key);
}

/* The slot of the port through which the connection of a flow was opened. */
static __always_inline __u32 shunt_opened_by(const struct shunt_flow *f)
{
	return (f->flags & SHUNT_FLOW_REPLY ? f->out_slot : f->in_slot) % SHUNT_PORTS_MAX;
}

/* Counts an entry more or less for the host and the port that opened the connection. Static flows are not counted. */
static __always_inline void shunt_count_source(__u32 family, const void *key, const struct shunt_flow *f,
					       const __u8 *to, int change)
{
	if (f->flags & SHUNT_FLOW_STATIC)
		return;
	__sync_fetch_and_add(&shunt_sources[shunt_opener(family, key, f, to)], change);
	__sync_fetch_and_add(&shunt_opened[shunt_opened_by(f)], change);
}

/*
 * Whether the host and the port that opened the connection of `f` may have one more entry of a table with `free` free
 * ones. A single source gets up to 4/5 of the table, competing sources get equal parts, and some entries always remain
 * for new sources.
 */
static __always_inline int shunt_has_share(__u32 family, const void *key, const struct shunt_flow *f, const __u8 *to,
					   __u32 free)
{
	return shunt_sources[shunt_opener(family, key, f, to)] < (__u64)SHUNT_SHARE * free &&
	       shunt_opened[shunt_opened_by(f)] < (__u64)SHUNT_PORT_SHARE * free;
}

#endif
