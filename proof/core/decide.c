/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: Deciding reads only the frame and the entry, writes nothing, and accepts only packets that the action is for.
 * case: FAMILY=4
 * case: FAMILY=6
 * mutant: core/encap.h | differ <<= 16; | differ <<= 24;
 * mutant: core/encap.h | *(const shunt_l2_u64 *)a ^ *(const shunt_l2_u64 *)b; | ((const shunt_l2_u64 *)a)[3] ^ ((const shunt_l2_u64 *)b)[3];
 * mutant: core/forward.h | p->wire_bytes > f->max_l3_bytes | p->wire_bytes > f->max_l3_bytes + 1
 * mutant: core/forward.h | f->epoch != epoch | 0
 * mutant: core/forward.h | shunt_likely(f->epoch == epoch) | 1
 * mutant: core/forward.h | (*head & mask.word) == want.word | f->state == SHUNT_FLOW_ACTIVE
 * mutant: core/forward.h | mask.word |= excluded.word; | ;
 * mutant: core/forward.h | known != SHUNT_KNOWN_ROUTED && f->flags & SHUNT_FLOW_BRIDGED | 0
 * mutant: core/forward.h | (f->flags & flags) != flags | 0
 * mutant: core/forward.h | *(const __u32 *)&f->state & excluded.word | 0
 */
#include "claim.h"

int main(void)
{
	__u32 bytes = nondet_u32(), at = nondet_u32(), epoch = nondet_u32(), now;
	__u64 jiffies = nondet_u64();
	struct shunt_control *control = any_bytes(sizeof(*control));
	struct shunt_flow *f = any_flow(FAMILY), before = *f;
	struct shunt_hw_tag hw = { .tpid_be = nondet_u16(), .tci = nondet_u16(), .present = nondet_bool() };
	struct shunt_packet p, parsed;
	union shunt_key key;
	__u32 family;
	__u8 *frame;
	__u8 kept, flags = nondet_bool() ? SHUNT_FLOW_XDP : 0;
	/* As in tc_forward.bpf.c, or none. */
	union shunt_head excluded = { .out_tags = 0xfe, .punt_due = 0xff };

	if (nondet_bool())
		excluded.word = 0;

	assume(bytes <= FRAME_MAX && at < bytes);
	frame = any_bytes(bytes);
	kept = frame[at];
	if (shunt_parse_l2(frame, frame + bytes, hw, &p, &family) != SHUNT_OK ||
	    shunt_parse_l3(FAMILY, frame + p.l2_bytes, frame + bytes, nondet_u32(), &p, &key) != SHUNT_OK)
		return 0;
	parsed = p;
	now = jiffies;
	if (shunt_decide_unless(f, &p, frame, control, epoch, jiffies, flags, excluded) == SHUNT_OK) {
		claim(jiffies < control->heartbeat_ticks + control->heartbeat_max_ticks, "the daemon is alive");
		claim(f->flags & SHUNT_FLOW_STATIC || f->epoch == epoch, "the epoch is current");
		claim(f->flags & SHUNT_FLOW_STATIC || (__s32)(now - f->prove_by_ticks) < 0, "the last proof is valid");
		claim(f->flags & SHUNT_FLOW_STATIC || (__s32)(now - f->reprove_at_ticks) < 0 ||
			      p.wire_bytes < f->max_l3_bytes,
		      "no proof is due, or a larger packet will prove the flow");
		claim(f->flags & SHUNT_FLOW_STATIC || (p.ttl == f->in_ttl && p.class_bits == f->class_bits),
		      "TTL and class are those of learning");
		claim(same_bytes(frame, f->in_dmac, ETH_ALEN), "the destination MAC is that of learning");
		claim(!(f->flags & SHUNT_FLOW_BRIDGED) || same_bytes(frame + ETH_ALEN, f->l2 + ETH_ALEN, ETH_ALEN),
		      "a bridged flow has one source MAC");
		claim(p.wire_bytes <= f->max_l3_bytes, "not too large");
		claim(f->state == SHUNT_FLOW_ACTIVE, "active");
		claim((f->flags & flags) == flags, "the engine takes the flow");
		claim(!excluded.word || (f->out_tags <= 1 && !f->punt_due), "the flow is not left to something else");
	}
	claim(same_bytes(&before, f, sizeof(before)), "the flow is unchanged");
	claim(same_bytes(&parsed, &p, sizeof(p)), "the packet description is unchanged");
	claim(frame[at] == kept, "the frame is unchanged");
	return 0;
}
