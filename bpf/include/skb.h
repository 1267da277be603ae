/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Fields of struct sk_buff that struct __sk_buff does not show, and helpers for both.
 *
 * Their offsets come from the kernel's BTF, or from a file of its types (SHUNT_WITHOUT_KFUNCS); without both
 * (SHUNT_WITHOUT_BTF), nothing is learned.
 */
#ifndef SHUNT_SKB_H
#define SHUNT_SKB_H

#include "include/control.h"
#include <bpf/bpf_core_read.h>

enum {
	SHUNT_SUMMED_UNNECESSARY = 1, /* CHECKSUM_UNNECESSARY: verified by the driver */
	SHUNT_SUMMED_COMPLETE = 2, /* CHECKSUM_COMPLETE: the driver supplied the sum over the packet */
	SHUNT_SUMMED_PARTIAL = 3, /* CHECKSUM_PARTIAL: the device finishes the L4 checksum */
	SHUNT_SUMMED_UNKNOWN = 4, /* without BTF, the offset of ip_summed is unknown */
};

/*
 * Free bytes before the Ethernet header that are enough for all link-layer headers: two tags and the header of a switch
 * take 48 bytes, and a bridge with a Wi-Fi device about 100.
 */
enum { SHUNT_HEADROOM = 128 };

/* Fields of sk_buff that the fast path needs and struct __sk_buff lacks. */
struct shunt_skb_hidden {
	__u32 summed; /* ip_summed: SHUNT_SUMMED_*, or 0 for CHECKSUM_NONE */
	__u32 extensions; /* active_extensions: bits of enum skb_ext_id, such as a security path */
};

#ifdef SHUNT_WITHOUT_BTF

enum { SHUNT_SUMMED_IS_KNOWN = 0 };

/* Without BTF, nothing is learned, and no candidate is needed. */
static __always_inline __u64 shunt_skb_data(struct __sk_buff *skb)
{
	(void)skb;
	return 0;
}

static __always_inline int shunt_skb_copied(struct __sk_buff *skb)
{
	(void)skb;
	return 1;
}

static __always_inline __u32 shunt_skb_headroom(struct __sk_buff *skb)
{
	(void)skb;
	return SHUNT_HEADROOM;
}

static __always_inline int shunt_skb_begins_with_l3(struct __sk_buff *skb)
{
	(void)skb;
	return 1;
}

static __always_inline int shunt_skb_wants_stamp(struct __sk_buff *skb)
{
	(void)skb;
	return 0;
}

/* Without BTF, offsets are unknown. Aggregates have CHECKSUM_PARTIAL, except those of rx-gro-list. */
static __always_inline struct shunt_skb_hidden shunt_skb_hidden(struct __sk_buff *skb)
{
	return (struct shunt_skb_hidden){ .summed = skb->gso_size ? SHUNT_SUMMED_PARTIAL : SHUNT_SUMMED_UNKNOWN };
}

/* Without BTF, the offset of the security path is unknown, but nothing is learned either. */
static __always_inline int shunt_skb_decrypted(struct __sk_buff *skb)
{
	(void)skb;
	return 0;
}

/* Without BTF, the offset of the bit is unknown. Static flows have no largest size. */
static __always_inline int shunt_skb_encapsulated(struct __sk_buff *skb)
{
	(void)skb;
	return 0;
}

#else

enum { SHUNT_SUMMED_IS_KNOWN = 1 };

struct sk_buff___shunt {
	__u8 ip_summed : 2;
	__u8 active_extensions; /* bits of enum skb_ext_id */
	__u8 ipvs_property : 1; /* only with CONFIG_IP_VS */
	__u8 cloned : 1;
	__u8 encapsulation : 1;
	unsigned long _nfct;
	unsigned char *head, *data;
	__u16 network_header; /* an offset from `head` */
	unsigned int end; /* an offset, on 64-bit kernels */
} __attribute__((preserve_access_index));

struct sk_buff___pointers {
	unsigned char *end; /* on 32-bit kernels */
} __attribute__((preserve_access_index));

struct skb_shared_info___shunt {
	__u8 tx_flags;
} __attribute__((preserve_access_index));

enum skb_ext_id___shunt {
	SKB_EXT_SEC_PATH___shunt = 1, /* relocated: depends on the kernel's configuration */
};

#ifdef SHUNT_WITHOUT_KFUNCS
static void *(*const bpf_cast_to_kern_ctx)(void *ctx) = 0;
#else
/* Linux 6.2, commit fd264ca02094. */
void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;
#endif

/* Reads an address as long as the kernel's addresses. */
#define shunt_read_address(from, field)                                                                                \
	({                                                                                                             \
		__u64 address_ = 0;                                                                                    \
		bpf_probe_read_kernel(&address_, bpf_core_field_size((from)->field), &(from)->field);                  \
		address_;                                                                                              \
	})

/*
 * Before 6.2, the context is the sk_buff, and only a helper can read the fields. The other way suits fields as all
 * known kernels have them, and takes fewer instructions than BPF_CORE_READ_BITFIELD().
 */
static __always_inline struct shunt_skb_hidden shunt_skb_hidden(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;
	struct shunt_skb_hidden hidden = {};
	__u64 byte;

	if (!bpf_cast_to_kern_ctx || !bpf_core_field_exists(kernel->active_extensions) ||
	    __builtin_preserve_field_info(kernel->ip_summed, BPF_FIELD_BYTE_SIZE) != 1) {
		hidden.summed = BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed);
		if (bpf_core_field_exists(kernel->active_extensions))
			hidden.extensions = BPF_CORE_READ(kernel, active_extensions);
		return hidden;
	}
	kernel = bpf_cast_to_kern_ctx(skb);
	byte = *((__u8 *)kernel + __builtin_preserve_field_info(kernel->ip_summed, BPF_FIELD_BYTE_OFFSET));
	byte <<= __builtin_preserve_field_info(kernel->ip_summed, BPF_FIELD_LSHIFT_U64);
	hidden.summed = byte >> __builtin_preserve_field_info(kernel->ip_summed, BPF_FIELD_RSHIFT_U64);
	hidden.extensions = kernel->active_extensions;
	return hidden;
}

/* Whether the packet has a security path: it arrived by IPsec, and the port sees it again, decrypted. */
static __always_inline int shunt_skb_decrypted(struct __sk_buff *skb)
{
	if (!bpf_core_enum_value_exists(enum skb_ext_id___shunt, SKB_EXT_SEC_PATH___shunt))
		return 0;
	return shunt_skb_hidden(skb).extensions >>
		       bpf_core_enum_value(enum skb_ext_id___shunt, SKB_EXT_SEC_PATH___shunt) &
	       1;
}

/* The address of the connection that conntrack found for the packet, with enum ip_conntrack_info in its low bits. */
static __always_inline unsigned long shunt_skb_connection(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return BPF_CORE_READ_BITFIELD_PROBED(kernel, _nfct);
	kernel = bpf_cast_to_kern_ctx(skb);
	return kernel->_nfct;
}

/* The identity of the packet's data: the address of its buffer. */
static __always_inline __u64 shunt_skb_data(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return shunt_read_address(kernel, head);
	kernel = bpf_cast_to_kern_ctx(skb);
	return (__u64)kernel->head;
}

/*
 * Whether the packet shares its data with another one, or did so. Routing makes the data its own, so for a routed
 * packet: whether it was copied after that, as a bridge does that floods.
 */
static __always_inline int shunt_skb_copied(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return BPF_CORE_READ_BITFIELD_PROBED(kernel, cloned);
	kernel = bpf_cast_to_kern_ctx(skb);
	return BPF_CORE_READ_BITFIELD(kernel, cloned);
}

/* The free bytes before the packet. */
static __always_inline __u32 shunt_skb_headroom(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return shunt_read_address(kernel, data) - shunt_read_address(kernel, head);
	kernel = bpf_cast_to_kern_ctx(skb);
	return (__u64)kernel->data - (__u64)kernel->head;
}

/* Whether nothing stands before the L3 header: some tunnel devices show their outer header there. */
static __always_inline int shunt_skb_begins_with_l3(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return BPF_CORE_READ(kernel, network_header) == shunt_skb_headroom(skb);
	kernel = bpf_cast_to_kern_ctx(skb);
	return kernel->network_header == shunt_skb_headroom(skb);
}

/* Whether the sender asked for a time stamp of the transmission. */
static __always_inline int shunt_skb_wants_stamp(struct __sk_buff *skb)
{
	struct sk_buff___pointers *pointers = (void *)skb;
	struct sk_buff___shunt *kernel = (void *)skb;
	__u64 info;

	if (bpf_core_field_exists(pointers->end))
		info = shunt_read_address(pointers, end);
	else
		info = shunt_read_address(kernel, head) + BPF_CORE_READ(kernel, end);
	return BPF_CORE_READ((struct skb_shared_info___shunt *)info, tx_flags);
}

/* Whether an aggregate consists of packets inside a tunnel. */
static __always_inline int shunt_skb_encapsulated(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_cast_to_kern_ctx)
		return BPF_CORE_READ_BITFIELD_PROBED(kernel, encapsulation);
	kernel = bpf_cast_to_kern_ctx(skb);
	return BPF_CORE_READ_BITFIELD(kernel, encapsulation);
}

/* Whether IPVS scheduled the packet. On a kernel without IPVS, libbpf makes this a constant. */
static __always_inline int shunt_skb_ipvs(struct __sk_buff *skb)
{
	struct sk_buff___shunt *kernel = (void *)skb;

	if (!bpf_core_field_exists(kernel->ipvs_property))
		return 0;
	if (!bpf_cast_to_kern_ctx)
		return BPF_CORE_READ_BITFIELD_PROBED(kernel, ipvs_property);
	kernel = bpf_cast_to_kern_ctx(skb);
	return BPF_CORE_READ_BITFIELD(kernel, ipvs_property);
}

#endif

/*
 * The identity of a packet: the address of its sk_buff, which is the program's context. It is given as the distance
 * from the control block, because the verifier allows no other arithmetic than subtraction with the address of a
 * context.
 */
static __always_inline __u64 shunt_skb_identity(struct __sk_buff *skb)
{
	__u64 identity = (__u64)skb, base = (__u64)&shunt_control;

	asm volatile("%0 -= %1" : "+r"(identity) : "r"(base));
	return identity;
}

/*
 * Makes headroom for the longest link-layer header of a device to which Linux may route an IPv6 packet: where it is too
 * short, ip6_finish_output2() goes on with a clone, and the packet that this program knows is freed. For IPv4,
 * ip_forward() makes the headroom without that. Returns -1 if the packet is now invalid. Invalidates pointers to the
 * packet.
 */
static __always_inline int shunt_skb_make_headroom(struct __sk_buff *skb)
{
	const __u64 flags = BPF_F_ADJ_ROOM_NO_CSUM_RESET | BPF_F_ADJ_ROOM_FIXED_GSO;

	if (shunt_skb_headroom(skb) >= SHUNT_HEADROOM)
		return 0;
	/* Fails with nothing changed behind a second tag, and for aggregates of a tunnel's packets. */
	if (bpf_skb_adjust_room(skb, SHUNT_HEADROOM, BPF_ADJ_ROOM_MAC, flags))
		return 0;
	return bpf_skb_adjust_room(skb, -SHUNT_HEADROOM, BPF_ADJ_ROOM_MAC, flags) ? -1 : 0;
}

/* Whether the driver verified the L4 checksum, or a device will finish it. */
static __always_inline int shunt_is_verified(__u32 summed)
{
	/* UNNECESSARY and PARTIAL are the odd values. */
	return summed & 1;
}

static __always_inline struct shunt_hw_tag shunt_skb_tag(struct __sk_buff *skb)
{
	if (shunt_likely(!skb->vlan_present))
		return (struct shunt_hw_tag){};
	return (struct shunt_hw_tag){ .tpid_be = skb->vlan_proto, .tci = skb->vlan_tci, .present = 1 };
}

/*
 * Parses what stands before the IP header of a packet: an Ethernet header with tags, or nothing on a port without layer
 * 2, where the kernel knows the family.
 */
static __always_inline enum shunt_reason shunt_skb_parse_l2(struct __sk_buff *skb, __u16 port_flags,
							    struct shunt_packet *p, __u32 *family)
{
	if (!(port_flags & SHUNT_PORT_NO_L2))
		return shunt_parse_l2((void *)(long)skb->data, (void *)(long)skb->data_end, shunt_skb_tag(skb), p,
				      family);
	shunt_without_l2(p);
	*family = shunt_family_of(skb->protocol);
	return skb->vlan_present || !shunt_skb_begins_with_l3(skb) ? SHUNT_BAD_HEADER : SHUNT_OK;
}

/*
 * Sets wire_bytes of an aggregate to the size of its segments, for comparison with an MTU. If the aggregate came out of
 * a tunnel that is only forwarded, such as VXLAN, each segment has inner headers of unknown size, too.
 */
static __always_inline enum shunt_reason shunt_skb_wire_bytes(struct __sk_buff *skb, struct shunt_packet *p)
{
	if (!skb->gso_size)
		return SHUNT_OK;
	if (p->l4_proto == IPPROTO_UDP && shunt_skb_encapsulated(skb))
		return SHUNT_TUNNEL_AGGREGATE;
	p->wire_bytes = shunt_l3_size(p->family) + p->l4_bytes + skb->gso_size;
	return SHUNT_OK;
}

/* Whether the frame has padding after the IP packet. */
static __always_inline int shunt_skb_padded(struct __sk_buff *skb, const struct shunt_packet *p)
{
	return skb->len > (__u32)p->l2_bytes + p->l3_bytes;
}

/* The length of the headers, from skb->protocol. For a VLAN tag, the maximum. */
static __always_inline __u32 shunt_skb_header_bytes(struct __sk_buff *skb)
{
	__u32 family = shunt_family_of(skb->protocol);

	if (family)
		return shunt_l2_bytes(0) + shunt_l3_size(family) + sizeof(struct tcphdr);
	return SHUNT_L2_MAX + SHUNT_L3_MAX + sizeof(struct tcphdr);
}

/*
 * Makes the headers linear: drivers may leave part of them in fragments. Pulls no more than the headers, since TCP
 * keeps a clone of sent data, and the kernel would have to copy the whole head of a cloned skb.
 */
static __always_inline void shunt_skb_pull(struct __sk_buff *skb)
{
	__u64 has = (void *)(long)skb->data_end - (void *)(long)skb->data;

	if (shunt_unlikely(has < skb->len)) {
		__u32 want = shunt_skb_header_bytes(skb);

		if (has < want)
			bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
	}
}

#endif
