/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Globals shared with the daemon by mmap: no map look-up. Each is in a section of its own, which libbpf turns into
 * a map of one element.
 */
#ifndef SHUNT_CONTROL_H
#define SHUNT_CONTROL_H

#include "include/bpf.h"

/* Written by the daemon through mmap. */
#ifdef SHUNT_CONTROL_BY_POINTER
static struct shunt_control *shunt_control_at;
#define shunt_control (*shunt_control_at)
static __u32 *shunt_groups;
#else
struct shunt_control shunt_control SEC(".bss.control");
/*
 * By group, a pair of source and destination station: how often one of them has changed, times two. Written by the
 * programs and by the daemon.
 */
__u32 shunt_groups[SHUNT_GROUPS] SEC(".bss.groups");
#endif
struct shunt_port_cache shunt_port_cache SEC(".bss.port_cache");

/* Written by the programs. */
struct shunt_usage shunt_usage SEC(".bss.usage");

/*
 * The clock. bpf_jiffies64() is inlined as a load; other clocks cost a call. Stored times are the low half, which
 * wraps.
 */
static __always_inline __u64 shunt_now(void)
{
	return bpf_jiffies64();
}

/* What the epoch of a flow is if nothing that the flow depends on has changed since its last proof. */
static __always_inline __u32 shunt_current_epoch(const struct shunt_flow *f)
{
	return shunt_control.epoch + shunt_groups[f->group];
}

static __always_inline __u32 shunt_ticks(__u32 ms)
{
	return ms * shunt_control.ticks_per_s / 1000;
}

#endif
