/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The lab's packets: when to send them, and their contents. Freestanding: the generator of live frames and the socket
 * sender write the same packets at the same times.
 */
#ifndef SHUNT_LAB_TRAFFIC_H
#define SHUNT_LAB_TRAFFIC_H

#include "lab/steps.h"
#include "core/checksum.h"

static __always_inline __u32 traffic_ntohl(__be32 value)
{
	const __be16 *half = (const __be16 *)&value;

	return (__u32)shunt_ntohs(half[0]) << 16 | shunt_ntohs(half[1]);
}

static __always_inline void traffic_put(void *at, __u16 value)
{
	*(__be16 *)at = shunt_htons(value);
}

/* Writes a 32-bit number. Frames are aligned to 16 bits only, which not every CPU accepts. */
#ifdef SHUNT_UNALIGNED
static __always_inline void traffic_put32(void *at, __u32 value)
{
	*(__u32 *)at = __builtin_bswap32(value);
}
#else
static __always_inline void traffic_put32(void *at, __u32 value)
{
	traffic_put(at, value >> 16);
	traffic_put(at + 2, value);
}
#endif

/* Two 16-bit numbers, as they lie behind each other. */
static __always_inline __u32 traffic_pair(__u16 first, __u16 second)
{
	return (__u32)first << 16 | second;
}

/* The checksum for a sum of 16-bit words, or of 32-bit numbers: 2^16 is 1 in ones' complement. */
static __always_inline __u16 traffic_checksum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Whether all packets of the schedule were sent or left out. */
static __always_inline int traffic_over(const struct traffic_state *state, __u64 now)
{
	return state->sent - state->warm_sent >= state->limit || state->sent + state->unsent >= state->slots ||
	       (state->end_ns && now >= state->end_ns);
}

/*
 * Leaves out packets that are overdue, except as many as may leave in a bunch: a router that loses a part of a larger
 * bunch would seem to lose packets at the offered rate. Leaves out whole bursts.
 */
static __always_inline void traffic_leave_out(struct traffic_state *state, const struct traffic_steps *steps,
					      __u64 late_ns)
{
	__u64 bursts = (late_ns << 16) / (state->interval * state->burst), allowed = state->bunch / state->burst;
	__u64 slots_left = state->slots - state->sent - state->unsent, packets;

	if (bursts < allowed)
		return;
	packets = (bursts + 1 - allowed) * state->burst;
	if (steps) {
		__u64 in_step = traffic_left_in_step(state, steps);

		/* The next step has another rate. */
		if (packets > in_step)
			packets = in_step;
		if (state->due < state->warm_until)
			state->warm_unsent += packets < slots_left ? packets : slots_left;
	}
	state->due += packets * state->interval;
	if (packets > slots_left)
		packets = slots_left;
	state->unsent += packets;
	if (late_ns > TRAFFIC_HELD_NS)
		state->held_unsent += packets;
}

/* Counts the time since the last packet, or since the last look, as idle. */
static __always_inline void traffic_idle(struct traffic_state *state, __u64 now)
{
	__u64 since = state->last_ns > state->looked_ns ? state->last_ns : state->looked_ns;

	if (now < state->start_ns)
		return;
	state->idle_ns += now - (since > state->start_ns ? since : state->start_ns);
	state->looked_ns = now;
}

/* When a sender of several streams must look at this one next; all ones: never again. */
static __always_inline __u64 traffic_look_at_ns(const struct traffic_state *state, const struct traffic_steps *steps)
{
	const struct traffic_step *step = traffic_step_at(steps, state->step);

	if (traffic_over(state, 0))
		return ~0ULL;
	if (state->in_burst)
		return state->start_ns;
	/* Unpaced streams take turns, and let paced ones go first. */
	if (!state->interval)
		return state->last_ns > state->start_ns ? state->last_ns : state->start_ns + (state->due >> 16);
	if (state->due < step->until)
		return state->start_ns + (state->due >> 16);
	step = traffic_step_at(steps, state->step + 1);
	return step->until ? state->start_ns + (step->from >> 16) : state->start_ns + (state->due >> 16);
}

/* Whether to send a packet now. If so, counts it as sent. `steps` is NULL if the schedule has one rate. */
static __always_inline int traffic_due(struct traffic_state *state, const struct traffic_steps *steps, __u64 now)
{
	__u64 due;

	if (steps)
		traffic_enter_step(state, steps, now);
	due = state->start_ns + (state->due >> 16);
	if (traffic_over(state, now))
		return 0;
	/* Between two steps. */
	if (steps && state->interval && !state->in_burst && !traffic_left_in_step(state, steps))
		return 0;
	if (!state->in_burst && now < due) {
		traffic_idle(state, now);
		return 0;
	}
	if (state->interval) {
		if (!state->in_burst) {
			if (now - due > state->late_ns_max)
				state->late_ns_max = now - due;
			traffic_leave_out(state, steps, now - due);
			if (traffic_over(state, now))
				return 0;
			if (steps && !traffic_left_in_step(state, steps))
				return 0;
		}
		if (steps)
			state->warm = state->due < state->warm_until;
		state->due += state->interval;
		if (++state->in_burst >= state->burst)
			state->in_burst = 0;
	} else if (steps) {
		state->warm = traffic_passed(state, now) < state->warm_until;
	}
	if (steps && state->warm)
		state->warm_sent++;
	state->sent++;
	state->last_ns = now;
	return 1;
}

/*
 * How many more packets may be sent at the same reading of the clock without another look at the schedule, which has
 * one rate: none if packets have an interval.
 */
static __always_inline __u32 traffic_unasked(const struct traffic_state *state, __u32 most)
{
	__u64 limit = state->limit - state->sent, slots = state->slots - state->sent - state->unsent;

	if (state->interval)
		return 0;
	if (limit > slots)
		limit = slots;
	return limit < most ? limit : most;
}

/* The flow of the next packet. Shuffled flows use the pseudo-random generator of Knuth's MMIX. */
static __always_inline __u32 traffic_flow(volatile const struct traffic_plan *plan, struct traffic_state *state)
{
	__u32 flow = state->flow;

	if (plan->flows == 1)
		return 0;
	if (plan->shuffled) {
		state->random = state->random * 6364136223846793005ULL + 1442695040888963407ULL;
		return ((state->random >> 32) * plan->flows) >> 32;
	}
	state->flow = flow + 1 < plan->flows ? flow + 1 : 0;
	return flow;
}

/* The size of the next frame. */
static __always_inline __u32 traffic_size(volatile const struct traffic_plan *plan, struct traffic_state *state)
{
	__u32 size = state->size;

	if (plan->sizes == 1)
		return plan->frame_bytes[0];
	if (size >= TRAFFIC_SIZES_MAX)
		size = 0;
	state->size = size + 1 < plan->sizes ? size + 1 : 0;
	return plan->frame_bytes[size];
}

static __always_inline __u32 traffic_value(volatile const struct traffic_field *field, __u32 flow)
{
	if (field->count <= 1)
		return field->base;
	return field->base + flow / field->every % field->count;
}

/* The ends of a flow whose ends are not listed. */
static __always_inline struct traffic_ends traffic_ends_of(volatile const struct traffic_plan *plan, __u32 flow)
{
	return (struct traffic_ends){
		.src = traffic_value(&plan->src, flow),
		.dst = traffic_value(&plan->dst, flow),
		.sport = traffic_value(&plan->sport, flow),
		.dport = traffic_value(&plan->dport, flow),
	};
}

static __always_inline void traffic_write_half(void *frame, volatile const struct traffic_plan *plan,
					       __u32 header_bytes, __u32 at)
{
	if (at < header_bytes)
		*(__u16 *)(frame + at) = *(volatile const __u16 *)(plan->headers + at);
}

static __always_inline void traffic_write_headers(void *frame, volatile const struct traffic_plan *plan)
{
	__u32 header_bytes = plan->header_bytes;

#pragma unroll
	for (__u32 i = 0; i < TRAFFIC_HEADERS_MAX; i += 8) {
#ifdef SHUNT_UNALIGNED
		if (i + 8 <= header_bytes) {
			*(__u64 *)(frame + i) = *(volatile const __u64 *)(plan->headers + i);
			continue;
		}
#endif
		traffic_write_half(frame, plan, header_bytes, i);
		traffic_write_half(frame, plan, header_bytes, i + 2);
		traffic_write_half(frame, plan, header_bytes, i + 4);
		traffic_write_half(frame, plan, header_bytes, i + 6);
	}
}

static __always_inline void traffic_write_stamp(void *stamp, __u32 stream, __u32 number, __u32 now)
{
	traffic_put32(stamp, stream);
	traffic_put32(stamp + 4, number);
	traffic_put32(stamp + 8, now);
}

/*
 * Writes all headers and the stamp, since a recycled frame may have been modified. The payload after the stamp is
 * zero, so the checksum does not read it: nobody writes there, except for other streams of the same sender where their
 * headers and stamps are. Returns 0 if the frame is too short.
 */
static __always_inline int traffic_write(void *frame, void *end, volatile const struct traffic_plan *plan, __u32 bytes,
					 __u32 id, struct traffic_ends between, __u32 flow, int warm, __u32 label,
					 __u32 number, __u32 now)
{
	__u32 l3_at = plan->l3_at, l4_at = plan->l4_at, header_bytes = plan->header_bytes;
	__u32 stamp_bytes = plan->stamped ? TRAFFIC_STAMP_BYTES : 0;
	__u32 stream = label << 24 | (warm ? TRAFFIC_WARM_UP_FLOW : plan->first_flow + flow);
	__u32 l3_bytes = bytes - l3_at, l4_bytes = bytes - l4_at, ports = traffic_pair(between.sport, between.dport);
	__u64 ends = (__u64)between.src + between.dst, sum = plan->l4_sum;
	void *l3 = frame + l3_at, *l4 = frame + l4_at, *stamp = frame + header_bytes;
	__u16 check;

	if (stamp + stamp_bytes > end)
		return 0;
	traffic_write_headers(frame, plan);
	if (plan->family == 4) {
		traffic_put32(l3 + 2, traffic_pair(l3_bytes, id));
		traffic_put32(l3 + 12, between.src);
		traffic_put32(l3 + 16, between.dst);
		traffic_put(l3 + 10, traffic_checksum(plan->ip_sum + ends + traffic_pair(l3_bytes, id)));
	} else {
		traffic_put(l3 + 4, l4_bytes);
		traffic_put32(l3 + 20, between.src);
		traffic_put32(l3 + 36, between.dst);
	}
	traffic_put32(l4, ports);
	if (stamp_bytes) {
		traffic_write_stamp(stamp, stream, number, now);
		sum += (__u64)stream + number + now;
	}
	if (plan->mixed) {
#pragma unroll
		for (__u32 i = 0; i < TRAFFIC_HEADERS_MAX + TRAFFIC_STAMP_BYTES; i += 2) {
			if (i >= header_bytes + TRAFFIC_STAMP_BYTES && frame + i + 2 <= end)
				*(__u16 *)(frame + i) = 0;
		}
	}
	sum += ends + ports + l4_bytes;
	if (plan->l4_proto == IPPROTO_UDP) {
		check = traffic_checksum(sum + l4_bytes);
		traffic_put32(l4 + 4, traffic_pair(l4_bytes, plan->l4_sum ? check ?: 0xffff : 0));
	} else if (plan->l4_sum) {
		traffic_put(l4 + 16, traffic_checksum(sum));
	}
	return 1;
}

/* Writes a packet of a plan that is fixed, as traffic_write() would. */
static __always_inline int traffic_write_fixed(void *frame, void *end, volatile const struct traffic_plan *plan,
					       __u16 id, __u32 label, __u32 number, __u32 now)
{
	__u32 stream = label << 24, ip_sum = plan->ip_sum + id, l4_sum = plan->l4_sum;
	void *stamp = frame + plan->header_bytes, *l3 = frame + plan->l3_at, *l4 = frame + plan->l4_at;
	__u16 check;

	if (stamp + TRAFFIC_STAMP_BYTES > end)
		return 0;
	traffic_write_headers(frame, plan);
	traffic_write_stamp(stamp, stream, number, now);
	if (plan->family == 4) {
		traffic_put(l3 + 4, id);
		traffic_put(l3 + 10, ~(ip_sum + (ip_sum >> 16)));
	}
	if (l4_sum) {
		check = traffic_checksum((__u64)l4_sum + stream + number + now);
		if (plan->l4_proto == IPPROTO_UDP)
			traffic_put(l4 + 6, check ?: 0xffff);
		else
			traffic_put(l4 + 16, check);
	}
	return 1;
}

static __always_inline void traffic_swap(void *a, void *b, int bytes)
{
	__be16 *left = a, *right = b, kept;

#pragma unroll
	for (int i = 0; i < bytes / 2; i++) {
		kept = left[i];
		left[i] = right[i];
		right[i] = kept;
	}
}

/*
 * Swaps source and destination MACs, addresses and ports, which leaves the checksums correct. The caller has
 * checked that the headers up to the ports are present.
 */
static __always_inline void traffic_swap_ends(void *frame, void *l3, __u32 family)
{
	void *l4 = l3 + shunt_l3_size(family);

	if (family == 4)
		traffic_swap(l3 + 12, l3 + 16, 4);
	else
		traffic_swap(l3 + 8, l3 + 24, 16);
	traffic_swap(l4, l4 + 2, 2);
	traffic_swap(frame, (__u8 *)shunt_source_mac(frame), ETH_ALEN);
}

/*
 * Turns the first segment of a TCP handshake into the second, or the second into the third, and keeps the payload.
 * Returns 0 if the segment is neither.
 */
static __always_inline int traffic_answer_handshake(struct tcphdr *tcp, __u32 payload_bytes)
{
	enum { NUMBERS = 4, FLAGS = 13, WORDS = 5, CHECK = 16, ISN = 0x5eed };
	__u8 *bytes = (__u8 *)tcp;
	__u8 before[2 * WORDS];
	__u32 acknowledged;

	if (!(bytes[FLAGS] & SHUNT_TCP_SYN) || bytes[FLAGS] & (SHUNT_TCP_FIN | SHUNT_TCP_RST))
		return 0;
	__builtin_memcpy(before, bytes + NUMBERS, sizeof(before));
	acknowledged = traffic_ntohl(*(__be32 *)(bytes + NUMBERS)) + payload_bytes + 1;
	if (bytes[FLAGS] & SHUNT_TCP_ACK) {
		__builtin_memcpy(bytes + NUMBERS, bytes + NUMBERS + 4, 4);
		bytes[FLAGS] = SHUNT_TCP_ACK;
	} else {
		traffic_put32(bytes + NUMBERS, ISN);
		bytes[FLAGS] = SHUNT_TCP_SYN | SHUNT_TCP_ACK;
	}
	traffic_put32(bytes + NUMBERS + 4, acknowledged);
	*(__u16 *)(bytes + CHECK) = shunt_csum_update(*(__u16 *)(bytes + CHECK),
						      shunt_fold(shunt_sum_diff(before, bytes + NUMBERS, WORDS, 0)));
	return 1;
}

/* Index of the frame after the next one. */
static __always_inline __u32 replay_next(volatile const struct replay_plan *plan, const struct traffic_state *state)
{
	return state->flow + 1 < plan->frames ? state->flow + 1 : 0;
}

/* Whether to send the next frame of a capture now. */
static __always_inline int replay_due(struct traffic_state *state, __u64 now)
{
	if (traffic_over(state, now))
		return 0;
	if (now >= state->start_ns + (state->due >> 16))
		return 1;
	traffic_idle(state, now);
	return 0;
}

/*
 * Counts a frame of a capture as sent, and computes when the next one is due. Every frame is sent: after a delay, the
 * frames that follow are put off by as much, so that they keep their intervals.
 */
static __always_inline void replay_sent(volatile const struct replay_plan *plan, struct traffic_state *state,
					__u32 bytes, __u64 next_due_ns, __u64 now)
{
	__u64 late_ns = now - state->start_ns - (state->due >> 16);

	if (state->interval) {
		if (late_ns > state->late_ns_max)
			state->late_ns_max = late_ns;
		if (late_ns > TRAFFIC_CATCH_UP_NS)
			state->put_off_ns += late_ns;
	}
	state->sent++;
	state->bytes += bytes;
	state->last_ns = now;
	state->flow = replay_next(plan, state);
	if (!state->flow)
		state->size++;
	state->due = (state->size * plan->round_ns + next_due_ns + state->put_off_ns) << 16;
}

#endif
