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
static void recycle(struct shunt_engine *e, struct shunt_queue_pair *pair)
{
	__u32 sent = waiting(&pair->done), free = room(&pair->fill);

	for (__u32 i = 0; i < sent; i++)
		release(e, ((__u64 *)pair->done.entries)[(*pair->done.consumer + i) & pair->done.mask]);
	if (sent)
		taken(&pair->done, sent);
	if (free > e->free_count)
		free = e->free_count;
	for (__u32 i = 0; i < free; i++)
		((__u64 *)pair->fill.entries)[(*pair->fill.producer + i) & pair->fill.mask] = e->free[--e->free_count];
	if (free)
		put(&pair->fill, free);
}

/*
 * A scheduler's handle of a frame: its offset, the bytes that are not of the L3 packet, and the slot of its ingress
 * port.
 */
enum { HANDLE_REST = 48, HANDLE_SLOT = 56 };

static __u64 handle_of(__u64 at, __u32 rest, __u32 slot)
{
	return at | (__u64)(rest & 0xff) << HANDLE_REST | (__u64)slot << HANDLE_SLOT;
}

static __u64 handle_at(__u64 handle)
{
	return handle & ((1ULL << HANDLE_REST) - 1);
}

/* Counts a frame as dropped that was counted as forwarded when it was queued. */
static void drop_queued(struct shunt_engine *e, const struct shunt_queued *item)
{
	struct shunt_ingress_counters *c = &e->counters[(item->handle >> HANDLE_SLOT) % SHUNT_PORTS_MAX];

	c->pkts--;
	c->bytes -= item->bytes - (item->handle >> HANDLE_REST & 0xff);
	c->queue_pkts++;
	release(e, handle_at(item->handle));
}

/* Sends what the scheduler lets go now. */
static __u32 drain(struct shunt_engine *e, __u32 slot, __u64 now_ns)
{
	struct shunt_queue_pair *pair = &e->pairs[slot];
	struct shunt_queued item;
	__u32 left = room(&pair->tx), sent = 0;

	if (left > SEND_BATCH)
		left = SEND_BATCH;
	while (sent < left) {
		enum shunt_sched_verdict verdict = shunt_sched_dequeue(pair->sched, now_ns, &item);

		if (verdict == SHUNT_SCHED_DROPPED) {
			drop_queued(e, &item);
		} else if (verdict == SHUNT_SCHED_SENT) {
			push(&pair->tx, handle_at(item.handle), item.bytes, 0);
			sent++;
		} else {
			break;
		}
	}
	return sent;
}

/* Hands a rewritten frame to its egress port, or an unchanged one to Linux. */
static void dispatch(struct shunt_engine *e, const struct shunt_frame *frame, __u64 now_ns)
{
	__u32 slot = e->batch_slot;
	struct shunt_ingress_counters *c = &e->counters[slot];
	struct shunt_queue_pair *out = &e->pairs[frame->out_slot];
	__u64 at = frame->data - e->memory;
	__u32 bytes = frame->data_end - frame->data;

	if (frame->late) {
		c->late_pkts++;
		release(e, at);
		return;
	}
	if (frame->why != SHUNT_OK) {
		c->slow_pkts++;
		c->reasons[frame->why % SHUNT_REASONS_MAX]++;
		if (!push(&e->up, at, bytes, (__u32)frame->why << 16 | slot)) {
			c->up_full_pkts++;
			release(e, at);
		}
		return;
	}
	if (out->sched) {
		__u64 handle = handle_of(at, bytes - frame->l3_bytes, slot);

		if (!shunt_sched_enqueue(out->sched, handle, bytes, frame->dscp, frame->mark, now_ns)) {
			c->queue_pkts++;
			release(e, at);
			return;
		}
	} else if (!push(&out->tx, at, bytes, 0)) {
		c->tx_full_pkts++;
		release(e, at);
		return;
	}
	c->pkts++;
	c->bytes += frame->l3_bytes;
}

__u32 shunt_engine_settle(struct shunt_engine *e, __u64 now_ns)
{
	__u64 passed = 0, held = 0;
	__u32 left = 0;

	/* One bit of each set stands for many flows: at worst a frame waits that need not. */
	for (__u32 i = 0; i < e->batch_count; i++) {
		struct shunt_frame *frame = &e->batch[i];
		__u64 flow = 1ULL << frame->order % 64;

		if (frame->why == SHUNT_OK ? passed & flow : held & flow) {
			held |= flow;
			e->batch[left++] = *frame;
			continue;
		}
		if (frame->why != SHUNT_OK)
			passed |= flow;
		dispatch(e, frame, now_ns);
	}
	e->batch_count = left;
	return left;
}

void shunt_engine_discard(struct shunt_engine *e)
{
	for (__u32 i = 0; i < e->batch_count; i++)
		release(e, e->batch[i].data - e->memory);
	e->counters[e->batch_slot].late_pkts += e->batch_count;
	e->batch_count = 0;
}

/* Sends a frame of the VLAN that is copied out of the other port. Returns 0 if it is no such frame. */
static int copy(struct shunt_engine *e, struct shunt_frame *frame, __u64 now_ns)
{
	__u32 bytes = frame->data_end - frame->data, l2_bytes = shunt_l2_bytes(1);

	if (!e->copy_vlan || bytes < l2_bytes || !shunt_is_in_vlan(shunt_tag_at(frame->data, 0), e->copy_vlan))
		return 0;
	frame->l3_bytes = bytes - l2_bytes;
	frame->mark = 0;
	frame->why = SHUNT_OK;
	frame->dscp = 0;
	frame->late = 0;
	frame->out_slot = e->copy_slots[e->batch_slot == e->copy_slots[0]];
	dispatch(e, frame, now_ns);
	return 1;
}

__u32 shunt_engine_receive(struct shunt_engine *e, __u32 number, __u64 jiffies, __u64 now_ns)
{
	struct shunt_queue_pair *pair = &e->pairs[number];
	struct shunt_policer *policer = e->pairs[pair->slot].policer;
	struct shunt_frame *frames = e->batch;
	__u32 received, kept = 0;

	recycle(e, pair);
	received = waiting(&pair->rx);
	if (received > SHUNT_BATCH)
		received = SHUNT_BATCH;
	if (!received)
		return 0;
	e->batch_slot = pair->slot;
	for (__u32 i = 0; i < received; i++) {
		const struct shunt_desc *desc = desc_at(&pair->rx, *pair->rx.consumer + i);

		if (desc->at > e->memory_bytes || desc->bytes > e->memory_bytes - desc->at ||
		    (desc->at & (e->frame_bytes - 1)) < SHUNT_FRAME_ROOM) {
			e->bad_descs++;
			continue;
		}
		if (policer && !shunt_police(policer, desc->bytes, now_ns)) {
			e->counters[pair->slot].policed_pkts++;
			release(e, desc->at);
			continue;
		}
		frames[kept].data = e->memory + desc->at;
		frames[kept].data_end = e->memory + desc->at + desc->bytes;
		frames[kept].ifindex = pair->ifindex;
		if (copy(e, &frames[kept], now_ns))
			continue;
		__builtin_prefetch(e->memory + desc->at, 1);
		kept++;
	}
	taken(&pair->rx, received);
	shunt_engine_batch(frames, kept, e->reachable, jiffies);
	e->batch_count = kept;
	return received;
}

__u32 shunt_engine_send(struct shunt_engine *e, __u64 now_ns)
{
	__u32 sent = 0;

	for (__u32 slot = 0; slot < SHUNT_PORTS_MAX && slot < e->pairs_end; slot++)
		if (e->pairs[slot].ifindex && e->pairs[slot].sched)
			sent += drain(e, slot, now_ns);
	return sent;
}

__u32 shunt_engine_poll(struct shunt_engine *e, __u64 jiffies, __u64 now_ns)
{
	__u32 work = e->batch_count;

	if (work)
		shunt_engine_settle(e, now_ns);
	for (__u32 pair = 0; pair < e->pairs_end && !e->batch_count; pair++) {
		if (!e->pairs[pair].ifindex)
			continue;
		work += shunt_engine_receive(e, pair, jiffies, now_ns);
		shunt_engine_settle(e, now_ns);
	}
	return work + shunt_engine_send(e, now_ns);
}
