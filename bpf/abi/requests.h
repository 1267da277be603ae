/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Requests of the daemon to the programs. */
#ifndef SHUNT_ABI_REQUESTS_H
#define SHUNT_ABI_REQUESTS_H

#include <linux/types.h>
#include "abi/flows.h"
#include "abi/learn.h"

/* Arguments and results of a sweep. */
struct shunt_sweep {
	__u32 now_ticks; /* result: the clock */
	__u32 idle_ticks; /* retire flows that were unused for longer; less applies in a table that is nearly full */
	__u32 all; /* retire all learned flows */
	__u32 active; /* results: flows found, by state */
	__u32 pending;
	__u32 retired;
	__u32 statics;
	__u32 deleted; /* result: flows removed */
	__u32 remove_ticks; /* age at which a retired flow is removed; set by the program */
	__u32 flushed; /* result: flows retired by this sweep */
	__u32 from; /* the first entry to visit; IPv6 entries follow the IPv4 entries */
	__u32 entries; /* how many entries to visit; result: how many are left */
	__u32 silent_ticks; /* silence after which a connection is reported; set by the program */
};
_Static_assert(sizeof(struct shunt_sweep) == 52, "shunt_sweep is ABI");

/* A change that the daemon has seen, and what it concerns. */
struct shunt_change {
	__u32 family; /* 4 or 6 for a prefix; 0 for a station */
	__u32 prefix_len;
	__u8 address[16]; /* of the prefix; or the MAC of the station, in the first six bytes */
	__u32 moved; /* result: 1 if the change may concern a flow; the epoch or the groups of the station have moved then */
};
_Static_assert(sizeof(struct shunt_change) == 28, "shunt_change is ABI");

enum shunt_edit_op {
	SHUNT_EDIT_PUT = 1, /* insert or replace a flow */
	SHUNT_EDIT_REMOVE = 2,
	SHUNT_EDIT_GET = 3,
	SHUNT_EDIT_SIGHTING = 4, /* read the sighting of the key's tuple, with or without a flow */
};

/* A request of the daemon for one flow. */
struct shunt_edit {
	__u32 op; /* enum shunt_edit_op */
	__u32 family; /* 4 or 6 */
	__s32 result; /* 0, or a negative errno */
	__u32 _pad;
	__u8 key[48]; /* struct shunt_key4 or struct shunt_key6 */
	struct shunt_flow flow;
	__u8 to[32];
	struct shunt_cold cold;
	/* refused_why is 0 if the last refusal was of another tuple, fingerprint unless pkts are all of this one */
	struct shunt_sighting sighting;
};
_Static_assert(sizeof(struct shunt_edit) == 240, "shunt_edit is ABI");

/* Begins or ends a sample of the slow path. */
struct shunt_sample {
	__u32 ticks; /* when it ends by itself; 0 ends it now */
	__u32 began; /* result: 1 if the sample has begun; it does not without a heartbeat */
};
_Static_assert(sizeof(struct shunt_sample) == 8, "shunt_sample is ABI");

#endif
