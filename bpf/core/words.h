/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Byte order, words of headers, and hints for the compiler. Freestanding. */
#ifndef SHUNT_CORE_WORDS_H
#define SHUNT_CORE_WORDS_H

#include <linux/types.h>

/* The kernel's headers for user space define it as a mere hint. */
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define shunt_likely(x) __builtin_expect(!!(x), 1)
#define shunt_unlikely(x) __builtin_expect(!!(x), 0)

/* Keeps a value in one register: clang would compute parts of it again, or load it in parts. */
#ifdef __bpf__
#define shunt_keep(x) asm("" : "+r"(x))
/* The same, and all that stands before this is done before what stands behind it. */
#define shunt_in_turn(x) asm volatile("" : "+r"(x)::"memory")
#else
#define shunt_keep(x) ((void)(x))
#define shunt_in_turn(x) ((void)(x))
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define shunt_ntohs(x) __builtin_bswap16(x)
#define shunt_ntohl(x) __builtin_bswap32(x)
#else
#define shunt_ntohs(x) (x)
#define shunt_ntohl(x) (x)
#endif
#define shunt_htons(x) shunt_ntohs(x)

/*
 * Words of headers. An L2 header begins at any even address, and an IP header at a multiple of four on machines that
 * cannot load words from elsewhere. eBPF loads words from anywhere; clang would load bytes if the types had a smaller
 * alignment.
 */
#ifdef __bpf__
typedef __u32 shunt_l2_u32;
typedef __u64 shunt_l2_u64;
#else
typedef __u32 shunt_l2_u32 __attribute__((aligned(2)));
typedef __u64 shunt_l2_u64 __attribute__((aligned(2)));
#endif

/* Whether any of `words` 16-bit words differs. */
static __always_inline int shunt_differ(const void *a, const void *b, __u32 words)
{
	const __u16 *x = a;
	const __u16 *y = b;
	__u16 differ = 0;

#pragma unroll
	for (__u32 i = 0; i < words; i++) {
		differ |= x[i] ^ y[i];
		/* Of many words, clang would load all before it compares any, and keep them on the stack. */
		if (i % 4 == 3)
			shunt_in_turn(differ);
	}
	return differ;
}

#endif
