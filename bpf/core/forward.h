/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Forwarding a packet of a flow: may the action be applied now, and how to apply it. Freestanding. */
#ifndef SHUNT_CORE_FORWARD_H
#define SHUNT_CORE_FORWARD_H

#include "core/checksum.h"

enum shunt_checksum {
	SHUNT_CHECKSUM_FINISHED,
	SHUNT_CHECKSUM_PARTIAL,
};

/* Whether tick a is before tick b. Ticks wrap, so the shorter distance decides. */
static __always_inline int shunt_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* Ticks since `then`; negative if `then` is later, since another CPU may have read the clock later. */
static __always_inline __s32 shunt_since(__u32 then, __u32 now)
{
	return now - then;
}

/*
 * Whether `then` was less than `ticks` ago. Ticks wrap: a time that seems to be in the future is one long past, not a
 * recent one.
 */
static __always_inline int shunt_is_within(__u32 then, __u32 now, __u32 ticks)
{
	return now - then < ticks;
}

/* Whether the daemon's heartbeat is recent. `jiffies` is the 64-bit clock, which does not wrap. */
static __always_inline int shunt_daemon_alive(const struct shunt_control *control, __u64 jiffies)
{
	return jiffies < control->heartbeat_ticks + control->heartbeat_max_ticks;
}

/*
 * Why no packet is forwarded, when the heartbeat is old; SHUNT_OK if a sample of the slow path has ended by itself. The
 * daemon's heartbeat is elsewhere while the slow path is sampled, so that packets have one comparison for both.
 */
static __always_inline enum shunt_reason shunt_without_heartbeat(const struct shunt_control *control, __u64 jiffies)
{
	if (jiffies >= control->sample_beat_ticks + control->heartbeat_max_ticks)
		return SHUNT_NO_DAEMON;
	return jiffies < control->sample_until_ticks ? SHUNT_COST_SAMPLE : SHUNT_OK;
}

/* Rejects segments that no flow may carry. Conntrack considers a segment without ACK INVALID. */
static __always_inline enum shunt_reason shunt_admit_tcp(const struct shunt_packet *p)
{
	if (p->l4_proto == IPPROTO_TCP &&
	    shunt_unlikely((p->tcp_flags & (SHUNT_TCP_BOUNDS | SHUNT_TCP_ACK)) != SHUNT_TCP_ACK))
		return SHUNT_TCP_FLAGS;
	return SHUNT_OK;
}

/* Rejects packets that no flow may carry, whatever the tuple. */
static __always_inline enum shunt_reason shunt_admit(const struct shunt_packet *p)
{
	enum shunt_reason why = shunt_admit_tcp(p);

	return why == SHUNT_OK && shunt_unlikely(shunt_ttl_of(p->class_and_ttl) <= 1) ? SHUNT_TTL : why;
}

static __always_inline void shunt_copy_addrs(__u32 family, void *to, const void *from)
{
	__u64 *word = to;
	const __u64 *with = from;

	word[0] = with[0];
	if (family == 6) {
		word[1] = with[1];
		word[2] = with[2];
		word[3] = with[3];
	}
}

/*
 * Whether to prove the flow with this packet, now that a proof is due. A packet of the largest size proves that size as
 * well, so smaller packets wait for one until a quarter of the grace period has passed.
 */
static __always_inline int shunt_proves(const struct shunt_flow *f, const struct shunt_packet *p,
					const struct shunt_control *control, __u32 now)
{
	__u32 grace = control->prove_ticks - control->reprove_ticks;

	return p->wire_bytes >= f->max_l3_bytes || !shunt_before(now, f->reprove_at_ticks + grace / 4);
}

/* The fields of a flow that follow its epoch, as one word. */
union shunt_head {
	struct {
		__u8 state;
		__u8 flags;
		__u8 out_tags;
		__u8 punt_due;
	};
	__u32 word;
};

/*
 * Whether a flow is in use, of this epoch, not static, has these flags, and none of the bits `excluded`. Of nearly all
 * packets, the flow is.
 */
static __always_inline int shunt_is_current(const struct shunt_flow *f, __u32 epoch, __u8 flags,
					    union shunt_head excluded)
{
	const union shunt_head want = { .state = SHUNT_FLOW_ACTIVE, .flags = flags };
	union shunt_head mask = { .state = 0xff, .flags = flags | SHUNT_FLOW_STATIC };
	const __u32 *head = (const __u32 *)&f->state;

	mask.word |= excluded.word;
	return shunt_likely(f->epoch == epoch) && shunt_likely((*head & mask.word) == want.word);
}

/* What shunt_decide_as() knows of a flow, as a constant. */
enum shunt_known {
	SHUNT_KNOWN_NOTHING,
	SHUNT_KNOWN_CURRENT,
	SHUNT_KNOWN_ROUTED, /* current, and not bridged */
};

static __always_inline enum shunt_reason shunt_decide_as(const struct shunt_flow *f, const struct shunt_packet *p,
							 const void *macs, const struct shunt_control *control,
							 __u32 epoch, __u32 now, enum shunt_known known)
{
	if (known || shunt_likely(!(f->flags & SHUNT_FLOW_STATIC))) {
		if (!known && f->epoch != epoch)
			return SHUNT_STALE;
		if (shunt_unlikely(!shunt_before(now, f->prove_by_ticks)))
			return SHUNT_STALE;
		if (shunt_unlikely(!shunt_before(now, f->reprove_at_ticks)) && shunt_proves(f, p, control, now))
			return SHUNT_REPROVE;
		/* A flow is learned from packets that shunt_admit() takes, so its TTL is more than 1. */
		if (shunt_unlikely(!shunt_same_class_and_ttl(p->class_and_ttl, *(const __u32 *)&f->class_bits)))
			return SHUNT_CLASS;
	} else if (shunt_ttl_of(p->class_and_ttl) <= 1) {
		return SHUNT_TTL;
	}
	if (shunt_unlikely(!shunt_same_mac(macs, f->in_dmac)))
		return SHUNT_NOT_OURS;
	/* A bridge must see packets of another source, to learn where that station is. */
	if (known != SHUNT_KNOWN_ROUTED && f->flags & SHUNT_FLOW_BRIDGED &&
	    !shunt_same_mac(shunt_source_mac(macs), shunt_source_mac(f->l2)))
		return SHUNT_NOT_OURS;
	if (shunt_unlikely(p->wire_bytes > f->max_l3_bytes))
		return SHUNT_MTU;
	if (!known && f->state != SHUNT_FLOW_ACTIVE)
		return SHUNT_PENDING;
	return SHUNT_OK;
}

/* shunt_decide() for an engine that does not take flows with any of the bits `excluded`, either. */
static __always_inline enum shunt_reason shunt_decide_unless(const struct shunt_flow *f, const struct shunt_packet *p,
							     const void *macs, const struct shunt_control *control,
							     __u32 epoch, __u64 jiffies, __u8 flags,
							     union shunt_head excluded)
{
	union shunt_head bridged = { .flags = SHUNT_FLOW_BRIDGED };
	enum shunt_reason why;

	bridged.word |= excluded.word;
	if (shunt_unlikely(!shunt_daemon_alive(control, jiffies))) {
		why = shunt_without_heartbeat(control, jiffies);
		if (why != SHUNT_OK)
			return why;
	}
	if (shunt_likely(shunt_is_current(f, epoch, flags, bridged)))
		return shunt_decide_as(f, p, macs, control, epoch, jiffies, SHUNT_KNOWN_ROUTED);
	if (shunt_is_current(f, epoch, flags, excluded))
		return shunt_decide_as(f, p, macs, control, epoch, jiffies, SHUNT_KNOWN_CURRENT);
	if ((f->flags & flags) != flags || *(const __u32 *)&f->state & excluded.word)
		return SHUNT_PORT;
	return shunt_decide_as(f, p, macs, control, epoch, jiffies, SHUNT_KNOWN_NOTHING);
}

/*
 * Whether the action of `f` may be applied to this packet now, by an engine that takes flows with these flags. `macs`
 * points to the MACs of the frame, `epoch` is what the flow's has to be. Changes nothing.
 */
static __always_inline enum shunt_reason shunt_decide(const struct shunt_flow *f, const struct shunt_packet *p,
						      const void *macs, const struct shunt_control *control,
						      __u32 epoch, __u64 jiffies, __u8 flags)
{
	const union shunt_head none = {};

	return shunt_decide_unless(f, p, macs, control, epoch, jiffies, flags, none);
}

/*
 * The length of the forwarded frame: the packet ends at `want`, and the frame has `bytes`. Routing trims the
 * padding that the link added, bridging does not.
 */
static __always_inline __u32 shunt_frame_bytes(const struct shunt_flow *f, __u32 want, __u32 bytes)
{
	return f->flags & SHUNT_FLOW_UNTRACKED && bytes > want ? bytes : want;
}

/* Offset of the L4 checksum in the L4 header. */
static __always_inline __u32 shunt_check_offset(__u8 l4_proto)
{
	return l4_proto == IPPROTO_TCP ? 16 : 6;
}

/* Whether the L4 checksum is finished. The headers are present. */
static __always_inline int shunt_is_summed(const struct shunt_packet *p, __u32 family, __u8 l4_proto,
					   const struct shunt_flow *f, const void *l3)
{
	__u32 l3_size = shunt_l3_size(family);
	const __u16 *check = l3 + l3_size + shunt_check_offset(l4_proto);

	return !(f->flags & SHUNT_FLOW_PARTIAL) ||
	       !shunt_looks_partial(family, l3, l4_proto, p->l3_bytes - l3_size, *check);
}

/* shunt_rewrite(), by these flags of the flow, of which a caller may know some. */
static __always_inline void shunt_rewrite_as(void *l3, void *l4, __u32 family, __u8 l4_proto,
					     const struct shunt_flow *f, const __u8 *to, enum shunt_checksum checksum,
					     __u8 flags)
{
	struct iphdr *ip4 = l3;
	struct ipv6hdr *ip6 = l3;
	struct udphdr *ports = l4;
	__u16 *check = l4 + shunt_check_offset(l4_proto);
	__u16 old = *check, new;

	if (shunt_unlikely(flags & SHUNT_FLOW_BRIDGED)) {
		if (family == 4 && flags & SHUNT_FLOW_NAT)
			ip4->check = shunt_csum_update(ip4->check, f->l4_delta_addr);
	} else if (family == 4) {
		/* The TTL is the high byte of its word on the wire. */
		ip4->check = shunt_csum_update(ip4->check, f->l4_delta_addr + (__u16)~shunt_htons(0x0100));
		ip4->ttl--;
	} else {
		ip6->hop_limit--;
	}
	if (!(flags & SHUNT_FLOW_NAT))
		return;
	if (family == 4)
		shunt_copy_addrs(4, &ip4->saddr, to);
	else
		shunt_copy_addrs(6, &ip6->saddr, to);
	*(shunt_l2_u32 *)ports = *(const __u32 *)&f->sport_be;
	if (checksum == SHUNT_CHECKSUM_PARTIAL)
		new = shunt_csum_update_partial(old, f->l4_delta_addr);
	else
		new = shunt_csum_update(old, f->l4_delta);
	if (l4_proto == IPPROTO_UDP && !old)
		return;
	*check = new;
	/* Stored once more, since clang would take more instructions to choose between the two. */
	if (l4_proto == IPPROTO_UDP && shunt_unlikely(!new))
		*check = 0xffff;
}

/*
 * Applies the L3 and L4 part of an action; `to` holds the new addresses. The caller has checked that the headers are
 * present and writable.
 */
static __always_inline void shunt_rewrite(void *l3, void *l4, __u32 family, __u8 l4_proto, const struct shunt_flow *f,
					  const __u8 *to, enum shunt_checksum checksum)
{
	/* The flags are loaded once: clang cannot know that the headers do not overlap the flow. */
	shunt_rewrite_as(l3, l4, family, l4_proto, f, to, checksum, f->flags);
}

/*
 * The change in CHECKSUM_COMPLETE that an action causes. An IPv4 header with a correct checksum sums to zero before and
 * after. An L4 checksum, if present, compensates for the changes that it covers.
 */
static __always_inline __u16 shunt_sum_change(const struct shunt_flow *f, __u32 family, int has_l4_check)
{
	__u32 sum = (__u32)f->l4_delta + (__u16)~f->l4_delta_addr;

	if (family == 6)
		sum += f->l4_delta_addr;
	if (family == 6 && !(f->flags & SHUNT_FLOW_BRIDGED))
		sum += (__u16)~shunt_htons(1);
	if (has_l4_check)
		sum += (__u16)~f->l4_delta;
	return shunt_fold(sum);
}

/* Fills the key of the reverse direction, whose packets arrive at `ifindex`, the egress port. */
static __always_inline void shunt_reverse_key(__u32 family, const struct shunt_flow *f, const __u8 *to, __u32 l4_proto,
					      __u32 ifindex, union shunt_key *key)
{
	if (family == 4) {
		key->v4 = (struct shunt_key4){
			.sport_be = f->dport_be,
			.dport_be = f->sport_be,
			.ifindex = ifindex,
			.l4_proto = l4_proto,
		};
		__builtin_memcpy(&key->v4.src_be, to + 4, 4);
		__builtin_memcpy(&key->v4.dst_be, to, 4);
		shunt_key_tags_from_l2(f->l2, shunt_tags_out(f->out_tags), key->v4.tags);
	} else {
		key->v6 = (struct shunt_key6){
			.sport_be = f->dport_be,
			.dport_be = f->sport_be,
			.ifindex = ifindex,
			.l4_proto = l4_proto,
		};
		__builtin_memcpy(key->v6.src_be, to + 16, 16);
		__builtin_memcpy(key->v6.dst_be, to, 16);
		shunt_key_tags_from_l2(f->l2, shunt_tags_out(f->out_tags), key->v6.tags);
	}
}

/* Turns the key of a packet as it leaves a port into that of the reverse direction, whose packets arrive there. */
static __always_inline void shunt_swap_key(__u32 family, union shunt_key *key)
{
	union shunt_key was = *key;

	if (family == 4) {
		key->v4.src_be = was.v4.dst_be;
		key->v4.dst_be = was.v4.src_be;
		key->v4.sport_be = was.v4.dport_be;
		key->v4.dport_be = was.v4.sport_be;
	} else {
		__builtin_memcpy(key->v6.src_be, was.v6.dst_be, 16);
		__builtin_memcpy(key->v6.dst_be, was.v6.src_be, 16);
		key->v6.sport_be = was.v6.dport_be;
		key->v6.dport_be = was.v6.sport_be;
	}
}

#endif
