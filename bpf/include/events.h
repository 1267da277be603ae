/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the daemon is to do for a connection. */
#ifndef SHUNT_EVENTS_H
#define SHUNT_EVENTS_H

#include "include/bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} shunt_events SEC(".maps");

#endif
