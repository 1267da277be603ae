/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sessions of PPPoE. tc_watch writes them: a packet that was seen to leave a ppp port, and then an Ethernet port,
 * shows which header the packets of the ppp port have there. XDP uses them while the daemon lets it send to the ppp
 * port.
 */
#ifndef SHUNT_SESSIONS_H
#define SHUNT_SESSIONS_H

#include "include/table/maps.h"

/* By the ifindex of the ppp port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SHUNT_SESSIONS_MAX);
	__type(key, __u32);
	__type(value, struct shunt_session);
} shunt_sessions SEC(".maps");

/* The ifindex of the ppp port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SHUNT_SESSIONS_MAX);
	__type(key, struct shunt_session_key);
	__type(value, __u32);
} shunt_session_ports SEC(".maps");

static __always_inline struct shunt_session_key shunt_session_key(const struct shunt_session *s)
{
	struct shunt_session_key key = { .below = s->below, .session_be = shunt_session_number(s) };
	__u16 tags[SHUNT_TAGS_MAX];

	shunt_key_tags_from_l2(s->header, s->tags, tags);
	key.tag = tags[0];
	return key;
}

/*
 * The ifindex of the ppp port of a packet that has come in by the port `below`, if it is in a session, by its number
 * alone; 0 if it is not. `p` has what shunt_parse_l2() has found. `header` is behind that, and in the frame if the
 * result is not 0.
 */
static __always_inline __u32 shunt_session_port(const struct shunt_pppoe *header, void *end, __u32 below,
						const struct shunt_packet *p, struct shunt_session_key *key)
{
	__u16 tags[SHUNT_TAGS_MAX];
	__u32 *ppp;

	if (!shunt_is_pppoe(header, end) || p->tags > 1)
		return 0;
	shunt_key_tags(tags, p);
	*key = (struct shunt_session_key){ .below = below, .tag = tags[0], .session_be = header->session_be };
	ppp = bpf_map_lookup_elem(&shunt_session_ports, key);
	return ppp ? *ppp : 0;
}

/* The session of a ppp port, if XDP may use it: a packet was seen in it lately. */
static __always_inline struct shunt_session *shunt_session_of(__u32 ppp, __u64 now)
{
	struct shunt_session *s = bpf_map_lookup_elem(&shunt_sessions, &ppp);
	const struct shunt_port *port = shunt_port_of(ppp);

	if (!s || !port || !(port->flags & SHUNT_PORT_XDP_OUT) || now - s->proved_ticks > shunt_control.prove_ticks)
		return 0;
	return s;
}

#endif
