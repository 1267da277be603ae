// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Run by the daemon, not by packets: walks the flow tables, retires what is idle, removes what was retired. */
#include "include/watch.h"

struct bpf_map;

enum {
	/* Long after any CPU that found the flow has let go of it. */
	SHUNT_REMOVE_MS = 1000,
};

static __always_inline int sweep_one(struct shunt_flow *f, struct shunt_sweep *s)
{
	if (f->flags & SHUNT_FLOW_STATIC) {
		s->statics++;
		return 0;
	}
	if (f->epoch != SHUNT_EPOCH_RETIRED && (s->all || s->now_ns - f->seen_ns > s->idle_ns))
		shunt_retire(f, s->now_ns);
	if (f->epoch == SHUNT_EPOCH_RETIRED) {
		if (shunt_ms(s->now_ns) - f->retired_ms >= SHUNT_REMOVE_MS) {
			s->deleted++;
			return 1;
		}
		s->retired++;
	} else if (f->state == SHUNT_FLOW_ACTIVE) {
		s->active++;
	} else {
		s->pending++;
	}
	return 0;
}

static long sweep_flow4(struct bpf_map *map, const void *key, struct shunt_flow *f, struct shunt_sweep *s)
{
	(void)map;
	if (sweep_one(f, s))
		bpf_map_delete_elem(&shunt_flows4, key);
	return 0;
}

static long sweep_flow6(struct bpf_map *map, const void *key, struct shunt_flow *f, struct shunt_sweep *s)
{
	(void)map;
	if (sweep_one(f, s))
		bpf_map_delete_elem(&shunt_flows6, key);
	return 0;
}

SEC("syscall")
int shunt_sweep_flows(struct shunt_sweep *args)
{
	struct shunt_sweep s = *args;

	bpf_for_each_map_elem(&shunt_flows4, sweep_flow4, &s, 0);
	bpf_for_each_map_elem(&shunt_flows6, sweep_flow6, &s, 0);
	args->active = s.active;
	args->pending = s.pending;
	args->retired = s.retired;
	args->statics = s.statics;
	args->deleted = s.deleted;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
