/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: An action is proved if and only if it turns the ingress frame into the egress frame, byte for byte, as far as
 * their headers were saved. This harness builds the frames as the forwarding programs do.
 * case: FAMILY=4 PROTO=6
 * case: FAMILY=4 PROTO=17
 * case: FAMILY=6 PROTO=6
 * case: FAMILY=6 PROTO=17
 * mutant: core/learn.h | differ |= a[i] ^ b[i]; | if (i != 5) differ |= a[i] ^ b[i];
 * mutant: core/learn.h | in->l2_bytes = shunt_l2_bytes_out(f->out_tags); |
 * mutant: core/learn.h | __builtin_memcpy(in->l2, f->l2, SHUNT_L2_MAX); |
 * mutant: core/learn.h | c->partial ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED | SHUNT_CHECKSUM_FINISHED
 */
#include "claim.h"

enum { L3 = FAMILY == 4 ? 20 : 40, L4 = SHUNT_L4_MAX, FRAME = SHUNT_L2_MAX + L3 + L4 };

/* Arbitrary headers as shunt_save_headers() saves them, with zeros in unused bytes. */
static void any_headers(struct shunt_headers *h, __u8 tags, __u8 l4_bytes)
{
	struct shunt_headers *any = any_bytes(sizeof(*any));

	*h = *any;
	h->l2_bytes = ETH_HLEN + 4 * tags;
	h->l4_bytes = l4_bytes;
	for (__u32 i = 0; i < SHUNT_L2_MAX; i++)
		assume(i < h->l2_bytes || !h->l2[i]);
	for (__u32 i = L3; i < SHUNT_L3_MAX; i++)
		assume(!h->l3[i]);
	for (__u32 i = 0; i < SHUNT_L4_MAX; i++)
		assume(i < l4_bytes || !h->l4[i]);
	for (__u32 i = 0; i < sizeof(h->_pad); i++)
		assume(!h->_pad[i]);
}

int main(void)
{
	struct shunt_candidate *c = any_bytes(sizeof(*c));
	struct shunt_headers out, copy;
	struct shunt_flow *f = any_flow(FAMILY);
	__u8 *to = (__u8 *)(f + 1), frame[L3 + L4];
	__u8 tags = nondet_u8(), l4_bytes = nondet_u8();
	int equal;

	assume(tags <= SHUNT_TAGS_MAX && l4_bytes >= l4_size(PROTO) && l4_bytes <= SHUNT_L4_MAX);
	any_headers(&c->headers, nondet_u8() % 3, l4_bytes);
	any_headers(&out, tags, l4_bytes);
	c->family = FAMILY;
	c->l4_proto = PROTO;
	/* shunt_derive() copies the L2 header from the egress headers, including zeros. */
	for (__u32 i = 0; i < SHUNT_L2_MAX; i++)
		assume(i < ETH_HLEN + 4 * f->out_tags || !f->l2[i]);

	copy_bytes(frame, c->headers.l3, L3);
	copy_bytes(frame + L3, c->headers.l4, L4);
	shunt_rewrite(frame, frame + L3, FAMILY, PROTO, f, to,
		      c->partial ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED);
	equal = f->out_tags == tags && same_bytes(f->l2, out.l2, ETH_HLEN + 4 * tags) &&
		same_bytes(frame, out.l3, L3) && same_bytes(frame + L3, out.l4, L4);

	copy = c->headers;
	claim(!!shunt_proved(&copy, &out, c, f, to) == equal, "proved if and only if the bytes are equal");
	return 0;
}
