// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The sender of several streams: run like the generator (xdp_gen.bpf.c), hands each frame to the generator of the
 * stream whose packet was due first. The loader is crates/shunt-traffic/src/mix.rs.
 */
#include "include/bpf.h"
#include "lab/traffic.h"

enum { STREAM_MASK = TRAFFIC_STREAMS_MAX - 1 };

struct mix_state {
	__u64 last_ns;
	__u32 frames;
	__u32 asked;
};

struct mix_state mix;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TRAFFIC_STREAMS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic_turns);
} turns SEC(".maps");

/*
 * The smaller of two numbers below 2^63, without a branch: the verifier would follow both ways of each of many
 * comparisons.
 */
static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	__u64 ahead = a - b, is_less = (__s64)ahead >> 63;

	barrier_var(is_less); /* or clang makes a branch of it */
	return b + (ahead & is_less);
}

/* The time in a stream's time and number, to 64 ns. */
static __always_inline __u64 look_at_ns(__u64 stream)
{
	return (stream & ~(__u64)STREAM_MASK) << 1;
}

SEC("xdp")
int shunt_mix(struct xdp_md *ctx)
{
	__u64 now = mix.last_ns, first = ~0ULL >> 1;
	__u32 zero = 0;
	struct traffic_turns *all = bpf_map_lookup_elem(&turns, &zero);

	if (!all)
		return XDP_ABORTED;
	if (++mix.frames % TRAFFIC_ASK_EACH == 0) {
		bpf_tail_call(ctx, &streams, mix.asked++ % TRAFFIC_STREAMS_MAX);
		return XDP_DROP;
	}
	for (__u32 i = 0; i < TRAFFIC_STREAMS_MAX; i++)
		first = lesser(first, (all->look_at_ns[i] >> 1 & ~(__u64)STREAM_MASK) | i);
	/* Reading the clock is expensive. Skip it for a packet that was due at the last reading. */
	if (now < look_at_ns(first))
		mix.last_ns = now = bpf_ktime_get_ns();
	if (now >= look_at_ns(first))
		bpf_tail_call(ctx, &streams, first & STREAM_MASK);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
