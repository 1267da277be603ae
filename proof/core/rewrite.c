/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: Rewriting writes only TTL, checksums, addresses and ports. Checksums change by the action's deltas; sums.c
 * shows that they are then correct.
 * case: FAMILY=4 PROTO=6
 * case: FAMILY=4 PROTO=17
 * case: FAMILY=6 PROTO=6
 * case: FAMILY=6 PROTO=17
 * mutant: core/forward.h | return l4_proto == IPPROTO_TCP ? 16 : 6; | return 16;
 * mutant: core/forward.h | if (family == 6) {\n\t\tword[1] = with[1]; | if (1) {\n\t\tword[1] = with[1];
 * mutant: core/forward.h | if (!(flags & SHUNT_FLOW_NAT))\n\t\treturn; |
 * mutant: core/forward.h | new = shunt_csum_update(old, f->l4_delta); | new = shunt_csum_update(old, f->l4_delta_addr);
 * mutant: core/forward.h | *check = 0xffff; | *check = 0;
 * mutant: core/forward.h | l4_proto == IPPROTO_UDP && !old | 0
 * mutant: core/forward.h | f->l4_delta_addr + (__u16)~shunt_htons(0x0100) | f->l4_delta_addr + shunt_htons(0x0100)
 * mutant: core/forward.h | *(shunt_l2_u32 *)ports = *(const __u32 *)&f->sport_be; | *(shunt_l2_u32 *)ports = *(const __u32 *)&f->sport_be; ports->len = 0;
 * mutant: core/encap.h | if (tags > 0)\n\t\t*(shunt_l2_u32 *)(half + 7) | if (1)\n\t\t*(shunt_l2_u32 *)(half + 7)
 */
#include "claim.h"

enum {
	L3 = FAMILY == 4 ? 20 : 40,
	L4 = PROTO == 6 ? 20 : 8,
	ADDRS_AT = FAMILY == 4 ? 12 : 8,
	TTL_AT = FAMILY == 4 ? 8 : 7
};

/* Whether an action may change the byte at offset `at` of the L3 and L4 headers. */
static int may_change(const struct shunt_flow *f, __u32 at)
{
	__u32 check_at = L3 + (PROTO == 6 ? 16 : 6);

	if (at == TTL_AT)
		return !(f->flags & SHUNT_FLOW_BRIDGED);
	if (FAMILY == 4 && (at == 10 || at == 11))
		return !(f->flags & SHUNT_FLOW_BRIDGED) || f->flags & SHUNT_FLOW_NAT;
	if (!(f->flags & SHUNT_FLOW_NAT))
		return 0;
	return (at >= ADDRS_AT && at < L3 + 4) || at == check_at || at == check_at + 1;
}

static __u16 half(const __u8 *bytes, __u32 at)
{
	return *(const __u16 *)(bytes + at);
}

/* The L4 checksum that an action turns `old` into. */
static __u16 l4_check(const struct shunt_flow *f, __u16 old, enum shunt_checksum checksum)
{
	__u16 new = checksum == SHUNT_CHECKSUM_PARTIAL ? shunt_csum_update_partial(old, f->l4_delta_addr) :
							 shunt_csum_update(old, f->l4_delta);

	if (!(f->flags & SHUNT_FLOW_NAT) || (PROTO == 17 && !old))
		return old;
	return PROTO == 17 && !new ? 0xffff : new;
}

/* The smallest L4 header, at the very end of its object. */
static void layers_3_and_4(void)
{
	struct shunt_flow *f = any_bytes(sizeof(*f) + (FAMILY == 4 ? 8 : 32)), before = *f;
	__u8 *l3 = any_bytes(L3 + L4), *to = (__u8 *)(f + 1);
	__u8 old[L3 + L4];
	enum shunt_checksum checksum = nondet_bool() ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED;
	__u32 at = nondet_u32(), check_at = L3 + (PROTO == 6 ? 16 : 6), delta;

	assume(at < L3 + L4);
	__builtin_memcpy(old, l3, L3 + L4);
	shunt_rewrite(l3, l3 + L3, FAMILY, PROTO, f, to, checksum);
	claim(l3[at] == old[at] || may_change(f, at), "nothing else changes");
	if (!(f->flags & SHUNT_FLOW_BRIDGED))
		claim(l3[TTL_AT] == (__u8)(old[TTL_AT] - 1), "the TTL is one less");
	if (f->flags & SHUNT_FLOW_NAT) {
		claim(same_bytes(l3 + ADDRS_AT, to, L3 - ADDRS_AT), "addresses are the action's");
		claim(same_bytes(l3 + L3, &f->sport_be, 2) && same_bytes(l3 + L3 + 2, &f->dport_be, 2),
		      "ports are the action's");
	}
	claim(half(l3, check_at) == l4_check(f, half(old, check_at), checksum),
	      "the L4 checksum changes as the action says");
	delta = f->l4_delta_addr + (f->flags & SHUNT_FLOW_BRIDGED ? 0 : (__u16)~shunt_htons(0x0100));
	if (FAMILY == 4 && may_change(f, 10))
		claim(half(l3, 10) == shunt_csum_update(half(old, 10), delta),
		      "the header checksum changes as the action says");
	claim(same_bytes(&before, f, sizeof(before)), "the flow is unchanged");
}

/* The L2 header, in an object of exactly its size. */
static void layer_2(void)
{
	struct shunt_flow *f = any_flow(FAMILY);
	__u32 bytes = ETH_HLEN + 4 * f->out_tags;
	__u8 *l2 = any_bytes(bytes), *macs = any_bytes(2 * ETH_ALEN);

	shunt_copy_l2(l2, f->l2, f->out_tags);
	claim(same_bytes(l2, f->l2, bytes), "the L2 header is the action's");
	shunt_copy_macs(macs, f->l2);
	claim(same_bytes(macs, f->l2, 2 * ETH_ALEN), "MACs are the action's");
}

int main(void)
{
	layers_3_and_4();
	layer_2();
	return 0;
}
