/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bridge stations that learned flows depend on. A bridge learns stations from source MACs, so anyone can cause
 * changes as fast as frames arrive. Only changes of stations in use move the epoch.
 *
 * A program that learns a flow marks the station in use, then checks whether the station has changed since the
 * packet arrived. A program that sees a change records it, then checks whether the station is in use. Both have a
 * full barrier in between, so at least one of them sees the other.
 */
#ifndef SHUNT_STATIONS_H
#define SHUNT_STATIONS_H

#include "include/control.h"

enum {
	SHUNT_STATION_BITS = 13,
	SHUNT_STATIONS = 1 << SHUNT_STATION_BITS,
	SHUNT_STATION_TRIES = 4,
};

/* Stands for several MACs that share a slot. */
#define SHUNT_STATION_SEVERAL 0xffffffffffffULL

/* Indexed by the hash of the MAC. */
struct shunt_stations {
	__u64 changes; /* number of changes of all stations */
	__u64 changed[SHUNT_STATIONS]; /* number of the last change in this slot */
	__u64 in_use[SHUNT_STATIONS]; /* the MAC << 16, and the low half of the epoch of the flow */
};

struct shunt_stations shunt_stations SEC(".bss.stations");

static __always_inline __u64 shunt_station(const __u8 *mac)
{
	const __u16 *part = (const __u16 *)mac;

	return (__u64)part[0] << 32 | (__u64)part[1] << 16 | part[2];
}

static __always_inline __u32 shunt_station_slot(__u64 station)
{
	/* The seed hides from senders which MACs share a slot with a station in use. */
	__u64 hash = (station ^ shunt_control.seed) * 0x9e3779b97f4a7c15ULL;

	return shunt_at_most(hash >> (64 - SHUNT_STATION_BITS), SHUNT_STATIONS - 1);
}

/*
 * Marks a station as used by a flow of this epoch. Returns 0 if the station has, or may have, changed after the first
 * `changes` changes.
 */
static __always_inline int shunt_use_station(const __u8 *mac, __u32 epoch, __u64 changes)
{
	__u64 station = shunt_station(mac);
	__u32 slot = shunt_station_slot(station);

#pragma unroll
	for (int i = 0; i < SHUNT_STATION_TRIES; i++) {
		__u64 have = shunt_stations.in_use[slot];
		__u64 want = station << 16 | (__u16)epoch;

		__u16 ahead = (__u16)have - (__u16)epoch;

		/*
		 * A flow of a newer epoch may use the slot, if the epoch has moved as far since the packet arrived. If it has not,
		 * the mark is older. Atomic, so that the epoch is read after the mark.
		 */
		if (ahead && ahead <= __sync_fetch_and_add(&shunt_control.epoch, 0) - epoch)
			return 0;
		if (have != want && (__u16)have == (__u16)epoch)
			want = SHUNT_STATION_SEVERAL << 16 | (__u16)epoch;
		/* A full barrier, even if the value stays the same. */
		if (__sync_val_compare_and_swap(&shunt_stations.in_use[slot], have, want) == have)
			return shunt_stations.changed[slot] <= changes;
	}
	return 0;
}

/* Records the change of a station. Returns whether a flow of the current epoch may depend on the station. */
static __always_inline int shunt_note_station_change(const __u8 *mac)
{
	__u64 number = __sync_fetch_and_add(&shunt_stations.changes, 1) + 1;
	__u64 station = shunt_station(mac), before, have;
	__u32 slot = shunt_station_slot(station);

	/* A full barrier. */
	before = __sync_lock_test_and_set(&shunt_stations.changed[slot], number);
	/* Another CPU recorded a newer change, which this exchange has overwritten. */
	if (before > number)
		return 1;
	have = shunt_stations.in_use[slot];
	return (__u16)have == (__u16)shunt_control.epoch &&
	       (have >> 16 == station || have >> 16 == SHUNT_STATION_SEVERAL);
}

#endif
