// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Redirects every IPv4 packet after a look-up of its source in a table: what memory costs any forwarder that keeps a
 * state of 128 bytes per flow. Two dependent loads, the index and the entry, as in the flow table, and nothing else:
 * entries are never deleted, and packets are not rewritten.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

volatile const struct {
	__u32 out_ifindex;
	__u32 index_mask;
	__u32 rounds; /* of work per packet, of seven instructions each */
} lookup_plan;

enum { ROUNDS_MAX = 1000 };

/* As large as an IPv4 entry of the flow table. */
struct entry {
	__u64 source;
	__u64 rest[7];
	__u64 packets;
	__u64 more[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} lookup_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct entry);
} lookup_table SEC(".maps");

__u32 used;

/*
 * Executes instructions that need no memory. While a CPU waits for memory, it executes what follows, as far as its
 * reorder buffer reaches: after a short program, this is the beginning of the next packet.
 */
static __always_inline void work(void)
{
	__u64 a = 0, b = 0, c = 0, d = 0;

	for (__u32 i = 0; i < lookup_plan.rounds && i < ROUNDS_MAX; i++) {
		a += i;
		b ^= i;
		c += i;
		d ^= i;
		asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
	}
}

SEC("xdp")
int shunt_lookup(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;
	const void *end = (void *)(long)ctx->data_end;
	struct entry *entry;
	__u32 *number, slot;
	__u64 source;

	/* Ethernet, IPv4 without options, and the ports. */
	if (data + 38 > end || *(const __u16 *)(data + 12) != 0x0008)
		return XDP_PASS;
	source = (__u64) * (const __u16 *)(data + 28) << 48 | (__u64) * (const __u16 *)(data + 26) << 32 |
		 *(const __u32 *)(data + 34);
	slot = (source * 0x9e3779b97f4a7c15ULL >> 32) & lookup_plan.index_mask;
	number = bpf_map_lookup_elem(&lookup_index, &slot);
	if (!number)
		return XDP_PASS;
	if (!*number)
		*number = ++used;
	slot = *number;
	entry = bpf_map_lookup_elem(&lookup_table, &slot);
	if (!entry)
		return XDP_PASS;
	if (entry->source != source)
		entry->source = source;
	entry->packets++;
	work();
	return bpf_redirect(lookup_plan.out_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
