/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: Parsing reads only the frame, and accepts only frames with complete headers.
 * case: FAMILY=4
 * case: FAMILY=6
 * mutant: core/encap.h | if ((void *)vlan > end) | if (data > end)
 * mutant: core/parse.h | (void *)(tcp + 1) > end | l4 > end
 * mutant: core/parse.h | (void *)(udp + 1) > end | l4 + 4 > end
 * mutant: core/parse.h | bytes < p->l4_bytes | 0
 */
#include "claim.h"

int main(void)
{
	__u32 bytes = nondet_u32(), ifindex = nondet_u32();
	struct shunt_hw_tag hw = { .tpid_be = nondet_u16(), .tci = nondet_u16(), .present = nondet_bool() };
	struct shunt_packet p;
	union shunt_key key;
	__u32 family;
	__u8 *frame, *l3, *l4;

	assume(bytes <= FRAME_MAX);
	frame = any_bytes(bytes);
	if (shunt_parse_l2(frame, frame + bytes, hw, &p, &family) != SHUNT_OK)
		return 0;
	claim(p.tags <= SHUNT_TAGS_MAX, "at most two tags");
	claim(p.l2_bytes == ETH_HLEN + 4 * (p.tags - hw.present), "the L2 header has the tags that were not stripped");
	claim(p.l2_bytes <= bytes, "the L2 header is in the frame");
	if (shunt_parse_l3(FAMILY, frame + p.l2_bytes, frame + bytes, ifindex, &p, &key) != SHUNT_OK)
		return 0;
	l3 = frame + p.l2_bytes;
	l4 = l3 + shunt_l3_size(FAMILY);
	claim(p.family == FAMILY && l3[0] >> 4 == FAMILY, "the family is that of the header");
	claim(p.l4_proto == IPPROTO_TCP || p.l4_proto == IPPROTO_UDP, "the protocol is TCP or UDP");
	claim(p.l2_bytes + shunt_l3_size(FAMILY) + l4_size(p.l4_proto) <= bytes, "both headers are in the frame");
	claim(p.l4_bytes >= l4_size(p.l4_proto), "the L4 header is whole");
	claim(shunt_l3_size(FAMILY) + p.l4_bytes <= p.l3_bytes, "the L4 header is within the IP length");
	if (FAMILY == 4) {
		claim(same_bytes(&key.v4.src_be, l3 + 12, 8), "addresses of the key");
		claim(same_bytes(&key.v4.sport_be, l4, 4), "ports of the key");
		claim(key.v4.ifindex == ifindex && key.v4.l4_proto == l3[9], "rest of the key");
	} else {
		claim(same_bytes(&key.v6.src_be, l3 + 8, 32), "addresses of the key");
		claim(same_bytes(&key.v6.sport_be, l4, 4), "ports of the key");
		claim(key.v6.ifindex == ifindex && key.v6.l4_proto == l3[6], "rest of the key");
	}
	return 0;
}
