/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Changes of stations: of the port of a bridge that a MAC is behind, or of a neighbour's MAC. A change ends the actions
 * of that station. A station that keeps changing is not learned for a while: then there is nothing to end.
 * docs/adr/0020 has the reasons.
 */
#ifndef SHUNT_STATIONS_H
#define SHUNT_STATIONS_H

#include "include/changes/dependencies.h"

enum {
	SHUNT_UNSTABLE_CHANGES = 10, /* a station with flows is unstable after this many changes ... */
	SHUNT_UNSTABLE_WITHIN_MS = 10000, /* ... within this time, */
	SHUNT_UNSTABLE_MS = 60000, /* until this long after its last change */
};

/*
 * By MAC. Only changes of stations with flows make an entry; of those that changed longest ago, the kernel drops some.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SHUNT_UNSTABLE_MAX);
	__type(key, struct shunt_mac);
	__type(value, struct shunt_unstable);
} shunt_unstable SEC(".maps");

/*
 * When the last station will be stable again, in all 64 bits of jiffies: before any is unstable, nothing is looked up.
 */
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

/*
 * Records that a station has changed, and ends the actions that depend on it. Returns whether a flow of the current
 * epoch may be among them, unless the station was unstable already.
 */
static __always_inline int shunt_note_station(const __u8 *mac)
{
	__u64 now = shunt_now(), hash = shunt_station(mac);
	struct shunt_mac key = shunt_mac_of(mac);
	int unstable = 0, moved = shunt_note_change(hash);

	if (shunt_some_are_unstable(now)) {
		struct shunt_unstable *s = bpf_map_lookup_elem(&shunt_unstable, &key);

		if (s && now < s->until_ticks) {
			shunt_extend_unstable(s, now);
			unstable = 1;
		}
	}
	/* Even of an unstable station: a flow may have been learned while it became unstable. */
	if (moved)
		shunt_end_station(hash);
	if (unstable)
		return 0;
	if (moved)
		shunt_count_station(mac, now);
	return moved;
}

#endif
