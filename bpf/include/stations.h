/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stations that keep changing: a MAC that moves between the ports of a bridge, or a neighbour with two MACs. Each change of a
 * station with flows ends the use of all actions. So a station that changes too often is not learned for a while: then no
 * flow depends on it, and its changes cost nobody anything. docs/adr/0020 has the bounds.
 */
#ifndef SHUNT_STATIONS_H
#define SHUNT_STATIONS_H

#include "include/dependencies.h"

enum {
	SHUNT_UNSTABLE_CHANGES = 3, /* a station with flows is unstable after this many changes ... */
	SHUNT_UNSTABLE_WITHIN_MS = 10000, /* ... within this time, */
	SHUNT_UNSTABLE_MS = 60000, /* until this long after its last change */
};

/* By MAC. Only changes of stations with flows make an entry; of those that changed longest ago, the kernel drops some. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SHUNT_UNSTABLE_MAX);
	__type(key, struct shunt_mac);
	__type(value, struct shunt_unstable);
} shunt_unstable SEC(".maps");

/* When the last station will be stable again, in all 64 bits of jiffies: before any is unstable, nothing is looked up. */
__u64 shunt_unstable_until SEC(".bss.unstable");

static __always_inline int shunt_some_are_unstable(__u64 now)
{
	return shunt_unlikely(now < *(volatile __u64 *)&shunt_unstable_until);
}

static __always_inline struct shunt_mac shunt_mac_of(const __u8 *mac)
{
	struct shunt_mac key = {};

	__builtin_memcpy(key.bytes, mac, ETH_ALEN);
	return key;
}

/* Whether nothing may be learned from packets of this station. */
static __always_inline int shunt_is_unstable(const __u8 *mac, __u64 now)
{
	struct shunt_mac key = shunt_mac_of(mac);
	const struct shunt_unstable *s = bpf_map_lookup_elem(&shunt_unstable, &key);

	return s && now < s->until_ticks;
}

/* Has a station be unstable from now on. */
static __always_inline void shunt_extend_unstable(struct shunt_unstable *s, __u64 now)
{
	s->until_ticks = now + shunt_ticks(SHUNT_UNSTABLE_MS);
	shunt_unstable_until = s->until_ticks;
}

/* Counts a change of a station on which flows depended. */
static __always_inline void shunt_count_station(const __u8 *mac, __u64 now)
{
	struct shunt_unstable *s, first = { .since_ticks = now, .changes = 1 };
	struct shunt_mac key = shunt_mac_of(mac);

	s = bpf_map_lookup_elem(&shunt_unstable, &key);
	if (!s) {
		bpf_map_update_elem(&shunt_unstable, &key, &first, BPF_NOEXIST);
		return;
	}
	if (now - s->since_ticks > shunt_ticks(SHUNT_UNSTABLE_WITHIN_MS)) {
		s->since_ticks = now;
		s->changes = 0;
	}
	if (++s->changes >= SHUNT_UNSTABLE_CHANGES)
		shunt_extend_unstable(s, now);
}

/* Records that a station has changed. Returns whether a flow of the current epoch may depend on it. */
static __always_inline int shunt_note_station(const __u8 *mac)
{
	__u64 now = shunt_now();
	int moved = shunt_note_change(shunt_station(mac));

	if (moved) {
		shunt_count_station(mac, now);
	} else if (shunt_some_are_unstable(now)) {
		struct shunt_mac key = shunt_mac_of(mac);
		struct shunt_unstable *s = bpf_map_lookup_elem(&shunt_unstable, &key);

		if (s && now < s->until_ticks)
			shunt_extend_unstable(s, now);
	}
	return moved;
}

#endif
