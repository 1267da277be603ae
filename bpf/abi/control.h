/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The control block, the ports and their counters. */
#ifndef SHUNT_ABI_CONTROL_H
#define SHUNT_ABI_CONTROL_H

#include <linux/types.h>
#include "abi/sizes.h"

enum shunt_port_flags {
	SHUNT_PORT_XDP_OUT = 1 << 1, /* XDP may redirect to this port: the driver can, and the qdisc is not in use */
	SHUNT_PORT_PARTIAL = 1 << 2, /* ingress frames may have CHECKSUM_PARTIAL (veth, tap, virtio) */
	SHUNT_PORT_CAPTURED = 1 << 3, /* learn nothing that arrives or leaves here */
	SHUNT_PORT_FILTERED = 1 << 4, /* learn nothing that arrives here */
	SHUNT_PORT_FILTERED_OUT = 1 << 5, /* learn nothing that leaves here */
	SHUNT_PORT_BRIDGED = 1 << 6, /* bridged traffic that arrives here may be learned */
	SHUNT_PORT_UNTRACKED4 = 1 << 7, /* conntrack does not see bridged IPv4 */
	SHUNT_PORT_UNTRACKED6 = 1 << 8, /* conntrack does not see bridged IPv6 */
	SHUNT_PORT_XDP_IN = 1 << 9, /* Shunt's XDP program runs on this port */
	SHUNT_PORT_XDP_FRAGS = 1 << 10, /* the driver accepts redirected multi-buffer frames */
	SHUNT_PORT_FLOODS_UNSEEN = 1 << 11, /* a bridge may flood packets to devices that are no ports, too */
	SHUNT_PORT_EXTERNAL = 1 << 12, /* the external engine serves this port */
	SHUNT_PORT_PACED = 1 << 13, /* a qdisc of this port treats packets by the socket that they belong to */
	SHUNT_PORT_NO_L2 = 1 << 14, /* packets have no header before the IP header: ppp, WireGuard, tun, ... */
};

enum shunt_control_flags {
	SHUNT_CONTROL_LEARN = 1 << 0,
	SHUNT_CONTROL_UDP_UNREPLIED = 1 << 1, /* learn UDP before the first reply */
	SHUNT_CONTROL_HOLD_TCP4 = 1 << 2, /* learn no TCP over IPv4: the ruleset must see every packet */
	SHUNT_CONTROL_HOLD_TCP6 = 1 << 3,
	SHUNT_CONTROL_TRACE = 1 << 4, /* a reader of shunt_traces is present */
	SHUNT_CONTROL_STATICS = 1 << 5, /* the table has static flows */
	SHUNT_CONTROL_VERIFY_TC = 1 << 6, /* tc verifies L4 checksums of short packets, unless the driver did */
	SHUNT_CONTROL_VERIFY_XDP = 1 << 7, /* XDP verifies L4 checksums of short packets */
	SHUNT_CONTROL_VERIFY_LONG = 1 << 8, /* verify longer packets, too */
	SHUNT_CONTROL_SURVEY = 1 << 9, /* tc counts the kinds of packets that ports receive */
	SHUNT_CONTROL_HOLD_UDP4 = 1 << 10, /* learn no UDP over IPv4 */
	SHUNT_CONTROL_HOLD_UDP6 = 1 << 11,
	SHUNT_CONTROL_HOLD_NEW4 = 1 << 12, /* learn UDP over IPv4 only after the first reply */
	SHUNT_CONTROL_HOLD_NEW6 = 1 << 13,
	SHUNT_CONTROL_FINALS = 1 << 14, /* a reader of shunt_finals is present */
	SHUNT_CONTROL_REST = 1 << 15, /* keep no candidates, wake the daemon: ports may lack the egress program */
};

struct shunt_port {
	__u16 slot; /* index into the counters and the devmap */
	__u16 flags; /* enum shunt_port_flags */
	__u32 ifindex;
};
_Static_assert(sizeof(struct shunt_port) == 8, "shunt_port is ABI");

/* A set of ports: bit N % 64 of word N / 64 for the port in slot N. */
struct shunt_slots {
	__u64 words[SHUNT_PORTS_MAX / 64];
};
_Static_assert(sizeof(struct shunt_slots) == 128, "shunt_slots is ABI");

/* Where XDP sends the frames of a port: the kernel's struct bpf_devmap_val. */
struct shunt_xdp_exit {
	__u32 ifindex;
	__u32 program; /* descriptor of one that runs for each frame before the driver gets it; 0: none */
};
_Static_assert(sizeof(struct shunt_xdp_exit) == 8, "shunt_xdp_exit is ABI");

/* Ports, without a hash look-up. */
struct shunt_port_cache {
	struct shunt_port by_ifindex[SHUNT_PORTS_MAX]; /* by the low bits of the ifindex; on collision, the last port */
	__u32 ifindex[SHUNT_PORTS_MAX]; /* by slot; 0 if the slot is free */
};
_Static_assert(sizeof(struct shunt_port_cache) == 12 * 1024, "shunt_port_cache is ABI");

/* Per port and CPU. Packets as the hook sees them: a GRO or GSO aggregate is one. Bytes from the L3 header on. */
struct shunt_counters {
	__u64 xdp_pkts; /* forwarded by XDP */
	__u64 xdp_bytes;
	__u64 tc_pkts; /* forwarded by tc */
	__u64 tc_bytes;
	__u64 slow_pkts; /* passed to Linux */
	__u64 slow_bytes;
	__u64 dropped_pkts;
	__u64 learned; /* actions installed */
	__u64 proved; /* actions renewed */
	__u64 retired; /* actions retired */
	__u64 surveyed_pkts; /* during surveys: packets received; an aggregate counts as its segments */
	__u64 aggregated_pkts; /* those that arrived in aggregates */
	__u64 copied_pkts; /* those in buffers that native XDP of a virtual device would have to copy */
	__u64 external_pkts; /* forwarded by the external engine, which counts in struct shunt_external */
	__u64 external_bytes;
	__u64 sampled_bytes; /* of packets that were sent to Linux for SHUNT_COST_SAMPLE */
	__u64 sampled_frames; /* those packets; an aggregate counts as its segments */
	__u64 reasons[SHUNT_REASONS_MAX]; /* by enum shunt_reason */
};
_Static_assert(sizeof(struct shunt_counters) == 136 + 8 * 128, "shunt_counters is ABI");

/* The control block. A single element, written by the daemon; the programs write epoch and heartbeat_ticks as well. */
struct shunt_control {
	__u32 abi; /* SHUNT_ABI_VERSION */
	__u32 epoch; /* actions of another epoch are stale */
	__u64 heartbeat_ticks; /* all 64 bits of jiffies: no wrap, so a dead daemon stays dead */
	__u32 heartbeat_max_ticks;
	__u32 reprove_ticks; /* interval between proofs of a flow */
	__u32 prove_ticks; /* how long a proof lasts */
	__u32 learn_udp_pkts; /* learn from this packet of a direction on */
	__u32 learn_tcp_pkts;
	__u32 flags; /* enum shunt_control_flags */
	__u32 bucket_mask; /* buckets of an index, minus one */
	__u32 max_flows; /* per family */
	__u64 seed; /* of the hash */
	__u32 ticks_per_s; /* the kernel's HZ */
	__u32 exclude_mark; /* learn nothing from packets with this mark, under exclude_mark_mask */
	__u32 exclude_mark_mask; /* 0 excludes nothing */
	__u32 exclude_ct_mark; /* learn nothing from connections with this mark, under exclude_ct_mark_mask */
	__u32 exclude_ct_mark_mask; /* 0 excludes nothing */
	__u32 netns; /* inode number of the ports' network namespace */
	__u32 mark_mask; /* lines of shunt_marks, minus one */
	__u32 rule_changes; /* counts the changes that may make shunt_sets or shunt_path untrue; written by the programs */
	__u32 sets_at; /* value of rule_changes when the rules behind shunt_sets were read */
	__u32 station_moves; /* counts the changes of a bridge's stations that ended flows; written by the programs */
	__u32 off_rules; /* rules in shunt_off, whose connections teach nothing */
	__u32 path_at; /* rule_changes, plus one, when the rules behind shunt_path were read; 0 if they were not */
	/*
	 * While the slow path is sampled, heartbeat_ticks is 0, so that only packets without a heartbeat look here. All
	 * 64 bits of jiffies.
	 */
	__u64 sample_until_ticks; /* when the sample ends by itself; 0 if there is none */
	__u64 sample_beat_ticks; /* the daemon's heartbeat meanwhile; later, an older one than heartbeat_ticks */
};
_Static_assert(sizeof(struct shunt_control) == 120, "shunt_control is ABI");

#endif
