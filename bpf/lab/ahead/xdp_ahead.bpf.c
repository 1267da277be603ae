// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts how often the next frames that are found in a driver's ring are those that arrive next: their data must be at
 * the same addresses. Drops every frame. For a device that receives on one CPU.
 */
#include SHUNT_RING

/* What was found in the ring at the last multiple of SHUNT_AHEAD. */
struct {
	__u64 frames[SHUNT_AHEAD];
	__u32 count;
} found;

struct ahead_counts {
	__u64 right;
	__u64 wrong;
	__u64 unseen; /* not in the ring yet when it was read */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ahead_counts);
} ahead_counts SEC(".maps");

static __noinline int read_ring(__u64 queue, __u32 next)
{
	const struct shunt_ahead ahead = shunt_ahead_at(queue, next);

	found.count = 0;
	for (__u32 i = 0; i < SHUNT_AHEAD; i++) {
		found.frames[i] = shunt_frame_ahead(&ahead, i);
		if (!found.frames[i])
			break;
		found.count = i + 1;
	}
	return 0;
}

SEC("xdp")
int shunt_ahead_counts(struct xdp_md *ctx)
{
	struct xdp_buff___shunt *xdp = bpf_cast_to_kern_ctx(ctx);
	__u64 data = (__u64)xdp->data, queue = 0;
	struct ahead_counts *counts;
	__u32 zero = 0, next, place;
	int is_due = shunt_ahead_is_due(ctx, &queue, &next);

	counts = bpf_map_lookup_elem(&ahead_counts, &zero);
	if (!counts)
		return XDP_ABORTED;
	place = (next - 1) % SHUNT_AHEAD;
	if (place >= found.count)
		counts->unseen++;
	else if (found.frames[place] == data)
		counts->right++;
	else
		counts->wrong++;
	if (is_due)
		read_ring(queue, next);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
