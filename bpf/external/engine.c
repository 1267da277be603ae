// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Rewriting a batch. Each pass over the batch loads what the next pass needs, so that the batch waits for many cache
 * lines at the same time, and not for one after the other.
 */
#include "external/engine.h"
#include "include/table/change.h"
#include "include/table/maps.h"

#define SHUNT_FRAME struct shunt_frame
#define SHUNT_LOAD_BYTES load_bytes

/* Packets of one step: about as many cache lines as a core loads at the same time. */
enum { BLOCK = 8 };

static int load_bytes(const struct shunt_frame *frame, __u32 at, __u8 *to, __u32 bytes)
{
	if ((__u32)(frame->data_end - frame->data) < at + bytes)
		return -1;
	__builtin_memcpy(to, frame->data + at, bytes);
	return 0;
}

#include "include/send/verify.h"

static struct shunt_chunk chunk;

void shunt_engine_tables(const struct shunt_memory *memory)
{
	shunt_control_at = memory->control;
	shunt_groups = memory->groups;
	shunt_index4.value = memory->index[0];
	shunt_index6.value = memory->index[1];
	shunt_index4.value_count = shunt_index6.value_count = memory->buckets;
	shunt_table4.value = memory->entries4;
	shunt_table6.value = memory->entries6;
	shunt_table4.value_count = shunt_table6.value_count = memory->entries;
	shunt_cold4.value = memory->cold[0];
	shunt_cold6.value = memory->cold[1];
	shunt_cold4.value_count = shunt_cold6.value_count = memory->entries;
	shunt_chunk.value = &chunk;
	shunt_chunk.value_count = 1;
	__builtin_memset(&shunt_usage, 0, sizeof(shunt_usage));
	__builtin_memset(shunt_sources, 0, sizeof(shunt_sources));
	__builtin_memset(shunt_opened, 0, sizeof(shunt_opened));
}

static __u64 placed(__u32 family, const union shunt_key *key, __u8 flags)
{
	__u64 hash = shunt_hash(family, key);

	return flags & SHUNT_FLOW_STATIC ? shunt_static_hash(family, key, hash) : hash;
}

int shunt_engine_insert(__u32 family, const void *bytes, const struct shunt_flow *flow, const __u8 *to, __u32 now)
{
	struct shunt_flow f = *flow;
	union shunt_key key;
	__u32 entry;

	if (family == 4) {
		__builtin_memcpy(&key, bytes, sizeof(key.v4));
		return shunt_insert(4, &key, placed(4, &key, f.flags), &f, to, now, &entry);
	}
	__builtin_memcpy(&key, bytes, sizeof(key.v6));
	return shunt_insert(6, &key, placed(6, &key, f.flags), &f, to, now, &entry);
}

struct shunt_flow *shunt_engine_find(__u32 family, const void *bytes)
{
	union shunt_key key;
	__u32 entry;

	if (family == 4) {
		__builtin_memcpy(&key, bytes, sizeof(key.v4));
		return shunt_find(4, &key, shunt_hash(4, &key), &entry);
	}
	__builtin_memcpy(&key, bytes, sizeof(key.v6));
	return shunt_find(6, &key, shunt_hash(6, &key), &entry);
}

/*
 * The shape of a packet. Usual packets have at most one tag. The steps below are compiled once for each usual shape,
 * with its bits as constants, and once for all other packets.
 */
enum shape {
	SHAPE_TCP = 1 << 0, /* else UDP */
	SHAPE_IPV6 = 1 << 1, /* else IPv4 */
	SHAPE_TAGGED = 1 << 2, /* one tag, else none */
	SHAPE_OTHER = 1 << 3,
};

static __always_inline __u32 family_of(enum shape shape)
{
	return shape & SHAPE_IPV6 ? 6 : 4;
}

/* What is known of a packet between two steps. */
struct work {
	union shunt_key key;
	struct shunt_packet p; /* of a usual packet only what described() reads */
	__u64 hash;
	const struct shunt_bucket *bucket; /* requested last */
	__u32 entry; /* of its flow, as XDP or a bucket names it */
	__u8 hinted; /* whether `entry` is valid; the key is compared later */
	__u8 known; /* whether XDP has found the flow, */
	__u8 shape; /* enum shape */
	__u8 family;
	__u32 arrived_ticks; /* and when */
};

/* The description of a usual packet. Its shape gives most fields as constants. */
static __always_inline struct shunt_packet described(const struct work *w, enum shape shape)
{
	struct shunt_packet p = {
		.tcp_position = shape & SHAPE_TCP ? w->p.tcp_position : 0,
		.class_and_ttl = w->p.class_and_ttl,
		.l2_bytes = shunt_l2_bytes(!!(shape & SHAPE_TAGGED)),
		.l3_bytes = w->p.l3_bytes,
		.wire_bytes = w->p.l3_bytes,
		.tags = !!(shape & SHAPE_TAGGED),
		.family = family_of(shape),
		.l4_proto = shape & SHAPE_TCP ? IPPROTO_TCP : IPPROTO_UDP,
	};

	return p;
}

static __always_inline void describe(struct work *w, const struct shunt_packet *p)
{
	w->p.tcp_position = p->tcp_position;
	w->p.class_and_ttl = p->class_and_ttl;
	w->p.l3_bytes = p->l3_bytes;
}

/* Requests the cache lines of an entry. Returns 0 if there is no such entry. */
static __always_inline int request_entry(__u32 family, __u32 number)
{
	const char *entry = (const char *)shunt_words_at(family, number);

	if (shunt_unlikely(!entry))
		return 0;
	__builtin_prefetch(entry, 1);
	__builtin_prefetch(entry + 64, 1);
	if (family == 6)
		__builtin_prefetch(entry + 128, 1);
	return 1;
}

static __always_inline void request_bucket(__u32 family, struct work *w, int second)
{
	w->bucket = shunt_bucket_at(family, shunt_bucket_of(w->hash, second));
	__builtin_prefetch(w->bucket);
}

/* Reads what XDP knows of a packet's flow, and requests the entry, or else the bucket. */
static __always_inline void read_id(__u32 family, struct shunt_frame *frame, struct work *w)
{
	struct id {
		__u32 entry;
		__u32 family;
		__u32 arrived_ticks;
	} __attribute__((packed, aligned(2))) *id = (void *)(frame->data - sizeof(*id)); /* struct shunt_flow_id */

	w->family = family;
	w->known = id->family == family;
	w->hinted = 0;
	/* Where a driver has no room for an id, the next frame in this memory has none. */
	id->family = 0;
	if (w->known) {
		w->entry = id->entry;
		w->arrived_ticks = id->arrived_ticks;
		w->hinted = request_entry(family, w->entry);
	}
	if (!w->hinted)
		request_bucket(family, w, 0);
}

/* The first step, from the IP header on. `p` describes what is before it. */
static __always_inline void parse(__u32 family, struct shunt_frame *frame, struct work *w, struct shunt_packet *p)
{
	enum shunt_reason why =
		shunt_parse_l3(family, frame->data + p->l2_bytes, frame->data_end, frame->ifindex, p, &w->key);

	if (shunt_likely(why == SHUNT_OK)) {
		w->hash = shunt_hash(family, &w->key);
		frame->order = w->hash;
		why = shunt_admit(p);
		if (shunt_likely(why == SHUNT_OK))
			read_id(family, frame, w);
	}
	frame->why = why;
}

static __always_inline void parse_usual(__u32 family, int tagged, struct shunt_frame *frame, struct work *w)
{
	struct shunt_packet p;

	shunt_untagged(&p);
	if (tagged)
		shunt_add_tag_in_frame(&p, shunt_tag_at(frame->data, 0));
	parse(family, frame, w, &p);
	describe(w, &p);
	w->shape = (p.l4_proto == IPPROTO_TCP ? SHAPE_TCP : 0) | (family == 6 ? SHAPE_IPV6 : 0) |
		   (tagged ? SHAPE_TAGGED : 0);
}

static void parse_other(struct shunt_frame *frame, struct work *w)
{
	struct shunt_hw_tag none = {};
	__u32 family;

	w->shape = SHAPE_OTHER;
	frame->why = shunt_parse_l2(frame->data, frame->data_end, none, &w->p, &family);
	if (frame->why != SHUNT_OK)
		return;
	if (family == 4)
		parse(4, frame, w, &w->p);
	else if (family == 6)
		parse(6, frame, w, &w->p);
	else
		frame->why = SHUNT_PROTOCOL;
}

/* The steps of a packet. Each requests the cache lines that the next one reads. */
static __always_inline void find_bucket(struct shunt_frame *frame, struct work *w)
{
	void *untagged = frame->data + shunt_l2_bytes(0), *tagged = frame->data + shunt_l2_bytes(1);
	__u32 family;

	frame->order = 0;
	frame->late = 0;
	if (shunt_unlikely(tagged > (void *)frame->data_end)) {
		parse_other(frame, w);
		return;
	}
	family = shunt_family_of(shunt_proto_before(untagged));
	if (shunt_likely(family == 4)) {
		parse_usual(4, 0, frame, w);
	} else if (family == 6) {
		parse_usual(6, 0, frame, w);
	} else {
		family = shunt_is_vlan(shunt_tag_at(frame->data, 0).tpid_be) ?
				 shunt_family_of(shunt_proto_before(tagged)) :
				 0;
		if (family == 4)
			parse_usual(4, 1, frame, w);
		else if (family == 6)
			parse_usual(6, 1, frame, w);
		else
			parse_other(frame, w);
	}
}

/* Requests the entry that a slot names for a hash. Returns 0 if it names none. */
static __always_inline int request_slot(__u32 family, struct work *w, __u32 slot)
{
	w->entry = shunt_slot_entry_for(w->hash, slot);
	w->hinted = request_entry(family, w->entry);
	return w->hinted;
}

/* Requests the entry that the bucket names, in the preferred slot first. Returns 0 if it names none. */
static __always_inline int request(__u32 family, struct work *w)
{
	const struct shunt_bucket *bucket = w->bucket;

	if (shunt_unlikely(!bucket))
		return 0;
	if (shunt_likely(request_slot(family, w, shunt_slot(bucket, shunt_way_of(w->hash)))))
		return 1;
	for (__u32 way = 0; way < SHUNT_WAYS; way++)
		if (request_slot(family, w, shunt_slot(bucket, way)))
			return 1;
	return 0;
}

/* Returns 1 if the first bucket does not name the entry. */
static __always_inline int find_entry(const struct shunt_frame *frame, struct work *w)
{
	if (frame->why != SHUNT_OK || w->hinted)
		return 0;
	if (shunt_likely(w->family == 4 ? request(4, w) : request(6, w)))
		return 0;
	request_bucket(w->family, w, 1);
	return 1;
}

static __always_inline void find_entry_late(const struct shunt_frame *frame, struct work *w)
{
	if (shunt_likely(frame->why != SHUNT_OK || w->hinted))
		return;
	if (w->family == 4)
		request(4, w);
	else
		request(6, w);
}

/* The flow of a packet. */
static __always_inline struct shunt_flow *flow_of(__u32 family, struct work *w, __u32 *entry)
{
	__u64 *words;

	if (shunt_likely(w->hinted)) {
		words = shunt_words_at(family, w->entry);
		*entry = w->entry;
		if (shunt_likely(words && shunt_same_key(family, words, &w->key)))
			return shunt_flow_at(family, words);
	}
	return shunt_find(family, &w->key, w->hash, entry);
}

/*
 * Whether conntrack has forgotten the connection while the packet waited for the engine. Linux would take the packet
 * for the first one of another connection. The flow itself may be gone since; a flow that went within two ticks was
 * removed for another reason.
 */
static __always_inline int waited_too_long(const struct work *w, const struct shunt_flow *f, __u32 now)
{
	if (!w->known)
		return 0;
	if (!f)
		return shunt_before(w->arrived_ticks + 2, now);
	return f->epoch == SHUNT_EPOCH_RETIRED && f->retired_why == SHUNT_CONNTRACK_GONE &&
	       shunt_before(w->arrived_ticks, f->retired_ticks);
}

static __always_inline enum shunt_reason rewrite(__u32 family, const struct shunt_packet *p, struct shunt_frame *frame,
						 struct work *w, __u64 reachable, __u64 jiffies)
{
	__u8 *l3 = frame->data + p->l2_bytes;
	__u32 have = frame->data_end - frame->data, want = p->l2_bytes + p->l3_bytes, entry, l2_bytes;
	struct shunt_flow *f = flow_of(family, w, &entry);
	enum shunt_reason why;
	__u16 out_slot;

	if (!f) {
		frame->late = waited_too_long(w, f, jiffies);
		return SHUNT_MISS;
	}
	why = shunt_decide(f, p, frame->data, &shunt_control, shunt_current_epoch(f), jiffies, 0);
	if (shunt_unlikely(why == SHUNT_REPROVE)) {
		/* One packet of a burst is punted, and not all of them. */
		f->reprove_at_ticks = jiffies + shunt_control.reprove_ticks;
		f->punt_due = 1;
		shunt_move_home(f, SHUNT_ENGINE_CPU);
	}
	if (shunt_unlikely(why != SHUNT_OK)) {
		frame->late = waited_too_long(w, f, jiffies);
		return why;
	}
	out_slot = *(volatile __u16 *)&f->out_slot;
	if (shunt_unlikely(out_slot >= SHUNT_EXTERNAL_PORTS_MAX || !(reachable >> out_slot & 1)))
		return SHUNT_PORT;
	if (shunt_unlikely(have < want || (family == 4 && !shunt_ipv4_header_good((void *)l3))))
		return SHUNT_BAD_HEADER;
	if (!shunt_is_summed(p, family, p->l4_proto, f, l3))
		return SHUNT_BAD_CHECKSUM;
	if (shunt_unlikely(shunt_control.flags & SHUNT_CONTROL_VERIFY_XDP) &&
	    !shunt_checksum_good(frame, p, family, f, l3, frame->data_end))
		return SHUNT_BAD_CHECKSUM;
	shunt_rewrite(l3, l3 + shunt_l3_size(family), family, p->l4_proto, f, shunt_new_addrs(f),
		      SHUNT_CHECKSUM_FINISHED);
	l2_bytes = shunt_l2_bytes(f->out_tags);
	frame->data_end = frame->data + shunt_frame_bytes(f, want, have);
	frame->data = l3 - l2_bytes;
	shunt_copy_l2(frame->data, f->l2, f->out_tags);
	frame->l3_bytes = p->l3_bytes;
	frame->out_slot = out_slot;
	frame->dscp = (p->class_bits & SHUNT_DSCP_MASK) >> 2;
	frame->mark = f->mark;
	f->tcp_position = p->tcp_position;
	shunt_count_flow(family, f, &entry, p->l3_bytes, jiffies);
	return SHUNT_OK;
}

static __always_inline enum shunt_reason rewrite_usual(enum shape shape, struct shunt_frame *frame, struct work *w,
						       __u64 reachable, __u64 jiffies)
{
	struct shunt_packet p = described(w, shape);

	return rewrite(family_of(shape), &p, frame, w, reachable, jiffies);
}

static __always_inline enum shunt_reason rewrite_any(struct shunt_frame *frame, struct work *w, __u64 reachable,
						     __u64 jiffies)
{
	/* Each case is compiled with its own constants. */
	switch (w->shape) {
	case 0:
		return rewrite_usual(0, frame, w, reachable, jiffies);
	case 1:
		return rewrite_usual(1, frame, w, reachable, jiffies);
	case 2:
		return rewrite_usual(2, frame, w, reachable, jiffies);
	case 3:
		return rewrite_usual(3, frame, w, reachable, jiffies);
	case 4:
		return rewrite_usual(4, frame, w, reachable, jiffies);
	case 5:
		return rewrite_usual(5, frame, w, reachable, jiffies);
	case 6:
		return rewrite_usual(6, frame, w, reachable, jiffies);
	case 7:
		return rewrite_usual(7, frame, w, reachable, jiffies);
	}
	return w->family == 4 ? rewrite(4, &w->p, frame, w, reachable, jiffies) :
				rewrite(6, &w->p, frame, w, reachable, jiffies);
}

/* The end of the block that begins at `from`; `from` itself if the block is outside of the batch. */
static __always_inline __s32 block_end(__s32 from, __s32 count)
{
	__s32 end = from + BLOCK < count ? from + BLOCK : count;

	return from < 0 ? from : end;
}

void shunt_engine_batch(struct shunt_frame *frames, __u32 count, __u64 reachable, __u64 jiffies)
{
	struct work work[SHUNT_BATCH];
	int late = 0;

	shunt_batch_ticks = jiffies;
	/* Each block of packets is one step ahead of the next block. */
	for (__s32 at = 0; at < (__s32)count + 3 * BLOCK; at += BLOCK) {
		__s32 end = block_end(at, count);

		for (__s32 i = at; i < end; i++)
			find_bucket(&frames[i], &work[i]);
		if (shunt_unlikely(late)) {
			end = block_end(at - 2 * BLOCK, count);
			for (__s32 i = at - 2 * BLOCK; i < end; i++)
				find_entry_late(&frames[i], &work[i]);
		}
		late = 0;
		end = block_end(at - BLOCK, count);
		for (__s32 i = at - BLOCK; i < end; i++)
			late |= find_entry(&frames[i], &work[i]);
		end = block_end(at - 3 * BLOCK, count);
		for (__s32 i = at - 3 * BLOCK; i < end; i++)
			if (shunt_likely(frames[i].why == SHUNT_OK))
				frames[i].why = rewrite_any(&frames[i], &work[i], reachable, jiffies);
	}
}
