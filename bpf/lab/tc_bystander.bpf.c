// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Stands for a program that is not Shunt's, in tests. Counts frames and passes them on. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} bystander_seen SEC(".maps");

SEC("tc")
int bystander(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u64 *seen = bpf_map_lookup_elem(&bystander_seen, &zero);

	(void)skb;
	if (seen)
		__sync_fetch_and_add(seen, 1);
	return -1; /* TCX_NEXT */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
