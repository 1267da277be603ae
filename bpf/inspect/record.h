/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records of packets on their way. A packet that is traced is known by the address of its skb: a table of addresses,
 * which fits a few cache lines, tells at every probe whether the packet is traced. Other packets cost one comparison.
 */
#ifndef SHUNT_INSPECT_RECORD_H
#define SHUNT_INSPECT_RECORD_H

#include "inspect/kernel.h"
#include "inspect/trace_abi.h"

struct task_struct___shunt {
	char comm[TRACE_COMM_BYTES];
} RELOCATED;

enum { TRACE_STALE_NS = 1000000000 };

/* Written by the loader; constant, so that the verifier removes what a plan does not use. */
volatile const struct trace_plan plan = { .sample = 1 };

/* The address of the skb in each slot; 0: free; 1: the packet is known by its socket. */
struct trace_keys {
	__u64 skb[TRACE_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_keys);
} trace_keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACE_SLOTS);
	__type(key, __u32);
	__type(value, struct trace_record);
} trace_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024);
} trace_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_losses);
} trace_losses SEC(".maps");

/* Packets until the next one is traced. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} trace_countdown SEC(".maps");

/* 1 while packets may be traced; those that are traced already are followed in any case. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} trace_gate SEC(".maps");

static __always_inline struct trace_keys *keys_of_packets(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_keys, &zero);
}

static __always_inline __u32 slot_of(const void *skb)
{
	/* Half of the address: verifiers allow 32-bit arithmetic on pointers only. */
	__u32 address = (__u64)skb;

	/* An skb has 256 bytes, so the low bits are the same in all addresses. */
	return (address >> 8 ^ address >> 18) & (TRACE_SLOTS - 1);
}

static __always_inline __u64 *key_of(struct trace_keys *keys, __u32 slot)
{
	return &keys->skb[shunt_bound(slot, TRACE_SLOTS - 1)];
}

/* Returns the record of a packet, or NULL if it is not traced. */
static __always_inline struct trace_record *record_of(const void *skb)
{
	struct trace_keys *keys = keys_of_packets();
	__u32 slot = slot_of(skb);

	if (!keys || *key_of(keys, slot) != (__u64)skb)
		return NULL;
	return bpf_map_lookup_elem(&trace_records, &slot);
}

static __always_inline void lose(__u32 records_full)
{
	__u32 zero = 0;
	struct trace_losses *losses = bpf_map_lookup_elem(&trace_losses, &zero);

	if (losses)
		__sync_fetch_and_add(records_full ? &losses->ring_full : &losses->busy, 1);
}

static __always_inline void stamp_at(struct trace_record *record, __u32 stage, __u32 probe, __u64 now)
{
	const struct task_struct___shunt *task = (void *)bpf_get_current_task();
	__u32 at = record->events;
	struct trace_event *event;

	if (at >= TRACE_EVENTS_MAX) {
		record->lost++;
		return;
	}
	event = &record->event[shunt_bound(at, TRACE_EVENTS_MAX - 1)];
	/* Clocks of CPUs may differ by some ns. */
	event->after_ns = now > record->began_ns ? now - record->began_ns : 0;
	event->cpu = bpf_get_smp_processor_id();
	event->probe = probe;
	event->stage = stage;
	event->thread = bpf_get_current_pid_tgid();
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), &task->comm);
	record->events = at + 1;
	if (stage != TRACE_PROBE)
		record->position = stage;
}

static __always_inline void stamp(struct trace_record *record, __u32 stage)
{
	stamp_at(record, stage, 0, bpf_ktime_get_ns());
}

/* Copies a record to user space. Nobody is woken: the reader looks at intervals. */
static __always_inline void publish(struct trace_record *record, enum trace_end end)
{
	__u32 events = record->events;

	record->end = end;
	if (events > TRACE_EVENTS_MAX)
		events = TRACE_EVENTS_MAX;
	if (bpf_ringbuf_output(&trace_ring, record,
			       __builtin_offsetof(struct trace_record, event) + events * sizeof(struct trace_event),
			       BPF_RB_NO_WAKEUP))
		lose(1);
}

/* Publishes a record and frees its slot. */
static __always_inline void finish(struct trace_record *record, enum trace_end end)
{
	struct trace_keys *keys = keys_of_packets();
	__u32 slot = record->slot;

	publish(record, end);
	if (keys)
		*key_of(keys, slot) = 0;
}

static __always_inline int is_ours(const struct net_device___shunt *dev)
{
	return dev->nd_net.net->ns.inum == plan.netns;
}

/* Whether it is this packet's turn. Intervals are random, or else periodic traffic would always give the same flow. */
static __always_inline int is_sampled(void)
{
	__u32 zero = 0, *left, *gate;

	if (plan.sample <= 1)
		goto chosen;
	left = bpf_map_lookup_elem(&trace_countdown, &zero);
	if (!left)
		return 0;
	if (*left) {
		*left -= 1;
		return 0;
	}
	/* Between 0 and 2 * (sample - 1), so one in `sample` on average. */
	*left = bpf_get_prandom_u32() % (2 * plan.sample - 1);
chosen:
	gate = bpf_map_lookup_elem(&trace_gate, &zero);
	return gate && *gate;
}

/* Claims the slot of a packet for a new record. Returns NULL if the slot is in use. */
static __always_inline struct trace_record *claim(const void *skb, __u64 began_ns, const struct trace_tuple *tuple,
						  __u32 bytes)
{
	struct trace_keys *keys = keys_of_packets();
	struct trace_record *record;
	__u32 slot = slot_of(skb);
	__u64 now = bpf_ktime_get_ns(), key, *place;

	record = bpf_map_lookup_elem(&trace_records, &slot);
	if (!keys || !record)
		return NULL;
	place = key_of(keys, slot);
	key = *place;
	if (key && key != (__u64)skb && now - record->began_ns < TRACE_STALE_NS) {
		lose(0);
		return NULL;
	}
	/*
	 * The packet of the old record was freed without a tracepoint, as TCP does, or waits for a reader that does not
	 * read.
	 */
	if (!__sync_bool_compare_and_swap(place, key, (__u64)skb)) {
		lose(0);
		return NULL;
	}
	if (key)
		publish(record, record->flags & TRACE_LEFT ? TRACE_DONE : TRACE_VANISHED);
	__builtin_memset(record, 0, __builtin_offsetof(struct trace_record, event));
	record->slot = slot;
	record->began_ns = began_ns ? began_ns : now;
	record->in = *tuple;
	record->bytes = bytes;
	return record;
}

#endif
