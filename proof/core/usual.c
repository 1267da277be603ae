/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: The external engine describes or refuses a packet of a usual shape as the general parser does.
 * case: FAMILY=4
 * case: FAMILY=6
 * mutant: external/engine.c | if (tagged)\n | if (0)\n
 * mutant: external/engine.c | (p.l4_proto == IPPROTO_TCP ? SHAPE_TCP : 0) | SHAPE_TCP
 * mutant: external/engine.c | .l2_bytes = shunt_l2_bytes(!!(shape & SHAPE_TAGGED)) | .l2_bytes = shunt_l2_bytes(0)
 * mutant: external/engine.c | tagged > (void *)frame->data_end | 0
 * mutant: external/engine.c | .wire_bytes = w->p.l3_bytes | .wire_bytes = 0
 */
#define __builtin_prefetch(...) ((void)0)
/* The engine's maps are arrays in memory. */
#define SHUNT_PROOF_BPF_HELPERS_H
#include "external/host/bpf/bpf_helpers.h"
#include "claim.h"
#include "external/engine.c"

int main(void)
{
	__u32 bytes = nondet_u32(), family;
	struct shunt_hw_tag none = {};
	struct shunt_frame frame = {};
	struct shunt_packet p, q;
	enum shunt_reason why;
	union shunt_key key;
	struct work w;
	__u8 *start;

	shunt_control_at = any_bytes(sizeof(*shunt_control_at));
	/* No usual packet has longer headers. */
	assume(bytes <= SHUNT_L2_MIN + 4 + SHUNT_L3_MAX + sizeof(struct tcphdr) + 2);
	start = any_bytes(SHUNT_FRAME_ROOM + bytes);
	frame.data = start + SHUNT_FRAME_ROOM;
	frame.data_end = frame.data + bytes;
	frame.ifindex = nondet_u32();
	find_bucket(&frame, &w);
	why = shunt_parse_l2(frame.data, frame.data_end, none, &p, &family);
	if (w.shape == SHAPE_OTHER || family_of(w.shape) != FAMILY)
		return 0;
	claim(why == SHUNT_OK && family == FAMILY, "the header before the IP header is good, and says this family");
	why = shunt_parse_l3(FAMILY, frame.data + p.l2_bytes, frame.data_end, frame.ifindex, &p, &key);
	if (why == SHUNT_OK)
		why = shunt_admit(&p);
	claim(frame.why == why, "refused for the same reason");
	if (why != SHUNT_OK)
		return 0;
	q = described(&w, w.shape);
	claim(same_bytes(&key, &w.key, FAMILY == 4 ? sizeof(key.v4) : sizeof(key.v6)), "the same key");
	claim(w.family == FAMILY && q.family == p.family && q.l4_proto == p.l4_proto, "the same protocols");
	claim(q.tcp_position == p.tcp_position, "the same position");
	claim(q.class_and_ttl == p.class_and_ttl, "the same class and TTL");
	claim(q.tags == p.tags && q.l2_bytes == p.l2_bytes, "the same header before the IP header");
	claim(q.l3_bytes == p.l3_bytes && q.wire_bytes == p.wire_bytes, "the same sizes");
	return 0;
}
