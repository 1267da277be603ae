/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What stands before the IP header: an Ethernet header and at most SHUNT_TAGS_MAX VLAN tags, some of which the driver
 * or the kernel keeps beside the frame. To parse it, to write, push and pop it, and to put it into a key. No other C
 * knows its layout; crates/shunt-wire/src/encap.rs is the twin in Rust. Freestanding.
 *
 * Every pointer is compared with `end` in the function that dereferences it: the verifier requires this, and
 * sanitizers on the host check it.
 */
#ifndef SHUNT_CORE_ENCAP_H
#define SHUNT_CORE_ENCAP_H

#include <linux/if_ether.h>

#include "core/packet.h"

/* A tag on the wire, from its TPID on. */
struct shunt_tag {
	__be16 tpid_be;
	__be16 tci_be;
};

/* A tag on the wire, from its TCI on: the EtherType that follows tells what is inside. */
struct shunt_vlan {
	__be16 tci_be;
	__be16 proto_be;
};

/* The header of PPPoE in a session, and of PPP: RFC 2516, RFC 1661. */
struct shunt_pppoe {
	__be16 version_be; /* version, type and code: SHUNT_PPPOE_SESSION */
	__be16 session_be;
	__be16 bytes_be; /* of the protocol and the packet */
	__be16 proto_be;
};

enum { SHUNT_PPPOE_SESSION = 0x1100, SHUNT_PPP_IP = 0x0021, SHUNT_PPP_IPV6 = 0x0057 };

/* A VLAN tag that the driver stripped; `present` is 0 if there is none. */
struct shunt_hw_tag {
	__be16 tpid_be;
	__u16 tci;
	__u32 present;
};

/* Bytes before the IP header, with `tags` tags in the frame. */
static __always_inline __u32 shunt_l2_bytes(__u32 tags)
{
	return ETH_HLEN + sizeof(struct shunt_vlan) * tags;
}

/* The number of tags of a header of this length, which is 0 on a port without layer 2. */
static __always_inline __u32 shunt_tags_in(__u32 l2_bytes)
{
	return l2_bytes < ETH_HLEN ? 0 : (l2_bytes - ETH_HLEN) / sizeof(struct shunt_vlan);
}

/* The number of tags that an action gives a packet. */
static __always_inline __u32 shunt_tags_out(__u32 out_tags)
{
	return out_tags == SHUNT_NO_L2 ? 0 : out_tags;
}

/* Bytes before the IP header of a packet after its action. */
static __always_inline __u32 shunt_l2_bytes_out(__u32 out_tags)
{
	return out_tags == SHUNT_NO_L2 ? 0 : shunt_l2_bytes(out_tags);
}

/* The shortest header, and the most bytes by which an action makes a frame longer. */
enum { SHUNT_L2_MIN = ETH_HLEN, SHUNT_L2_GROWTH = SHUNT_L2_MAX - SHUNT_L2_MIN };

/* The family of the packet behind a header that ends with this protocol; 0 if it is not IP. */
static __always_inline __u32 shunt_family_of(__be16 proto_be)
{
	if (proto_be == shunt_htons(ETH_P_IP))
		return 4;
	return proto_be == shunt_htons(ETH_P_IPV6) ? 6 : 0;
}

static __always_inline int shunt_is_vlan(__be16 tpid_be)
{
	return tpid_be == shunt_htons(ETH_P_8021Q) || tpid_be == shunt_htons(ETH_P_8021AD);
}

/* Both MACs are contiguous, the destination first. */
static __always_inline const __u8 *shunt_source_mac(const void *macs)
{
	return (const __u8 *)macs + ETH_ALEN;
}

/* Whether the frame is to a group of stations: multicast or broadcast. */
static __always_inline int shunt_is_to_group(const void *macs)
{
	return *(const __u8 *)macs & 1;
}

/* Reads eight bytes of each: at least two more bytes always follow a MAC in a header. */
static __always_inline int shunt_same_mac(const void *a, const void *b)
{
	__u64 differ = *(const shunt_l2_u64 *)a ^ *(const shunt_l2_u64 *)b;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	differ <<= 16;
#else
	differ >>= 16;
#endif
	/* Clang would load a mask instead. */
	shunt_keep(differ);
	return !differ;
}

/* Whether both MACs of two headers are the same. */
static __always_inline int shunt_same_macs(const void *a, const void *b)
{
	return !shunt_differ(a, b, ETH_ALEN);
}

static __always_inline void shunt_copy_macs(void *to, const void *from)
{
	*(shunt_l2_u64 *)to = *(const shunt_l2_u64 *)from;
	((shunt_l2_u32 *)to)[2] = ((const shunt_l2_u32 *)from)[2];
}

/* Adds a tag to the description of a packet, inside of those that it has. */
static __always_inline void shunt_add_tag(struct shunt_packet *p, __be16 tpid_be, __be16 tci_be)
{
	/* Constant indices keep the struct in registers. */
	if (p->tags == 0) {
		p->tpid_be[0] = tpid_be;
		p->tci_be[0] = tci_be;
		p->class_and_ttl |= shunt_class_and_ttl((shunt_ntohs(tci_be) >> 4) & 0x0f00, 0);
	} else {
		p->tpid_be[1] = tpid_be;
		p->tci_be[1] = tci_be;
		p->class_and_ttl |= shunt_class_and_ttl(shunt_ntohs(tci_be) & 0xf000, 0);
	}
	p->tags++;
}

/* Adds a tag that is in the frame. */
static __always_inline void shunt_add_tag_in_frame(struct shunt_packet *p, struct shunt_tag tag)
{
	shunt_add_tag(p, tag.tpid_be, tag.tci_be);
	p->l2_bytes += sizeof(struct shunt_vlan);
}

/* Parses the header of a frame. `family` is that of the packet behind it; 0 if it is not IP. */
static __always_inline enum shunt_reason shunt_parse_l2(void *data, void *end, struct shunt_hw_tag hw,
							struct shunt_packet *p, __u32 *family)
{
	struct shunt_vlan *vlan = data + ETH_HLEN;
	__be16 proto_be;

	*family = 0;
	*p = (struct shunt_packet){ .l2_bytes = ETH_HLEN };
	if ((void *)vlan > end)
		return SHUNT_BAD_HEADER;
	if (hw.present)
		shunt_add_tag(p, hw.tpid_be, shunt_htons(hw.tci));
	/* struct ethhdr is packed, and would make the compiler load the field in two halves. */
	proto_be = vlan[-1].proto_be;
	if (shunt_unlikely(shunt_is_vlan(proto_be))) {
		if ((void *)(vlan + 1) > end)
			return SHUNT_BAD_HEADER;
		shunt_add_tag(p, proto_be, vlan->tci_be);
		proto_be = vlan->proto_be;
		p->l2_bytes += sizeof(*vlan);
		if (shunt_is_vlan(proto_be)) {
			if (p->tags == SHUNT_TAGS_MAX)
				return SHUNT_TAGS;
			vlan++;
			if ((void *)(vlan + 1) > end)
				return SHUNT_BAD_HEADER;
			shunt_add_tag(p, proto_be, vlan->tci_be);
			proto_be = vlan->proto_be;
			p->l2_bytes += sizeof(*vlan);
			if (shunt_is_vlan(proto_be))
				return SHUNT_TAGS;
		}
	}
	*family = shunt_family_of(proto_be);
	return SHUNT_OK;
}

/* Starts the description of a packet of a port without layer 2. */
static __always_inline void shunt_without_l2(struct shunt_packet *p)
{
	*p = (struct shunt_packet){};
}

/*
 * The usual frame has no tags in it. The functions below find its parts without parsing: `l3` is behind the header, and
 * within the frame.
 */
static __always_inline void *shunt_untagged_l3(void *data)
{
	return data + ETH_HLEN;
}

static __always_inline void *shunt_untagged_macs(void *l3)
{
	return l3 - ETH_HLEN;
}

static __always_inline __be16 shunt_proto_before(const void *l3)
{
	return ((const __be16 *)l3)[-1];
}

/* Starts the description of such a frame. */
static __always_inline void shunt_untagged(struct shunt_packet *p)
{
	*p = (struct shunt_packet){ .l2_bytes = ETH_HLEN };
}

/* Writes an untagged header. `l2` has ETH_HLEN bytes. */
static __always_inline void shunt_write_untagged(void *l2, const void *macs, __u32 family)
{
	shunt_copy_macs(l2, macs);
	((__be16 *)l2)[6] = shunt_htons(family == 4 ? ETH_P_IP : ETH_P_IPV6);
}

_Static_assert(ETH_HLEN + sizeof(struct shunt_vlan) + __builtin_offsetof(struct shunt_pppoe, bytes_be) == SHUNT_L2_MAX,
	       "the header of a session with a tag fits");

/* The protocol of PPP for packets of a family. */
static __always_inline __be16 shunt_ppp_proto(__u32 family)
{
	return shunt_htons(family == 4 ? SHUNT_PPP_IP : SHUNT_PPP_IPV6);
}

/*
 * The family of the packet behind this header, and in `bytes` its length as the header has it; 0 if this is no usual
 * header of an IP packet.
 */
static __always_inline __u32 shunt_pppoe_family(const struct shunt_pppoe *header, __u32 *bytes)
{
	*bytes = shunt_ntohs(header->bytes_be) - (__u32)sizeof(header->proto_be);
	if (header->version_be != shunt_htons(SHUNT_PPPOE_SESSION))
		return 0;
	if (header->proto_be == shunt_ppp_proto(4))
		return 4;
	return header->proto_be == shunt_ppp_proto(6) ? 6 : 0;
}

/* Whether a header of PPPoE in a session stands here, behind an EtherType that says so, and is in the frame. */
static __always_inline int shunt_is_pppoe(const struct shunt_pppoe *header, void *end)
{
	return (void *)(header + 1) <= end && shunt_proto_before(header) == shunt_htons(ETH_P_PPP_SES);
}

/* Describes a session by a frame that left in it, with `p->l2_bytes` and tags as shunt_parse_l2() found them. */
static __always_inline void shunt_describe_session(struct shunt_session *s, const void *macs,
						   const struct shunt_packet *p, const struct shunt_pppoe *header)
{
	__be16 *half = (__be16 *)s->header;
	__u32 at = 6;

	shunt_copy_macs(s->header, macs);
	s->tags = p->tags;
	if (p->tags) {
		half[6] = p->tpid_be[0];
		half[7] = p->tci_be[0];
		at = 8;
	}
	half[at] = shunt_htons(ETH_P_PPP_SES);
	half[at + 1] = header->version_be;
	half[at + 2] = header->session_be;
}

/* The number of a session. */
static __always_inline __be16 shunt_session_number(const struct shunt_session *s)
{
	const __be16 *half = (const __be16 *)s->header;

	return s->tags ? half[10] : half[8];
}

/* Whether a frame came from the other end of a session: it has the MACs of those that leave, in the other order. */
static __always_inline int shunt_is_from_peer(const struct shunt_session *s, const void *macs)
{
	return !shunt_differ(s->header, shunt_source_mac(macs), ETH_ALEN / 2) &&
	       !shunt_differ(shunt_source_mac(s->header), macs, ETH_ALEN / 2);
}

/* The longest header of a packet in a session. */
enum { SHUNT_SESSION_MAX = SHUNT_L2_MAX + 4 };

/* Writes what stands before a packet of `l3_bytes` bytes in a session; `l2` has SHUNT_SESSION_MAX bytes. */
static __always_inline void shunt_write_session(void *l2, const struct shunt_session *s, __u32 family, __u32 l3_bytes)
{
	const __u16 *with = (const __u16 *)s->header;
	__u16 *half = l2;
	__be16 *end = half + 9;

	shunt_copy_macs(half, with);
	half[6] = with[6];
	*(shunt_l2_u32 *)(half + 7) = *(const shunt_l2_u32 *)(with + 7);
	if (s->tags) {
		*(shunt_l2_u32 *)(half + 9) = *(const shunt_l2_u32 *)(with + 9);
		end += 2;
	}
	end[0] = shunt_htons(l3_bytes + sizeof(end[1]));
	end[1] = shunt_ppp_proto(family);
}

/* Finds the L3 header of a frame, which has tags in it only if `tagged`. Returns 0 if it is out of bounds. */
static __always_inline void *shunt_find_l3(void *data, void *end, int tagged)
{
	__be16 *proto = data + 2 * ETH_ALEN;
	void *l3 = data + ETH_HLEN;

	if ((void *)(proto + 1) > end)
		return 0;
	if (tagged && shunt_is_vlan(*proto)) {
		proto = l3 + 2;
		l3 += sizeof(struct shunt_vlan);
		if (l3 > end)
			return 0;
		if (shunt_is_vlan(*proto))
			l3 += sizeof(struct shunt_vlan);
	}
	return l3;
}

/* The tag number `n` of a header, outermost first. */
static __always_inline struct shunt_tag shunt_tag_at(const void *l2, __u32 n)
{
	const __be16 *half = l2 + 2 * ETH_ALEN;

	return (struct shunt_tag){ .tpid_be = half[2 * n], .tci_be = half[2 * n + 1] };
}

static __always_inline int shunt_has_tag(const struct shunt_packet *p, __u32 n, const void *l2)
{
	struct shunt_tag tag = shunt_tag_at(l2, n);

	return p->tpid_be[n] == tag.tpid_be && p->tci_be[n] == tag.tci_be;
}

/* Whether a packet has the same tags as a header with `tags` tags, priorities included. */
static __always_inline int shunt_same_tags(const struct shunt_packet *p, const void *l2, __u32 tags)
{
	return p->tags == tags && (p->tags < 1 || shunt_has_tag(p, 0, l2)) && (p->tags < 2 || shunt_has_tag(p, 1, l2));
}

/* The outer tag of a packet that has one. */
static __always_inline struct shunt_tag shunt_outer_tag(const struct shunt_packet *p)
{
	return (struct shunt_tag){ .tpid_be = p->tpid_be[0], .tci_be = p->tci_be[0] };
}

/* Whether the outer tag is an 802.1Q tag of this VLAN. */
static __always_inline int shunt_is_in_vlan(struct shunt_tag outer, __u32 vlan)
{
	return outer.tpid_be == shunt_htons(ETH_P_8021Q) && (shunt_ntohs(outer.tci_be) & SHUNT_TAG_VID) == vlan;
}

/*
 * Writes the header of a packet as on the wire, including tags that the driver stripped. `macs` points to both MACs.
 * `l2` has SHUNT_L2_MAX bytes of zeros.
 */
static __always_inline void shunt_write_l2(__u8 *l2, const __u8 *macs, const struct shunt_packet *p)
{
	__be16 *half = (__be16 *)l2;
	__be16 proto_be = shunt_htons(p->family == 4 ? ETH_P_IP : ETH_P_IPV6);

	__builtin_memcpy(l2, macs, 2 * ETH_ALEN);
	half[6] = proto_be;
	if (p->tags > 0) {
		half[6] = p->tpid_be[0];
		half[7] = p->tci_be[0];
		half[8] = proto_be;
	}
	if (p->tags > 1) {
		half[8] = p->tpid_be[1];
		half[9] = p->tci_be[1];
		half[10] = proto_be;
	}
}

/* Copies a whole header with `tags` tags. */
static __always_inline void shunt_copy_l2(void *to, const void *from, __u32 tags)
{
	__u16 *half = to;
	const __u16 *with = from;

	shunt_copy_macs(to, from);
	half[6] = with[6];
	if (tags > 0)
		*(shunt_l2_u32 *)(half + 7) = *(const shunt_l2_u32 *)(with + 7);
	if (tags > 1)
		*(shunt_l2_u32 *)(half + 9) = *(const shunt_l2_u32 *)(with + 9);
}

/* A tag in a key: enum shunt_tag_bits. */
static __always_inline __u16 shunt_tag_bits(__be16 tpid_be, __be16 tci_be)
{
	return SHUNT_TAG_PRESENT | (tpid_be == shunt_htons(ETH_P_8021AD) ? SHUNT_TAG_8021AD : 0) |
	       (shunt_ntohs(tci_be) & SHUNT_TAG_VID);
}

/* Fills the tags of a key from a packet. */
static __always_inline void shunt_key_tags(__u16 tags[SHUNT_TAGS_MAX], const struct shunt_packet *p)
{
	tags[0] = 0;
	tags[1] = 0;
	if (shunt_unlikely(p->tags > 0))
		tags[0] = shunt_tag_bits(p->tpid_be[0], p->tci_be[0]);
	if (p->tags > 1)
		tags[1] = shunt_tag_bits(p->tpid_be[1], p->tci_be[1]);
}

/* Fills the tags of a key from a header with `count` tags. */
static __always_inline void shunt_key_tags_from_l2(const __u8 *l2, __u32 count, __u16 tags[SHUNT_TAGS_MAX])
{
	struct shunt_tag tag;

	tags[0] = 0;
	tags[1] = 0;
	if (count > 0) {
		tag = shunt_tag_at(l2, 0);
		tags[0] = shunt_tag_bits(tag.tpid_be, tag.tci_be);
	}
	if (count > 1) {
		tag = shunt_tag_at(l2, 1);
		tags[1] = shunt_tag_bits(tag.tpid_be, tag.tci_be);
	}
}

#endif
