// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The packet writing and accounting of the lab's programs as functions for user space. */
#include <stddef.h>
#include "lab/arrivals.h"

/*
 * Writes the packet that is due into `frame`, whose payload must be zero. `ends` has the ends of each flow if the plan
 * says that they are listed, and `steps` is the table of a stepped plan. Returns the size of the packet, or 0 if none
 * is due.
 */
__u32 shunt_host_traffic_next(const struct traffic_plan *plan, struct traffic_state *state,
			      const struct traffic_steps *steps, const struct traffic_ends *ends, __u32 *numbers,
			      __u8 *frame, __u32 room, __u64 now)
{
	struct traffic_ends between;
	__u32 bytes, flow;
	int warm;

	if (!traffic_due(state, plan->stepped ? steps : NULL, now))
		return 0;
	bytes = traffic_size(plan, state);
	if (plan->fixed) {
		if (bytes > room ||
		    !traffic_write_fixed(frame, frame + bytes, plan, state->sent, state->label, numbers[0]++, now))
			return 0;
		state->bytes += bytes;
		return bytes;
	}
	flow = traffic_flow(plan, state);
	between = plan->listed ? ends[flow] : traffic_ends_of(plan, flow);
	warm = plan->stepped && state->warm;
	if (bytes > room || !traffic_write(frame, frame + bytes, plan, bytes, state->sent, between, flow, warm,
					   state->label, warm ? 0 : numbers[flow]++, now))
		return 0;
	if (!warm)
		state->bytes += bytes;
	return bytes;
}

__u64 shunt_host_look_at_ns(const struct traffic_state *state, const struct traffic_steps *steps)
{
	return traffic_look_at_ns(state, steps);
}

/*
 * Whether to send the next frame of a capture now. If so, counts it. `next_due_ns` is when the frame after it is
 * due.
 */
int shunt_host_replay_next(const struct replay_plan *plan, struct traffic_state *state, __u32 bytes, __u64 next_due_ns,
			   __u64 now)
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
	if (!arrival_has_begun(arrival, label))
		arrival_begin(arrival, label, number);
	arrival_note(arrival, number, transit_ns);
}

__u32 shunt_host_latency_bucket(__u32 ns)
{
	return latency_bucket(ns, latency_shift(ns));
}
