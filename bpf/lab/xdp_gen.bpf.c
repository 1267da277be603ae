// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The generator: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, not attached. The kernel offers it one
 * frame after the other. The program fills and sends a frame if a packet is due and drops it otherwise, so packets
 * are sent when they are due and not when a system call begins.
 *
 * A generator runs on one CPU at a time. The loader is crates/shunt-traffic/src/generator.rs.
 */
#include "include/bpf.h"
#include "lab/traffic.h"

enum { CLOCK_EACH = 16 }; /* read the clock once for this many late or unpaced packets */

volatile const struct traffic_plan plan;
struct traffic_state state;
/* The next number of the only flow of a plan that is fixed. */
__u32 number SEC(".data.number");

/* The next number of each flow of other plans. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u32);
} numbers SEC(".maps");

/* The ends of each flow, if the plan says that they are listed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct traffic_ends);
} ends SEC(".maps");

/* The table of a plan that is stepped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic_steps);
} steps SEC(".maps");

/* When each stream of a sender must be looked at next: the map of xdp_mix.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic_turns);
} turns SEC(".maps");

/* The interface to send to. Finding it takes less time than by its index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

/* Whether to send a packet now, by a schedule in steps. */
static __always_inline int due_in_step(__u64 now)
{
	struct traffic_steps *table;
	struct traffic_turns *all;
	__u32 zero = 0;
	int due;

	table = bpf_map_lookup_elem(&steps, &zero);
	if (!table)
		return 0;
	due = traffic_due(&state, table, now);
	if (!plan.mixed)
		return due;
	all = bpf_map_lookup_elem(&turns, &zero);
	if (all)
		all->look_at_ns[plan.turn % TRAFFIC_STREAMS_MAX] = traffic_look_at_ns(&state, table);
	return due;
}

/* Whether to send a packet now. Sets the time of its stamp. */
static __always_inline int is_due(__u64 *now)
{
	*now = state.last_ns;
	if (state.unasked) {
		state.unasked--;
		state.sent++;
		return 1;
	}
	/* Reading the clock is expensive. Skip it for a packet that was due at the last reading. */
	if (*now < state.start_ns + (state.due >> 16) || state.sent % CLOCK_EACH == 0)
		*now = bpf_ktime_get_ns();
	if (plan.stepped)
		return due_in_step(*now);
	if (!traffic_due(&state, NULL, *now))
		return 0;
	state.unasked = traffic_unasked(&state, CLOCK_EACH - 1);
	return 1;
}

/* Sends a packet of a plan that is fixed. */
static __always_inline int send_fixed(struct xdp_md *ctx, __u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!traffic_write_fixed(data, end, &plan, state.sent, state.label, number++, now))
		return XDP_ABORTED;
	state.bytes += plan.frame_bytes[0];
	return bpf_redirect_map(&out, 0, 0);
}

/* Sends a packet of any other plan. */
static __always_inline int send_any(struct xdp_md *ctx, __u64 now)
{
	__u32 flow, nth = 0, size;
	void *data, *end;
	struct traffic_ends *listed;
	struct traffic_ends between;
	__u32 *next;
	int warm;

	warm = plan.stepped && state.warm;
	size = traffic_size(&plan, &state);
	if ((plan.sizes > 1 || plan.mixed) && bpf_xdp_adjust_tail(ctx, (int)size - (int)bpf_xdp_get_buff_len(ctx)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	flow = traffic_flow(&plan, &state);
	if (plan.stamped && !warm) {
		next = bpf_map_lookup_elem(&numbers, &flow);
		if (!next)
			return XDP_ABORTED;
		nth = (*next)++;
	}
	if (plan.listed) {
		listed = bpf_map_lookup_elem(&ends, &flow);
		if (!listed)
			return XDP_ABORTED;
		between = *listed;
	} else {
		between = traffic_ends_of(&plan, flow);
	}
	if (!traffic_write(data, end, &plan, size, state.sent, between, flow, warm, state.label, nth, now))
		return XDP_ABORTED;
	if (!warm)
		state.bytes += size;
	return bpf_redirect_map(&out, 0, 0);
}

SEC("xdp")
int shunt_gen(struct xdp_md *ctx)
{
	__u64 now;

	if (!is_due(&now))
		return XDP_DROP;
	return plan.fixed ? send_fixed(ctx, now) : send_any(ctx, now);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
