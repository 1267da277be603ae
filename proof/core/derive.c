/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: Deriving and proving access only their objects, and derive nothing from headers of different families.
 * case: FAMILY=4
 * case: FAMILY=6
 * mutant: core/learn.h | __builtin_memcpy(to, new_addrs, 8); | __builtin_memcpy(to, new_addrs, 32);
 * mutant: core/learn.h | i < sizeof(*in) / 8; | i <= sizeof(*in) / 8;
 * mutant: core/encap.h | __builtin_memcpy(l2, macs, 2 * ETH_ALEN); | __builtin_memcpy(l2, macs, 2 * ETH_ALEN + 2);
 */
#include "claim.h"

int main(void)
{
	struct shunt_candidate *c = any_bytes(sizeof(*c)), before;
	struct shunt_headers *out = any_bytes(sizeof(*out)), *in = any_bytes(sizeof(*in)), seen;
	struct shunt_packet *p = any_bytes(sizeof(*p));
	struct shunt_flow *f = any_bytes(sizeof(*f));
	__u8 *to = any_bytes(FAMILY == 4 ? 8 : 32), *l2 = any_bytes(SHUNT_L2_MAX), *macs = any_bytes(2 * ETH_ALEN);
	enum shunt_reason why;

	assume(c->family == FAMILY && p->tags <= SHUNT_TAGS_MAX);
	assume(c->l4_proto == IPPROTO_TCP || c->l4_proto == IPPROTO_UDP);
	before = *c;
	seen = *out;
	*f = (struct shunt_flow){};
	why = shunt_derive(c, out, p, f, to);
	claim(same_bytes(&before, c, sizeof(before)), "the candidate is unchanged");
	claim(same_bytes(&seen, out, sizeof(seen)), "the egress headers are unchanged");
	if (why == SHUNT_OK) {
		claim(p->family == c->family && p->l4_proto == c->l4_proto, "one family and protocol");
		claim(f->out_tags <= SHUNT_TAGS_MAX || f->out_tags == SHUNT_NO_L2, "at most two tags");
		*in = c->headers;
		shunt_proved(in, out, c, f, to);
		claim(same_bytes(&before, c, sizeof(before)), "the candidate is unchanged");
	}
	shunt_write_l2(l2, macs, p);
	claim(same_bytes(l2, macs, 2 * ETH_ALEN), "the MACs are those of the frame");
	return 0;
}
