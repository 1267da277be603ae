// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The packet core as functions for user space. The daemon, the host tests and the fuzzer run the kernel's code. */
#include "core/learn.h"
#include "core/tcp.h"

/* Parses a frame. p->family tells the family of the key. */
int shunt_host_parse(__u8 *frame, __u32 bytes, __u32 ifindex, struct shunt_packet *p, union shunt_key *key)
{
	struct shunt_hw_tag none = {};
	__u32 family;
	int why = shunt_parse_l2(frame, frame + bytes, none, p, &family);

	if (why != SHUNT_OK)
		return why;
	if (family == 4)
		return shunt_parse_l3(4, frame + p->l2_bytes, frame + bytes, ifindex, p, key);
	if (family == 6)
		return shunt_parse_l3(6, frame + p->l2_bytes, frame + bytes, ifindex, p, key);
	return SHUNT_PROTOCOL;
}

int shunt_host_admit(const struct shunt_packet *p)
{
	return shunt_admit(p);
}

int shunt_host_decide(const struct shunt_flow *f, const struct shunt_packet *p, const __u8 *macs,
		      const struct shunt_control *control, __u64 jiffies)
{
	return shunt_decide(f, p, macs, control, control->epoch, jiffies, 0);
}

/*
 * Rewrites a frame that was parsed as `p`. The L3 packet starts at `l3`, after room for SHUNT_L2_MAX bytes. Returns the
 * length of the new L2 header.
 */
__u32 shunt_host_rewrite(__u8 *l3, const struct shunt_packet *p, const struct shunt_flow *f, const __u8 *to,
			 int partial)
{
	__u32 l2_bytes = shunt_l2_bytes(f->out_tags);

	shunt_rewrite(l3, l3 + shunt_l3_size(p->family), p->family, p->l4_proto, f, to,
		      partial ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED);
	__builtin_memcpy(l3 - l2_bytes, f->l2, l2_bytes);
	return l2_bytes;
}

/*
 * Returns 1 if the L4 checksum of a frame parsed as `p` is correct, 0 if not, -1 if the frame is too long or
 * truncated.
 */
int shunt_host_checksum_good(const __u8 *l3, const __u8 *end, const struct shunt_packet *p)
{
	__u32 l3_size = shunt_l3_size(p->family), bytes = p->l3_bytes - l3_size;
	__u64 sum = shunt_pseudo_sum(p->family, l3, p->l4_proto, bytes);

	if (bytes > SHUNT_SHORT_L4_MAX || shunt_add_bytes(l3 + l3_size, end, bytes, &sum))
		return -1;
	return shunt_sum_is_zero(sum);
}

__u32 shunt_host_frame_bytes(const struct shunt_flow *f, __u32 want, __u32 bytes)
{
	return shunt_frame_bytes(f, want, bytes);
}

__u16 shunt_host_sum_change(const struct shunt_flow *f, __u32 family, int has_l4_check)
{
	return shunt_sum_change(f, family, has_l4_check);
}

/* Fills the translation part of a flow. The ends are both addresses followed by both ports, as on the wire. */
void shunt_host_translate(__u32 family, const __u8 *old_ends, const __u8 *new_ends, struct shunt_flow *f, __u8 *to)
{
	__u32 ports_at = family == 4 ? 8 : 32;

	shunt_translate(family, old_ends, old_ends + ports_at, new_ends, new_ends + ports_at, f, to);
}

int shunt_host_judge_end(__u8 flags, __u32 seq, __u64 own, __u64 other)
{
	return shunt_judge_end(flags, seq, own, other);
}

int shunt_host_tcp_lags(__u64 position, __u32 maxack)
{
	return shunt_tcp_lags(position, maxack);
}

int shunt_host_is_within(__u32 then, __u32 now, __u32 ticks)
{
	return shunt_is_within(then, now, ticks);
}
