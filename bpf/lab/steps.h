/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The steps of a schedule whose rate changes. Freestanding. */
#ifndef SHUNT_LAB_STEPS_H
#define SHUNT_LAB_STEPS_H

#include "lab/traffic_abi.h"

/* Time since the start, in ns / 65536. */
static __always_inline __u64 traffic_passed(const struct traffic_state *state, __u64 now)
{
	return now > state->start_ns ? (now - state->start_ns) << 16 : 0;
}

static __always_inline const struct traffic_step *traffic_step_at(const struct traffic_steps *steps, __u32 step)
{
	return &steps->at[step % TRAFFIC_STEPS_MAX];
}

/*
 * Enters the next step once it has begun and all packets of the current one have been sent or left out. The table may
 * have changed since the last call, except for steps that have begun.
 */
static __always_inline void traffic_enter_step(struct traffic_state *state, const struct traffic_steps *steps,
					       __u64 now)
{
	const struct traffic_step *step = traffic_step_at(steps, state->step);
	__u64 until = step->until;

	if (state->in_burst || (state->interval && state->due < until) || traffic_passed(state, now) < until)
		return;
	step = traffic_step_at(steps, state->step + 1);
	if (!step->until) {
		state->slots = state->sent + state->unsent;
		return;
	}
	state->step++;
	state->due = step->from;
	state->interval = step->interval;
}

/* Packets of the current step that are due from the next one on. */
static __always_inline __u64 traffic_left_in_step(const struct traffic_state *state, const struct traffic_steps *steps)
{
	__u64 until = traffic_step_at(steps, state->step)->until;

	return state->due < until ? (until - state->due + state->interval - 1) / state->interval : 0;
}

#endif
