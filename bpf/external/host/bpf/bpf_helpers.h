/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libbpf's names, for code of bpf/include that is compiled into the external engine: a map is an array in memory, whose
 * owner sets `value` and `value_count`. A hash map is always empty.
 */
#ifndef SHUNT_EXTERNAL_BPF_HELPERS_H
#define SHUNT_EXTERNAL_BPF_HELPERS_H

#include <linux/bpf.h>

/* The owner of the engine has the control block. */
#define SHUNT_CONTROL_BY_POINTER

#define SEC(name)
#define __noinline __attribute__((noinline, unused))
#define __uint(name, number) char(*name)[number]
#define __type(name, kind)                                                                                             \
	__typeof__(kind) *name;                                                                                        \
	__u32 name##_count

#define bpf_map_lookup_elem(map, key)                                                                                  \
	((void *)(sizeof(*(map)->type) != BPF_MAP_TYPE_HASH && *(key) < (map)->value_count ? (map)->value + *(key) : 0))

/* SHUNT_ENGINE_CPU of the ABI. */
static inline __u32 bpf_get_smp_processor_id(void)
{
	return 0xff;
}

/* The time of the present batch. */
static __u64 shunt_batch_ticks;

static inline __u64 bpf_jiffies64(void)
{
	return shunt_batch_ticks;
}

/* Sums 16-bit words; `to` has an even number of bytes. */
static inline __s64 bpf_csum_diff(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __u32 seed)
{
	const __u16 *word = (const __u16 *)to;

	(void)from, (void)from_size;
	for (__u32 i = 0; i < to_size / 2; i++)
		seed += word[i];
	return seed;
}

/* One core alone has the table of a companion core, whose CPU may lack atomic operations on 64 bits. */
#ifdef SHUNT_SINGLE_CORE
#define __sync_fetch_and_add(at, more)                                                                                 \
	({                                                                                                             \
		__typeof__(*(at)) shunt_before_add = *(at);                                                            \
		*(at) += (more);                                                                                       \
		shunt_before_add;                                                                                      \
	})
#define __sync_lock_test_and_set(at, with)                                                                             \
	({                                                                                                             \
		__typeof__(*(at)) shunt_before_set = *(at);                                                            \
		*(at) = (with);                                                                                        \
		shunt_before_set;                                                                                      \
	})
#define __sync_val_compare_and_swap(at, if_is, with)                                                                   \
	({                                                                                                             \
		__typeof__(*(at)) shunt_before_cas = *(at);                                                            \
		if (shunt_before_cas == (if_is))                                                                       \
			*(at) = (with);                                                                                \
		shunt_before_cas;                                                                                      \
	})
#endif

#endif
