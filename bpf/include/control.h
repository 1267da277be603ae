/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What has its address when a program is loaded: each is a variable in a section of its own, which is a map of one element. There
 * is nothing to look up, and nothing that could be missing.
 */
#ifndef SHUNT_CONTROL_H
#define SHUNT_CONTROL_H

#include "include/bpf.h"

/* The daemon writes these by a mapping. */
struct shunt_control shunt_control SEC(".bss.control");
struct shunt_places shunt_places SEC(".bss.places");

/* The programs write this. */
struct shunt_usage shunt_usage SEC(".bss.usage");

/* The clock: a load, where reading any other costs a call. */
static __always_inline __u32 shunt_now(void)
{
	return bpf_jiffies64();
}

static __always_inline __u32 shunt_ticks(__u32 ms)
{
	return ms * shunt_control.ticks_per_s / 1000;
}

#endif
