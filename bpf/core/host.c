// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The packet core as functions for user space: the daemon, the host tests and the fuzzer call what the kernel runs. */
#include "core/learn.h"
#include "core/traffic.h"

/* Parses a frame. The key is of the family that `p` says. */
int shunt_host_parse(__u8 *frame, __u32 bytes, __u32 ifindex, struct shunt_packet *p, union shunt_key *key)
{
	struct shunt_hw_tag none = {};
	__be16 proto_be;
	int why = shunt_parse_l2(frame, frame + bytes, none, p, &proto_be);

	if (why != SHUNT_OK)
		return why;
	if (proto_be == shunt_htons(ETH_P_IP))
		return shunt_parse_l3(4, frame + p->l2_bytes, frame + bytes, ifindex, p, key);
	if (proto_be == shunt_htons(ETH_P_IPV6))
		return shunt_parse_l3(6, frame + p->l2_bytes, frame + bytes, ifindex, p, key);
	return SHUNT_PROTOCOL;
}

int shunt_host_admit(const struct shunt_packet *p)
{
	return shunt_admit(p);
}

int shunt_host_decide(const struct shunt_flow *f, const struct shunt_packet *p, const __u8 *macs,
		      const struct shunt_control *control, __u32 now)
{
	return shunt_decide(f, p, macs, control, now);
}

/*
 * Rewrites a frame that was parsed as `p`: its L3 packet starts at `l3`, and before that there is room for
 * SHUNT_L2_MAX bytes. Returns how many of them the new L2 header takes.
 */
__u32 shunt_host_rewrite(__u8 *l3, const struct shunt_packet *p, const struct shunt_flow *f, const __u8 *to,
			  int partial)
{
	__u32 l2_bytes = ETH_HLEN + 4 * f->out_tags;

	shunt_rewrite(l3, l3 + shunt_l3_size(p->family), p->family, p->l4_proto, f, to,
		      partial ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED);
	__builtin_memcpy(l3 - l2_bytes, f->l2, l2_bytes);
	return l2_bytes;
}

__u32 shunt_host_frame_bytes(const struct shunt_flow *f, __u32 want, __u32 bytes)
{
	return shunt_frame_bytes(f, want, bytes);
}

__u16 shunt_host_sum_change(const struct shunt_flow *f, __u32 family, int has_l4_check)
{
	return shunt_sum_change(f, family, has_l4_check);
}

/* Fills the translation part of a flow. `ends` are both addresses, then both ports, as on the wire. */
void shunt_host_translate(__u32 family, const __u8 *old_ends, const __u8 *new_ends, struct shunt_flow *f,
			  __u8 *to)
{
	__u32 ports_at = family == 4 ? 8 : 32;

	shunt_translate(family, old_ends, old_ends + ports_at, new_ends, new_ends + ports_at, f, to);
}

/* Writes the packet that is due, if one is, into `frame`, whose payload must be zero. Returns its size, or 0. */
__u32 shunt_host_traffic_next(const struct traffic_plan *plan, struct traffic_state *state, __u32 *numbers,
			      __u8 *frame, __u32 room, __u64 now)
{
	__u32 bytes, flow;

	if (!traffic_due(state, now))
		return 0;
	bytes = traffic_size(plan, state);
	flow = traffic_flow(plan, state);
	if (bytes > room || !traffic_write(frame, frame + bytes, plan, bytes, state->sent, flow, state->label,
					   numbers[flow]++, now))
		return 0;
	state->bytes += bytes;
	return bytes;
}

/* Whether the next frame of a capture goes now. If so it is counted. `next_due_ns` is of the one behind it. */
int shunt_host_replay_next(const struct replay_plan *plan, struct traffic_state *state, __u32 bytes,
			   __u64 next_due_ns, __u64 now)
{
	if (!replay_due(state, now))
		return 0;
	replay_sent(plan, state, bytes, next_due_ns, now);
	return 1;
}

__u32 shunt_host_frame_kind(const __u8 *frame, __u32 bytes)
{
	return frame_kind(frame, frame + bytes);
}

void shunt_host_arrival_note(struct arrival *arrival, __u32 label, __u32 number, __u32 transit_ns)
{
	arrival_note(arrival, label, number, transit_ns);
}

__u32 shunt_host_latency_bucket(__u32 ns)
{
	return latency_bucket(ns);
}
