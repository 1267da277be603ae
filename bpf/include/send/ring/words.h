/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reading the kernel's memory, for the rings of drivers. */
#ifndef SHUNT_RING_WORDS_H
#define SHUNT_RING_WORDS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

enum { SHUNT_AHEAD = 8 }; /* frames; a power of two, and about as many loads as a core keeps track of */

struct xdp_rxq_info___shunt {
	void *dev;
} __attribute__((preserve_access_index));

struct xdp_buff___shunt {
	void *data;
	struct xdp_rxq_info___shunt *rxq;
} __attribute__((preserve_access_index));

/* A struct of every kernel that begins with a number. */
struct timespec64___shunt {
	__s64 tv_sec;
} __attribute__((preserve_access_index));

/* Linux 6.2, commits fd264ca02094 and a35b9af4ec2c. */
void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
void *bpf_rdonly_cast(const void *at, __u32 btf_id) __ksym;

/* Reads eight bytes of the kernel's memory; 0 if they cannot be read. */
static __always_inline __u64 shunt_kernel_word(__u64 at)
{
	struct timespec64___shunt *word =
		bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct timespec64___shunt));

	return word->tv_sec;
}

#define shunt_offset(type, field) __builtin_preserve_field_info(((type *)0)->field, BPF_FIELD_BYTE_OFFSET)

/* The field of a struct at an address, if it is no wider than a word. What follows it is in the upper bits. */
#define shunt_kernel_field(type, at, field) shunt_kernel_word((at) + shunt_offset(type, field))

#endif
