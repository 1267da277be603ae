/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: A frame keeps its padding if and only if the flow is untracked, and is never shorter than the packet.
 * case: FAMILY=4
 * mutant: core/forward.h | f->flags & SHUNT_FLOW_UNTRACKED && bytes > want | bytes > want
 * mutant: core/forward.h | f->flags & SHUNT_FLOW_UNTRACKED && bytes > want | f->flags & SHUNT_FLOW_UNTRACKED
 * mutant: core/forward.h | f->flags & SHUNT_FLOW_UNTRACKED && bytes > want | 0
 */
#include "claim.h"

int main(void)
{
	struct shunt_flow *f = any_flow(FAMILY), before = *f;
	__u32 packet_ends = nondet_u32(), bytes = nondet_u32(), left = shunt_frame_bytes(f, packet_ends, bytes);
	int padded = bytes > packet_ends;

	claim(left >= packet_ends, "the packet is whole");
	claim(!padded || left <= bytes, "no frame grows");
	claim(!padded || (left == bytes) == !!(f->flags & SHUNT_FLOW_UNTRACKED),
	      "only an untracked flow keeps its padding");
	claim(padded || left == packet_ends, "nothing is added to a frame without padding");
	claim(f->flags & SHUNT_FLOW_UNTRACKED || left == packet_ends, "the padding is removed completely");
	claim(same_bytes(&before, f, sizeof(before)), "the flow is unchanged");
	return 0;
}
