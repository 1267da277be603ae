/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sizes that programs and daemon agree on. */
#ifndef SHUNT_ABI_SIZES_H
#define SHUNT_ABI_SIZES_H

#include <linux/types.h>

enum {
	SHUNT_ABI_VERSION = 1, /* checked by processes that read the control block of a running daemon */
	SHUNT_PORTS_MAX = 1024, /* a power of two; the slots of ports are below it */
	SHUNT_EXTERNAL_PORTS_MAX = 64, /* a power of two; the external engine serves ports with slots below it */
	SHUNT_TAGS_MAX = 2,
	SHUNT_L2_MAX = 14 + 4 * SHUNT_TAGS_MAX,
	SHUNT_L3_MAX = 40,
	SHUNT_L4_MAX = 60,
	SHUNT_REASONS_MAX = 128, /* a power of two */
	SHUNT_CANDIDATES = 4096, /* a power of two; with the 4 bits of a round, an index fits skb->tc_index */
	SHUNT_SIGHTINGS = 32768, /* a power of two */
	SHUNT_SIGHTING_TICKS = 64,
	SHUNT_WAYS = 4, /* slots per bucket of the index */
	SHUNT_HINTS = 32768, /* a power of two */
	SHUNT_UPPERS_MAX = 16384, /* devices stacked on ports */
	SHUNT_SOURCES = 16384, /* a power of two */
	SHUNT_SETS_MAX = 1024, /* sets of nftables that are described to the programs */
	SHUNT_PATH_MAX = 16384, /* chains and sets of nftables that forwarded packets may meet */
	SHUNT_UNSTABLE_MAX = 1024, /* stations that have changed */
	SHUNT_SESSIONS_MAX = 64, /* sessions of PPPoE that XDP knows */
	SHUNT_QUEUES_MAX = 16, /* receive queues per port that the external engine serves */
	SHUNT_INJECTED_MAX = 64, /* frames that the external engine passes to Linux at once */
	SHUNT_FRAME_MAX = 1792, /* bytes of a frame in the packet memory of the external engine */
	SHUNT_GROUPS = 1 << 16,
	SHUNT_OFF_MAX = 32, /* rules of `shunt off` */
};

/* Why a packet was not forwarded, or taught nothing. */
enum shunt_reason {
	SHUNT_OK = 0,
#define SHUNT_REASON(number, constant, ...) SHUNT_##constant = (number),
#include "abi/reasons.h"
	SHUNT_REASONS_END, /* one more than the last */
};
_Static_assert((int)SHUNT_REASONS_END <= (int)SHUNT_REASONS_MAX, "reasons fit the counters");

#endif
