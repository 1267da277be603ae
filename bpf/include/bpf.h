/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Included by every program: UAPI, libbpf, the packet core. Nothing here needs the kernel's BTF. */
#ifndef SHUNT_BPF_H
#define SHUNT_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "core/learn.h"

/* Verdicts that have the same value in TCX and in cls_bpf direct action. */
enum {
	SHUNT_TC_NEXT = -1, /* TCX_NEXT, TC_ACT_UNSPEC: the next program decides */
	SHUNT_TC_DROP = 2, /* TCX_DROP, TC_ACT_SHOT */
};

/*
 * Bounds a value by `most`, a power of two minus one, right before its use. Verifiers lose the bounds of a value
 * that was spilled in halves or assembled from bits; 6.1 and 6.12 need this.
 */
static __always_inline __u64 shunt_bound(__u64 value, __u32 most)
{
#ifdef __bpf__
	asm volatile("%0 &= %1" : "+r"(value) : "i"(most));
	return value;
#else
	return value & most;
#endif
}

/*
 * Makes the verifier forget what it knows about `value`, by XORing it twice with `unknown`, which it does not know.
 * Otherwise it checks the code that follows once for each constant (such as a reason) that can arrive here.
 */
static __always_inline __u32 shunt_forget(__u64 value, __u64 unknown)
{
#ifdef __bpf__
	asm volatile("%0 ^= %1\n\t%0 ^= %1" : "+&r"(value) : "r"(unknown));
#else
	(void)unknown;
#endif
	return value;
}

#endif
