// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The replay generator: run like xdp_gen, it sends captured frames from a map. The loader is
 * crates/shunt-traffic/src/generator.rs.
 */
#include "include/bpf.h"
#include "lab/traffic.h"

volatile const struct replay_plan plan;
struct traffic_state state;

/* struct replay_frame, followed by the bytes of the frame. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct replay_frame)); /* set by the loader */
} frames SEC(".maps");

SEC("xdp")
int shunt_replay(struct xdp_md *ctx)
{
	__u32 at = state.flow, next_at = replay_next(&plan, &state);
	__u64 now = bpf_ktime_get_ns();
	struct replay_frame *frame, *next;
	__u32 bytes;

	if (!replay_due(&state, now))
		return XDP_DROP;
	frame = bpf_map_lookup_elem(&frames, &at);
	next = bpf_map_lookup_elem(&frames, &next_at);
	if (!frame || !next)
		return XDP_ABORTED;
	bytes = frame->bytes;
	if (bytes < SHUNT_L2_MIN || bytes > plan.bytes_max)
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)bytes - (int)bpf_xdp_get_buff_len(ctx)) ||
	    bpf_xdp_store_bytes(ctx, 0, frame + 1, bytes))
		return XDP_ABORTED;
	replay_sent(&plan, &state, bytes, next->due_ns, now);
	return bpf_redirect(plan.out_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
