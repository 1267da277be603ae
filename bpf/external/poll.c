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

static void release(struct shunt_engine *e, __u64 at)
{
	if (e->free_count < e->free_max)
		e->free[e->free_count++] = at & ~(e->frame_bytes - 1);
}

/*
 * Descriptors for one ring, not yet visible to its reader. Most frames of a batch go to the same ring: its indices,
 * which another core reads and writes, are moved once for all of them.
 */
struct run {
	struct shunt_ring *ring;
	struct shunt_desc *entries;
	__u32 mask;
	__u32 next; /* index of the next descriptor, */
	__u32 end; /* and of the first one that is not free */
};

static void publish(struct run *run)
{
	if (run->ring)
		__atomic_store_n(run->ring->producer, run->next, __ATOMIC_RELEASE);
	run->ring = 0;
}

static void begin(struct run *run, struct shunt_ring *ring)
{
	publish(run);
	*run = (struct run){
		.ring = ring,
		.entries = ring->entries,
		.mask = ring->mask,
		.next = *ring->producer,
		.end = *ring->producer + room(ring),
	};
}

/* Puts a descriptor into a ring. Returns 0 if the ring is full. */
static __always_inline int push(struct run *run, struct shunt_ring *ring, __u64 at, __u32 bytes, __u32 options)
{
	if (shunt_unlikely(run->ring != ring))
		begin(run, ring);
	if (shunt_unlikely(run->next == run->end))
		return 0;
	run->entries[run->next++ & run->mask] = (struct shunt_desc){ .at = at, .bytes = bytes, .options = options };
	return 1;
}

/* Takes back frames that were sent, and gives free frames to the port. */
static void recycle(struct shunt_engine *e, struct shunt_queue_pair *pair)
{
	__u32 sent = waiting(&pair->done), free = room(&pair->fill), free_count = e->free_count;
	const __u64 *done = pair->done.entries, within = e->frame_bytes - 1;
	__u64 *fill = pair->fill.entries;

	if (sent) {
		__u32 from = *pair->done.consumer, kept = sent;

		if (kept > e->free_max - free_count)
			kept = e->free_max - free_count;
		for (__u32 i = 0; i < kept; i++)
			e->free[free_count + i] = done[(from + i) & pair->done.mask] & ~within;
		free_count += kept;
		taken(&pair->done, sent);
	}
	if (free > free_count)
		free = free_count;
	if (free) {
		__u32 to = *pair->fill.producer;

		for (__u32 i = 0; i < free; i++)
			fill[(to + i) & pair->fill.mask] = e->free[--free_count];
		put(&pair->fill, free);
	}
	e->free_count = free_count;
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
	struct shunt_ingress_counters *c = &e->counters[(item->handle >> HANDLE_SLOT) % SHUNT_EXTERNAL_PORTS_MAX];

	c->pkts--;
	c->bytes -= item->bytes - (item->handle >> HANDLE_REST & 0xff);
	c->queue_pkts++;
	release(e, handle_at(item->handle));
}

/* Sends what the scheduler lets go now. */
static __u32 drain(struct shunt_engine *e, __u32 slot, __u64 now_ns)
{
	struct shunt_queue_pair *pair = &e->pairs[slot];
	struct run run = {};
	struct shunt_queued item;
	__u32 left = room(&pair->tx), sent = 0;

	if (left > SEND_BATCH)
		left = SEND_BATCH;
	while (sent < left) {
		enum shunt_sched_verdict verdict = shunt_sched_dequeue(pair->sched, now_ns, &item);

		if (verdict == SHUNT_SCHED_DROPPED) {
			drop_queued(e, &item);
		} else if (verdict == SHUNT_SCHED_SENT) {
			push(&run, &pair->tx, handle_at(item.handle), item.bytes, 0);
			sent++;
		} else {
			break;
		}
	}
	publish(&run);
	return sent;
}

/* Drops a frame that waited too long, or hands an unchanged frame to Linux. */
static void dispatch_slow(struct shunt_engine *e, struct run *run, const struct shunt_frame *frame)
{
	struct shunt_ingress_counters *c = &e->counters[e->batch_slot];
	__u64 at = frame->data - e->memory;

	if (frame->late) {
		c->late_pkts++;
		release(e, at);
		return;
	}
	c->slow_pkts++;
	c->reasons[frame->why % SHUNT_REASONS_MAX]++;
	if (!push(run, &e->up, at, frame->data_end - frame->data, (__u32)frame->why << 16 | e->batch_slot)) {
		c->up_full_pkts++;
		release(e, at);
	}
}

/* Hands a rewritten frame to the scheduler of its egress port. */
static int enqueue(struct shunt_engine *e, const struct shunt_frame *frame, struct shunt_sched *sched, __u64 now_ns)
{
	__u32 bytes = frame->data_end - frame->data;
	__u64 handle = handle_of(frame->data - e->memory, bytes - frame->l3_bytes, e->batch_slot);

	return shunt_sched_enqueue(sched, handle, bytes, frame->dscp, frame->mark, now_ns);
}

/* Hands a rewritten frame to its egress port. Returns 0 if the frame was dropped. */
static __always_inline int dispatch(struct shunt_engine *e, struct run *run, const struct shunt_frame *frame,
				    struct shunt_queue_pair *out, __u64 now_ns)
{
	struct shunt_ingress_counters *c = &e->counters[e->batch_slot];
	__u64 at = frame->data - e->memory;

	if (shunt_unlikely(out->sched)) {
		if (enqueue(e, frame, out->sched, now_ns))
			return 1;
		c->queue_pkts++;
	} else {
		if (shunt_likely(push(run, &out->tx, at, frame->data_end - frame->data, 0)))
			return 1;
		c->tx_full_pkts++;
	}
	release(e, at);
	return 0;
}

__u32 shunt_engine_settle(struct shunt_engine *e, __u64 now_ns)
{
	struct shunt_ingress_counters *c = &e->counters[e->batch_slot];
	struct shunt_frame *frame = e->batch, *end = frame + e->batch_count;
	__u64 passed = 0, held = 0, pkts = 0, bytes = 0;
	struct shunt_queue_pair *out = e->pairs;
	struct run run = {};
	__u32 left = 0, slot = 0;

	for (; frame < end; frame++) {
		/* One bit of each set stands for many flows: at worst a frame waits that need not. */
		__u64 flow = 1ULL << frame->order % 64;

		if (shunt_unlikely(frame->why == SHUNT_OK ? passed & flow : held & flow)) {
			held |= flow;
			e->batch[left++] = *frame;
		} else if (shunt_likely(frame->why == SHUNT_OK)) {
			if (shunt_unlikely(frame->out_slot != slot)) {
				slot = frame->out_slot;
				out = &e->pairs[slot];
			}
			if (shunt_likely(dispatch(e, &run, frame, out, now_ns))) {
				pkts++;
				bytes += frame->l3_bytes;
			}
		} else {
			passed |= flow;
			dispatch_slow(e, &run, frame);
		}
	}
	publish(&run);
	c->pkts += pkts;
	c->bytes += bytes;
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
static int copy(struct shunt_engine *e, struct run *run, struct shunt_frame *frame, __u64 now_ns)
{
	__u32 bytes = frame->data_end - frame->data, l2_bytes = shunt_l2_bytes(1);
	struct shunt_ingress_counters *c = &e->counters[e->batch_slot];

	if (bytes < l2_bytes || !shunt_is_in_vlan(shunt_tag_at(frame->data, 0), e->copy_vlan))
		return 0;
	frame->l3_bytes = bytes - l2_bytes;
	frame->mark = 0;
	frame->dscp = 0;
	if (dispatch(e, run, frame, &e->pairs[e->copy_slots[e->batch_slot == e->copy_slots[0]]], now_ns)) {
		c->pkts++;
		c->bytes += frame->l3_bytes;
	}
	return 1;
}

__u32 shunt_engine_receive(struct shunt_engine *e, __u32 number, __u64 jiffies, __u64 now_ns)
{
	struct shunt_queue_pair *pair = &e->pairs[number];
	struct shunt_policer *policer = e->pairs[pair->slot].policer;
	const __u64 memory_bytes = e->memory_bytes, within = e->frame_bytes - 1;
	struct shunt_frame *frame = e->batch;
	__u8 *const memory = e->memory;
	struct run run = {};
	__u32 received, from, mask = pair->rx.mask;

	recycle(e, pair);
	received = waiting(&pair->rx);
	if (received > SHUNT_BATCH)
		received = SHUNT_BATCH;
	if (!received)
		return 0;
	from = *pair->rx.consumer;
	e->batch_slot = pair->slot;
	for (__u32 i = 0; i < received; i++) {
		const struct shunt_desc *desc = (const struct shunt_desc *)pair->rx.entries + ((from + i) & mask);
		__u64 at = desc->at;
		__u32 bytes = desc->bytes;

		if (shunt_unlikely(at > memory_bytes || bytes > memory_bytes - at ||
				   (at & within) < SHUNT_FRAME_ROOM)) {
			e->bad_descs++;
			continue;
		}
		if (shunt_unlikely(policer) && !shunt_police(policer, bytes, now_ns)) {
			e->counters[pair->slot].policed_pkts++;
			release(e, at);
			continue;
		}
		frame->data = memory + at;
		frame->data_end = memory + at + bytes;
		frame->ifindex = pair->ifindex;
		if (shunt_unlikely(e->copy_vlan) && copy(e, &run, frame, now_ns))
			continue;
		__builtin_prefetch(memory + at, 1);
		frame++;
	}
	publish(&run);
	taken(&pair->rx, received);
	e->batch_count = frame - e->batch;
	shunt_engine_batch(e->batch, e->batch_count, e->reachable, jiffies);
	return received;
}

__u32 shunt_engine_send(struct shunt_engine *e, __u64 now_ns)
{
	__u32 sent = 0;

	for (__u32 slot = 0; slot < SHUNT_EXTERNAL_PORTS_MAX && slot < e->pairs_end; slot++)
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
