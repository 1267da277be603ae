/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events for the daemon. */
#ifndef SHUNT_EVENTS_H
#define SHUNT_EVENTS_H

#include "core/packet.h"
#include "include/bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} shunt_events SEC(".maps");

static __always_inline int shunt_write_event(enum shunt_event_kind kind, __u32 family, const union shunt_key *key,
					     int reply, __u32 idle_s)
{
	struct shunt_event *event = bpf_ringbuf_reserve(&shunt_events, sizeof(*event), 0);

	if (!event)
		return -1;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->family = family;
	event->l4_proto = IPPROTO_TCP;
	event->reply = reply;
	event->value = idle_s;
	if (family == 4) {
		event->sport_be = key->v4.sport_be;
		event->dport_be = key->v4.dport_be;
		event->ifindex = key->v4.ifindex;
		__builtin_memcpy(event->src_be, &key->v4.src_be, 4);
		__builtin_memcpy(event->dst_be, &key->v4.dst_be, 4);
	} else {
		event->sport_be = key->v6.sport_be;
		event->dport_be = key->v6.dport_be;
		event->ifindex = key->v6.ifindex;
		__builtin_memcpy(event->src_be, key->v6.src_be, 16);
		__builtin_memcpy(event->dst_be, key->v6.dst_be, 16);
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Global functions, which the verifier checks once each. */
__noinline int shunt_report4(__u32 kind, const struct shunt_key4 *key, int reply, __u32 idle_s)
{
	return key ? shunt_write_event(kind, 4, (const union shunt_key *)key, reply, idle_s) : -1;
}

__noinline int shunt_report6(__u32 kind, const struct shunt_key6 *key, int reply, __u32 idle_s)
{
	return key ? shunt_write_event(kind, 6, (const union shunt_key *)key, reply, idle_s) : -1;
}

/* Reports a TCP connection, by the key of one direction. Returns -1 if the ring is full. */
static __always_inline int shunt_report(enum shunt_event_kind kind, __u32 family, const union shunt_key *key, int reply,
					__u32 idle_s)
{
	return family == 4 ? shunt_report4(kind, &key->v4, reply, idle_s) :
			     shunt_report6(kind, &key->v6, reply, idle_s);
}

#endif
