// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The engine's loop: from the rings of each port, through the batch, to the rings of others. */
#include "external/engine.h"

/* At most this many packets leave a scheduler in one turn, so that no port waits for another. */
enum { SEND_BATCH = 64 };

static __u32 waiting(const struct shunt_ring *ring)
{
	return ring->entries ? __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - *ring->consumer : 0;
}

static __u32 room(const struct shunt_ring *ring)
{
	return ring->entries ? ring->mask + 1 - (*ring->producer - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE)) :
			       0;
}

static void taken(struct shunt_ring *ring, __u32 count)
{
	__atomic_store_n(ring->consumer, *ring->consumer + count, __ATOMIC_RELEASE);
}

static void put(struct shunt_ring *ring, __u32 count)
{
	__atomic_store_n(ring->producer, *ring->producer + count, __ATOMIC_RELEASE);
}

static struct shunt_desc *desc_at(const struct shunt_ring *ring, __u32 index)
{
	return (struct shunt_desc *)ring->entries + (index & ring->mask);
}

static void release(struct shunt_engine *e, __u64 at)
{
	if (e->free_count < e->free_max)
		e->free[e->free_count++] = at & ~(e->frame_bytes - 1);
}

/* Puts a descriptor into a ring. Returns 0 if the ring is full. */
static int push(struct shunt_ring *ring, __u64 at, __u32 bytes, __u32 options)
{
	if (!room(ring))
		return 0;
	*desc_at(ring, *ring->producer) = (struct shunt_desc){ .at = at, .bytes = bytes, .options = options };
	put(ring, 1);
	return 1;
}

/* Takes back frames that were sent, and gives free frames to the port. */
static void recycle(struct shunt_engine *e, struct shunt_lane *lane)
{
	__u32 sent = waiting(&lane->done), free = room(&lane->fill);

	for (__u32 i = 0; i < sent; i++)
		release(e, ((__u64 *)lane->done.entries)[(*lane->done.consumer + i) & lane->done.mask]);
	if (sent)
		taken(&lane->done, sent);
	if (free > e->free_count)
		free = e->free_count;
	for (__u32 i = 0; i < free; i++)
		((__u64 *)lane->fill.entries)[(*lane->fill.producer + i) & lane->fill.mask] = e->free[--e->free_count];
	if (free)
		put(&lane->fill, free);
}

/* Sends what the scheduler lets go now. */
static __u32 drain(struct shunt_engine *e, __u32 slot, __u64 now_ns)
{
	struct shunt_lane *lane = &e->lanes[slot];
	struct shunt_queued item;
	__u32 left = room(&lane->tx), sent = 0;

	if (left > SEND_BATCH)
		left = SEND_BATCH;
	while (sent < left) {
		enum shunt_sched_verdict verdict = shunt_sched_dequeue(lane->sched, now_ns, &item);

		if (verdict == SHUNT_SCHED_DROPPED) {
			e->counters[slot].queue_drops++;
			release(e, item.handle);
		} else if (verdict == SHUNT_SCHED_SENT) {
			push(&lane->tx, item.handle, item.bytes, 0);
			sent++;
		} else {
			break;
		}
	}
	return sent;
}

/* Hands a rewritten frame to its egress port, or an unchanged one to Linux. */
static void dispatch(struct shunt_engine *e, __u32 slot, const struct shunt_frame *frame, __u64 now_ns)
{
	struct shunt_lane_counters *c = &e->counters[slot];
	struct shunt_lane *out = &e->lanes[frame->out_slot];
	__u64 at = frame->data - e->memory;
	__u32 bytes = frame->data_end - frame->data;
	int accepted;

	if (frame->why != SHUNT_OK) {
		c->slow_pkts++;
		c->reasons[frame->why % SHUNT_REASONS_MAX]++;
		if (!push(&e->up, at, bytes, (__u32)frame->why << 16 | slot)) {
			c->up_full_pkts++;
			release(e, at);
		}
		return;
	}
	if (out->sched)
		accepted = shunt_sched_enqueue(out->sched, at, bytes, frame->dscp, frame->mark, now_ns);
	else
		accepted = push(&out->tx, at, bytes, 0);
	if (accepted) {
		c->pkts++;
		c->bytes += frame->l3_bytes;
	} else {
		c->tx_full_pkts++;
		release(e, at);
	}
}

static __u32 receive(struct shunt_engine *e, __u32 slot, __u64 reachable, __u64 jiffies, __u64 now_ns)
{
	struct shunt_lane *lane = &e->lanes[slot];
	struct shunt_frame frames[SHUNT_BATCH];
	__u32 received = waiting(&lane->rx), kept = 0;

	if (received > SHUNT_BATCH)
		received = SHUNT_BATCH;
	for (__u32 i = 0; i < received; i++) {
		const struct shunt_desc *desc = desc_at(&lane->rx, *lane->rx.consumer + i);

		if (desc->at > e->memory_bytes || desc->bytes > e->memory_bytes - desc->at ||
		    (desc->at & (e->frame_bytes - 1)) < SHUNT_FRAME_ROOM) {
			e->bad_descs++;
			continue;
		}
		if (lane->policer && !shunt_police(lane->policer, desc->bytes, now_ns)) {
			e->counters[slot].policed_pkts++;
			release(e, desc->at);
			continue;
		}
		frames[kept++] = (struct shunt_frame){
			.data = e->memory + desc->at,
			.data_end = e->memory + desc->at + desc->bytes,
			.ifindex = lane->ifindex,
		};
		__builtin_prefetch(e->memory + desc->at, 1);
	}
	if (!received)
		return 0;
	taken(&lane->rx, received);
	shunt_engine_batch(frames, kept, reachable, jiffies);
	for (__u32 i = 0; i < kept; i++)
		dispatch(e, slot, &frames[i], now_ns);
	return received;
}

__u32 shunt_engine_poll(struct shunt_engine *e, __u64 jiffies, __u64 now_ns)
{
	__u64 reachable = 0;
	__u32 work = 0;

	for (__u32 slot = 0; slot < SHUNT_PORTS_MAX; slot++)
		reachable |= (__u64)(e->lanes[slot].ifindex != 0) << slot;
	for (__u32 slot = 0; slot < SHUNT_PORTS_MAX; slot++) {
		if (!e->lanes[slot].ifindex)
			continue;
		recycle(e, &e->lanes[slot]);
		work += receive(e, slot, reachable, jiffies, now_ns);
	}
	for (__u32 slot = 0; slot < SHUNT_PORTS_MAX; slot++)
		if (e->lanes[slot].ifindex && e->lanes[slot].sched)
			work += drain(e, slot, now_ns);
	return work;
}
