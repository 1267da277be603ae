/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every program includes first: UAPI, libbpf, the core. Nothing here needs BTF of the running kernel. */
#ifndef SHUNT_BPF_H
#define SHUNT_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "core/learn.h"

/* Verdicts with one value in TCX and in cls_bpf direct action. */
enum {
	SHUNT_TC_NEXT = -1,  /* TCX_NEXT, TC_ACT_UNSPEC: whoever comes next decides */
	SHUNT_TC_DROP = 2,   /* TCX_DROP, TC_ACT_SHOT */
};

/*
 * A value that is at most `most`, one less than a power of two, said where it is used: verifiers forget what they knew of
 * a value that was spilled by halves or put together from bits. Linux 6.1 and 6.12 need it.
 */
static __always_inline __u64 shunt_at_most(__u64 value, __u32 most)
{
	asm volatile("%0 &= %1" : "+r"(value) : "i"(most));
	return value;
}

#endif
