// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "external/sched.h"

enum {
	NS_PER_US = 1000,
	NS_PER_S = 1000000000,
	QUANTUM = 1514, /* of the class of an invalid configuration */
};

void shunt_meter_set(struct shunt_bucket_meter *m, __u64 bytes_per_s, __u32 burst_bytes)
{
	m->bytes_per_s = bytes_per_s;
	m->burst_ns = bytes_per_s ? (__u64)burst_bytes * NS_PER_S / bytes_per_s : 0;
	m->rest = 0;
}

static int conforms(const struct shunt_bucket_meter *m, __u64 now_ns)
{
	return !m->bytes_per_s || m->due_ns <= now_ns + m->burst_ns;
}

/* The rest of each division counts for the next packet, so that no rate is rounded. */
static void charge(struct shunt_bucket_meter *m, __u32 bytes, __u64 now_ns)
{
	__u64 cost;

	if (!m->bytes_per_s)
		return;
	cost = (__u64)bytes * NS_PER_S + m->rest;
	if (m->due_ns < now_ns)
		m->due_ns = now_ns;
	m->due_ns += cost / m->bytes_per_s;
	m->rest = cost % m->bytes_per_s;
}

int shunt_police(struct shunt_policer *policer, __u32 bytes, __u64 now_ns)
{
	struct shunt_bucket_meter *m = &policer->meter;
	__u64 begin_ns = m->due_ns > now_ns ? m->due_ns : now_ns;

	/* All of the packet must fit the burst. */
	if (m->bytes_per_s && begin_ns + (__u64)bytes * NS_PER_S / m->bytes_per_s > now_ns + m->burst_ns) {
		policer->dropped_pkts++;
		return 0;
	}
	charge(m, bytes, now_ns);
	policer->passed_pkts++;
	return 1;
}

static int valid(const struct shunt_sched_config *config)
{
	if (!config->classes || config->classes > SHUNT_CLASSES || config->default_class >= config->classes)
		return 0;
	for (__u32 i = 0; i < config->classes; i++)
		if (config->class_config[i].priority >= SHUNT_CLASSES ||
		    config->class_config[i].quantum < SHUNT_QUANTUM_MIN ||
		    config->class_config[i].quantum > SHUNT_QUANTUM_MAX)
			return 0;
	for (__u32 i = 0; i < SHUNT_MARK_RULES && config->mark_rules[i].mask; i++)
		if (config->mark_rules[i].class_id >= config->classes)
			return 0;
	for (__u32 i = 0; i < SHUNT_DSCPS; i++)
		if (config->dscp_class[i] > config->classes)
			return 0;
	return 1;
}

/* Appends the queue of a class to that of another. */
static void move(struct shunt_sched *s, struct shunt_class *from, struct shunt_class *to)
{
	if (from->head == SHUNT_NO_ITEM)
		return;
	if (to->head == SHUNT_NO_ITEM)
		to->head = from->head;
	else
		s->items[to->tail].next = from->head;
	to->tail = from->tail;
	to->counters.backlog_bytes += from->counters.backlog_bytes;
	to->counters.backlog_pkts += from->counters.backlog_pkts;
	from->head = from->tail = SHUNT_NO_ITEM;
	from->counters.backlog_bytes = from->counters.backlog_pkts = 0;
}

int shunt_sched_configure(struct shunt_sched *s, const struct shunt_sched_config *config)
{
	if (!valid(config))
		return -1;
	s->config = *config;
	s->own_items = s->items_max / (2 * config->classes);
	shunt_meter_set(&s->meter, config->bytes_per_s, config->burst_bytes);
	for (__u32 i = config->classes; i < SHUNT_CLASSES; i++)
		move(s, &s->classes[i], &s->classes[config->default_class]);
	for (__u32 i = 0; i < SHUNT_CLASSES; i++)
		s->turn[i] = 0;
	return 0;
}

void shunt_sched_init(struct shunt_sched *s, const struct shunt_sched_config *config, struct shunt_queued *items,
		      __u32 items_max)
{
	__builtin_memset(s, 0, sizeof(*s));
	s->items = items;
	s->items_max = items_max;
	for (__u32 i = 0; i < items_max; i++)
		items[i].next = i + 1 < items_max ? i + 1 : SHUNT_NO_ITEM;
	s->free = items_max ? 0 : SHUNT_NO_ITEM;
	for (__u32 i = 0; i < SHUNT_CLASSES; i++)
		s->classes[i].head = s->classes[i].tail = SHUNT_NO_ITEM;
	/* One class without a limit, if the configuration is invalid. */
	s->config.classes = 1;
	s->config.class_config[0].quantum = QUANTUM;
	s->config.class_config[0].limit_bytes = 0xffffffff;
	shunt_sched_configure(s, config);
}

__u32 shunt_sched_class(const struct shunt_sched_config *config, __u8 dscp, __u32 mark)
{
	__u8 class_and_one = config->dscp_class[dscp % SHUNT_DSCPS];

	for (__u32 i = 0; i < SHUNT_MARK_RULES && config->mark_rules[i].mask; i++)
		if ((mark & config->mark_rules[i].mask) == config->mark_rules[i].mark)
			return config->mark_rules[i].class_id;
	return class_and_one ? (__u32)class_and_one - 1 : config->default_class;
}

/* Whether a class may have one more item: of its own, or of those for whoever comes first. */
static int has_item(const struct shunt_sched *s, const struct shunt_class *c)
{
	__u32 own = s->own_items;
	__u64 common = 0;

	if (s->free == SHUNT_NO_ITEM)
		return 0;
	if (c->counters.backlog_pkts < own)
		return 1;
	for (__u32 i = 0; i < s->config.classes; i++)
		if (s->classes[i].counters.backlog_pkts > own)
			common += s->classes[i].counters.backlog_pkts - own;
	return common < s->items_max - (__u64)own * s->config.classes;
}

int shunt_sched_enqueue(struct shunt_sched *s, __u64 handle, __u32 bytes, __u8 dscp, __u32 mark, __u64 now_ns)
{
	__u32 number = shunt_sched_class(&s->config, dscp, mark), at = s->free;
	struct shunt_class *c = &s->classes[number];

	if (!has_item(s, c) || c->counters.backlog_bytes + bytes > s->config.class_config[number].limit_bytes) {
		c->counters.dropped_full++;
		return 0;
	}
	if (bytes > s->largest_bytes)
		s->largest_bytes = bytes;
	s->free = s->items[at].next;
	s->items[at] =
		(struct shunt_queued){ .handle = handle, .since_ns = now_ns, .bytes = bytes, .next = SHUNT_NO_ITEM };
	if (c->head == SHUNT_NO_ITEM)
		c->head = at;
	else
		s->items[c->tail].next = at;
	c->tail = at;
	c->counters.backlog_bytes += bytes;
	c->counters.backlog_pkts++;
	return 1;
}

static void pop(struct shunt_sched *s, struct shunt_class *c, struct shunt_queued *item)
{
	__u32 at = c->head;

	*item = s->items[at];
	c->head = item->next;
	if (c->head == SHUNT_NO_ITEM)
		c->tail = SHUNT_NO_ITEM;
	c->counters.backlog_bytes -= item->bytes;
	c->counters.backlog_pkts--;
	s->items[at].next = s->free;
	s->free = at;
}

/* The interval divided by the square root of `drops`, which is at least 1. */
static __u64 until_next_drop(__u64 interval_ns, __u32 drops)
{
	__u64 square = (__u64)drops << 32, root = 0;

	for (__u64 bit = 1ULL << 31; bit; bit >>= 1)
		if ((root | bit) * (root | bit) <= square)
			root |= bit;
	return (interval_ns << 16) / root;
}

/* Whether CoDel's state lets the packet at the head be dropped: its delay has been too long for an interval. */
static int too_late(const struct shunt_class_config *config, struct shunt_class *c, __u32 largest_bytes, __u64 delay_ns,
		    __u64 now_ns)
{
	if (delay_ns < (__u64)config->target_us * NS_PER_US || c->counters.backlog_bytes <= largest_bytes) {
		c->above_since_ns = 0;
		return 0;
	}
	if (!c->above_since_ns) {
		c->above_since_ns = now_ns + (__u64)config->interval_us * NS_PER_US;
		return 0;
	}
	return now_ns >= c->above_since_ns;
}

/* Whether to drop the packet at the head now: RFC 8289, one packet at a time. */
static int codel_drops(const struct shunt_class_config *config, struct shunt_class *c, __u32 largest_bytes,
		       __u64 delay_ns, __u64 now_ns)
{
	__u64 interval_ns = (__u64)config->interval_us * NS_PER_US;
	int late = config->target_us && too_late(config, c, largest_bytes, delay_ns, now_ns);

	if (!late) {
		c->dropping = 0;
		return 0;
	}
	if (c->dropping) {
		if (now_ns < c->drop_next_ns)
			return 0;
		c->drops++;
		c->drop_next_ns += until_next_drop(interval_ns, c->drops);
		return 1;
	}
	c->dropping = 1;
	/* If dropping ended recently, go on at nearly the rate that was right then. */
	if (c->drops - c->drops_before > 1 && (__s64)(now_ns - c->drop_next_ns) < (__s64)(16 * interval_ns))
		c->drops -= c->drops_before;
	else
		c->drops = 1;
	c->drops_before = c->drops;
	c->drop_next_ns = now_ns + until_next_drop(interval_ns, c->drops);
	return 1;
}

/* The class that may send next; SHUNT_CLASSES if no packet is queued. */
static __u32 next_class(struct shunt_sched *s)
{
	__u32 best = SHUNT_CLASSES, at;

	for (__u32 i = 0; i < s->config.classes; i++)
		if (s->classes[i].head != SHUNT_NO_ITEM && s->config.class_config[i].priority < best)
			best = s->config.class_config[i].priority;
	if (best == SHUNT_CLASSES)
		return SHUNT_CLASSES;
	/* Each round adds to the deficit of a class with packets, so this ends. */
	for (at = s->turn[best] % s->config.classes;; at = (at + 1) % s->config.classes) {
		struct shunt_class *c = &s->classes[at];

		if (s->config.class_config[at].priority != best || c->head == SHUNT_NO_ITEM)
			continue;
		if (c->deficit > 0)
			break;
		c->deficit += s->config.class_config[at].quantum;
	}
	s->turn[best] = at;
	return at;
}

__u64 shunt_sched_wake_ns(const struct shunt_sched *s)
{
	return s->meter.due_ns > s->meter.burst_ns ? s->meter.due_ns - s->meter.burst_ns : 0;
}

enum shunt_sched_verdict shunt_sched_dequeue(struct shunt_sched *s, __u64 now_ns, struct shunt_queued *item)
{
	__u32 number = next_class(s);
	struct shunt_class *c = &s->classes[number % SHUNT_CLASSES];
	__s64 charged;
	__u64 delay_ns;

	if (number == SHUNT_CLASSES)
		return SHUNT_SCHED_EMPTY;
	if (!conforms(&s->meter, now_ns))
		return SHUNT_SCHED_WAIT;
	delay_ns = now_ns - s->items[c->head].since_ns;
	if (codel_drops(&s->config.class_config[number], c, s->largest_bytes, delay_ns, now_ns)) {
		pop(s, c, item);
		c->counters.dropped_codel++;
		return SHUNT_SCHED_DROPPED;
	}
	pop(s, c, item);
	charged = (__s64)item->bytes + s->config.overhead_bytes;
	if (charged < 0)
		charged = 0;
	charge(&s->meter, charged, now_ns);
	c->deficit -= item->bytes;
	/* A class that has nothing to send saves nothing for later. */
	if (c->head == SHUNT_NO_ITEM && c->deficit > 0)
		c->deficit = 0;
	c->counters.sent_pkts++;
	c->counters.sent_bytes += item->bytes;
	c->counters.delay_sum_ns += delay_ns;
	if (delay_ns > c->counters.delay_max_ns)
		c->counters.delay_max_ns = delay_ns;
	return SHUNT_SCHED_SENT;
}
