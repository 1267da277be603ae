/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A direction of a TCP connection at one place, by sequence numbers: which bytes are missing, arrive late, or pass a
 * second time. And the buckets of times. Neither map nor helper.
 */
#ifndef SHUNT_INSPECT_QUALITY_H
#define SHUNT_INSPECT_QUALITY_H

#include "core/words.h"
#include "inspect/quality_abi.h"

/*
 * A function of its own: verifiers check it once for each place that calls it. Nobody reads its result, and a compiler
 * that knew so would leave in its register what a verifier may refuse, such as a pointer to the stack.
 */
#define QUALITY_FUNCTION static __noinline __attribute__((used))

enum {
	QUALITY_JUMP = 1 << 24, /* sequence numbers so far apart are of another connection, or invented */
	QUALITY_NEAR = 1 << 20, /* bytes that may be on their way */
	/* A hole that is filled sooner is reordering: no sender repeats a segment within half a round trip. */
	QUALITY_REORDERED = 2930, /* 3 ms, if the round trip is longer than twice that, or unknown */
};

/* Bytes that were missing when later ones passed. None if both ends are equal. */
struct quality_hole {
	__u32 from;
	__u32 to;
	__u32 at;
};

struct quality_stream {
	__u32 end; /* the sequence number after the last byte */
	__u32 unclear_to; /* holes before this were forgotten */
	__u16 is_known;
	__u16 is_unclear;
	__u16 segment_bytes; /* of the largest segment */
	__u16 holes;
	struct quality_hole hole[QUALITY_HOLES];
};

/* Bytes that pass, and what they are. */
struct quality_step {
	__u32 seq;
	__u32 bytes;
	__u32 now;
	__u32 reordered_within;
	__u32 is_new; /* 1: all of them are, and nothing is missing before them */
	__u32 lost;
	__u32 reordered;
	__u32 repeated;
	__u32 unclear;
};

/* Whether sequence number `a` is before `b`. */
static __always_inline int is_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

static __always_inline void add_hole(struct quality_stream *s, __u32 from, __u32 to, __u32 at)
{
	for (__u32 i = 0; i < QUALITY_HOLES; i++) {
		struct quality_hole *hole = &s->hole[i];

		if (hole->from != hole->to)
			continue;
		hole->from = from;
		hole->to = to;
		hole->at = at;
		s->holes++;
		return;
	}
	if (!s->is_unclear || is_before(s->unclear_to, to))
		s->unclear_to = to;
	s->is_unclear = 1;
}

/* Starts at a sequence number. Of what was before, nothing is known. */
static __always_inline void restart(struct quality_stream *s, __u32 at)
{
	for (__u32 i = 0; i < QUALITY_HOLES; i++)
		s->hole[i].from = s->hole[i].to;
	s->end = at;
	s->holes = 0;
	s->unclear_to = at;
	s->is_unclear = 1;
	s->is_known = 1;
}

/* Forgets what is so long ago that sequence numbers would soon be after it again. */
static __always_inline void forget_old(struct quality_stream *s)
{
	if (s->end - s->unclear_to > QUALITY_JUMP)
		s->is_unclear = 0;
	for (__u32 i = 0; s->holes && i < QUALITY_HOLES; i++) {
		struct quality_hole *hole = &s->hole[i];

		if (hole->from == hole->to || s->end - hole->to <= QUALITY_JUMP)
			continue;
		hole->from = hole->to;
		s->holes--;
	}
}

/* Old bytes pass, up to `end`: of holes, or a second time. */
static __always_inline void fill(struct quality_stream *s, struct quality_step *step, __u32 end)
{
	__u32 all = end - step->seq, missing = 0, rest;

	for (__u32 i = 0; i < QUALITY_HOLES; i++) {
		struct quality_hole *hole = &s->hole[i];
		__u32 from = hole->from, to = hole->to, first = from, last = to;

		if (from == to)
			continue;
		if (is_before(first, step->seq))
			first = step->seq;
		if (is_before(end, last))
			last = end;
		if (!is_before(first, last))
			continue;
		missing += last - first;
		if (step->now - hole->at < step->reordered_within)
			step->reordered += last - first;
		else
			step->lost += last - first;
		if (first == from) {
			hole->from = last;
			s->holes -= last == to;
		} else {
			hole->to = first;
			if (last != to)
				add_hole(s, last, to, hole->at);
		}
	}
	/* Two CPUs at once may have noted a hole twice. */
	rest = missing < all ? all - missing : 0;
	if (s->is_unclear && is_before(step->seq, s->unclear_to))
		step->unclear = rest;
	else
		step->repeated = rest;
}

/* Bytes pass. */
QUALITY_FUNCTION int follow(struct quality_stream *s, struct quality_step *step)
{
	__u32 end = step->seq + step->bytes, old = s->end;
	__s32 ahead = step->seq - old;

	if (!s->is_known || ahead > QUALITY_JUMP || ahead < -QUALITY_JUMP) {
		restart(s, step->seq);
		s->end = end;
		return 0;
	}
	if (ahead >= 0) {
		s->end = end;
		forget_old(s);
		if (ahead)
			add_hole(s, old, step->seq, step->now);
		else
			step->is_new = 1;
		return 0;
	}
	/* A probe of an idle connection repeats one byte. */
	if (step->bytes <= 1)
		return 0;
	if (is_before(old, end)) {
		s->end = end;
		end = old;
	}
	fill(s, step, end);
	return 0;
}

/* The segments that this many bytes are. */
static __always_inline __u32 segments(const struct quality_stream *s, __u32 bytes)
{
	__u32 each = s->segment_bytes;

	return each ? (bytes + each - 1) / each : 0;
}

/* The bucket of a time. */
static __always_inline __u32 quality_bucket(__u32 time)
{
	__u32 doublings = 0, rest = time;

	if (time < QUALITY_STEPS)
		return time;
	if (rest >= 1 << 16) {
		rest >>= 16;
		doublings += 16;
	}
	if (rest >= 1 << 8) {
		rest >>= 8;
		doublings += 8;
	}
	if (rest >= 1 << 4) {
		rest >>= 4;
		doublings += 4;
	}
	if (rest >= 1 << 2) {
		rest >>= 2;
		doublings += 2;
	}
	doublings += rest >> 1;
	return (doublings - 3) * QUALITY_STEPS + (time >> (doublings - 4) & (QUALITY_STEPS - 1));
}

#endif
