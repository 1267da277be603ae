/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Verification of L4 checksums of an skb. Before including this, a program with other frames defines SHUNT_FRAME, the
 * type of its context, and SHUNT_LOAD_BYTES, the helper that copies bytes of the frame.
 */
#ifndef SHUNT_VERIFY_H
#define SHUNT_VERIFY_H

#include "include/table/maps.h"

#ifndef SHUNT_FRAME
#define SHUNT_FRAME struct __sk_buff
#define SHUNT_LOAD_BYTES bpf_skb_load_bytes
#endif

enum { SHUNT_CHUNK = 512 }; /* the most that bpf_csum_diff() accepts before Linux 6.13 */

struct shunt_chunk {
	__u8 bytes[SHUNT_CHUNK + 4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_chunk);
} shunt_chunk SEC(".maps");

/*
 * Both return whether `sum` plus the sum of `bytes` bytes of the frame at `at` is zero. Not inlined, so that the
 * verifier checks each of them once and not on every path.
 */
__noinline int shunt_short_sum_is_zero(SHUNT_FRAME *ctx, __u32 at, __u32 bytes, __u64 sum)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	/* -1: the bytes are not all in the first buffer. */
	if (shunt_add_bytes(data + shunt_bound(at, 127), end, bytes, &sum))
		return -1;
	return shunt_sum_is_zero(sum);
}

__noinline int shunt_long_sum_is_zero(SHUNT_FRAME *ctx, __u32 at, __u32 bytes, __u64 sum)
{
	const __u64 step = ((__u64)SHUNT_CHUNK << 32) - SHUNT_CHUNK;
	__u32 zero = 0;
	struct shunt_chunk *chunk = bpf_map_lookup_elem(&shunt_chunk, &zero);
	/* Both in one, since a deeper stack would not fit below the callers'. */
	__u64 at_and_bytes = (__u64)at << 32 | bytes;

	if (!chunk)
		return 0;
	for (int i = 0; i < 0x10000 / SHUNT_CHUNK && (__u32)at_and_bytes >= SHUNT_CHUNK; i++) {
		if (SHUNT_LOAD_BYTES(ctx, at_and_bytes >> 32, chunk->bytes, SHUNT_CHUNK))
			return 0;
		sum += (__u32)bpf_csum_diff(0, 0, (__be32 *)chunk->bytes, SHUNT_CHUNK, 0);
		at_and_bytes += step;
	}
	bytes = at_and_bytes;
	if (bytes) {
		/* 6.1's verifier does not infer >= 1 from != 0. */
		bytes = shunt_bound(bytes - 1, SHUNT_CHUNK - 1) + 1;
		if (SHUNT_LOAD_BYTES(ctx, at_and_bytes >> 32, chunk->bytes, bytes))
			return 0;
		chunk->bytes[bytes] = 0;
		chunk->bytes[bytes + 1] = 0;
		chunk->bytes[bytes + 2] = 0;
		sum += (__u32)bpf_csum_diff(0, 0, (__be32 *)chunk->bytes, (bytes + 3) & ~3U, 0);
	}
	return shunt_sum_is_zero(sum);
}

/*
 * Whether the L4 checksum is correct; 1 if the configuration does not ask for a check. `l3` is in the first buffer.
 * Flows that Linux bridges without conntrack are not checked, since Linux does not check them either.
 */
static __always_inline int shunt_checksum_good(SHUNT_FRAME *ctx, const struct shunt_packet *p, __u32 family,
					       const struct shunt_flow *f, const void *l3, const void *end)
{
	__u32 l3_size = shunt_l3_size(family), bytes = p->l3_bytes - l3_size, at;
	const __u16 *check = l3 + l3_size + shunt_check_offset(p->l4_proto);
	__u64 sum;

	if (bytes > SHUNT_SHORT_L4_MAX && !(shunt_control.flags & SHUNT_CONTROL_VERIFY_LONG))
		return 1;
	if (f->flags & SHUNT_FLOW_UNTRACKED || (const void *)(check + 1) > end)
		return 1;
	if (p->l4_proto == IPPROTO_UDP && !*check)
		return 1;
	at = p->l2_bytes + l3_size;
	sum = shunt_pseudo_sum(family, l3, p->l4_proto, bytes);
	if (shunt_likely(bytes <= SHUNT_SHORT_L4_MAX)) {
		int good = shunt_short_sum_is_zero(ctx, at, bytes, sum);

		if (shunt_likely(good >= 0))
			return good;
	}
	return shunt_long_sum_is_zero(ctx, at, bytes, sum);
}

#endif
