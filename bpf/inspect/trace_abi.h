/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data shared between the programs of `shunt trace` and their loader. Fixed width, no holes. The build of
 * crates/shunt-inspect makes the Rust twin. Times are CLOCK_MONOTONIC.
 */
#ifndef SHUNT_INSPECT_TRACE_ABI_H
#define SHUNT_INSPECT_TRACE_ABI_H

#include <linux/types.h>

enum {
	TRACE_SLOTS = 1024, /* packets that can be traced at once; a power of two */
	TRACE_EVENTS_MAX = 64, /* per packet; a power of two */
	TRACE_SOCKETS = 256, /* a power of two */
	TRACE_COMM_BYTES = 16,
	TRACE_NAME_BYTES = 32, /* names of rulesets and cgroups, cut */
	TRACE_THREADS = 1024, /* threads that are followed */
	TRACE_FILTERS = 32, /* selections of a plan */
};

/* Where a packet is. The time of a stage ends at its event and began at the event before. */
enum trace_stage {
	TRACE_SEND = 1, /* TCP's send call copies data of the packet's socket */
	TRACE_DRIVER = 2, /* a driver hands the packet to Linux */
	TRACE_RECEIVE = 3, /* netif_receive_skb: behind GRO, before tc */
	TRACE_QUEUE = 4, /* net_dev_queue: before tc egress and the qdisc */
	TRACE_START = 5, /* net_dev_start_xmit: the driver is called */
	TRACE_XMIT = 6, /* net_dev_xmit: the driver has returned */
	TRACE_FREED = 7, /* the packet's memory is free: transmitted, consumed, or dropped */
	TRACE_TCP = 8, /* tcp_probe: TCP takes the segment */
	TRACE_READY = 9, /* sk_data_ready: the reader is woken */
	TRACE_READ = 10, /* sock_recv_length: a receive call of the socket returns */
	TRACE_COPY = 11, /* skb_copy_datagram_iovec: a receive call starts to copy the packet's data */
	TRACE_HOOK = 16, /* + 2 * NF_INET_ hook: before all hooks of netfilter; + 1: behind all */
	TRACE_XDP_PREVIOUS = 32, /* the frame before this one was redirected */
	TRACE_XDP_ENTRY = 33,
	TRACE_XDP_DECIDED = 34, /* the XDP program returns */
	TRACE_XDP_REDIRECT = 35, /* the frame is in the egress driver's batch */
	TRACE_XDP_XMIT = 36, /* the egress driver has taken the batch */
	TRACE_PROBE = 40, /* a function of the kernel is called */
};

/* Why a record ended. */
enum trace_end {
	TRACE_DONE = 1, /* transmitted, or read by its receiver */
	TRACE_DROPPED = 2,
	TRACE_CONSUMED = 3, /* consumed before it was transmitted, such as an aggregate that is cut into segments */
	TRACE_VANISHED = 4, /* its memory is in use for another packet: merged by GRO, or freed without a tracepoint */
	TRACE_PASSED = 5, /* XDP gave the frame to Linux, or dropped it */
};

enum trace_flags {
	TRACE_LEFT = 1 << 0, /* a driver has transmitted the packet */
	TRACE_LOCAL_OUT = 1 << 1, /* sent by this machine */
	TRACE_ANSWER = 1 << 2, /* the first packet that came back after a traced one had been sent */
};

/* Which part of netfilter dropped the packet. */
enum trace_verdict {
	TRACE_BY_CONNTRACK = 1,
	TRACE_BY_CHAIN = 2, /* of nftables */
	TRACE_BY_TABLE = 3, /* of iptables */
};

/* As on the wire. An IPv4 address uses the first four bytes. */
struct trace_tuple {
	__u32 src_be[4];
	__u32 dst_be[4];
	__be16 sport_be;
	__be16 dport_be;
	__u8 family; /* 4, 6, or 0 if it is not IP */
	__u8 l4_proto;
	__u8 _pad[2];
};
_Static_assert(sizeof(struct trace_tuple) == 40, "trace_tuple is ABI");

/* Tuples to trace, in either direction. */
struct trace_filter {
	struct trace_tuple tuple; /* ports, family and protocol of 0 match any */
	__u32 src_mask_be[4];
	__u32 dst_mask_be[4];
};
_Static_assert(sizeof(struct trace_filter) == 72, "trace_filter is ABI");

/* Which packets to trace. Constant while the programs run. */
struct trace_plan {
	__u32 netns; /* inode number of the network namespace */
	__u32 ifindex; /* trace what arrives or leaves here; 0: everywhere */
	__u32 sample; /* trace one packet in this number */
	__u32 filters; /* trace tuples that one of so many filters has; 0: all */
	__u32 xdp_entry; /* 1: TRACE_XDP_ENTRY is available */
	__u32 _pad;
	struct trace_filter filter[TRACE_FILTERS];
};
_Static_assert(sizeof(struct trace_plan) == 24 + 72 * TRACE_FILTERS, "trace_plan is ABI");

/* The kernel's functions at which packets are seen. Constant while the program runs. */
struct trace_probes {
	__u16 register_at[6]; /* offsets in struct pt_regs of the registers with the first arguments */
	__u32 window; /* record functions that are called in this stage, before its next event */
};
_Static_assert(sizeof(struct trace_probes) == 16, "trace_probes is ABI");

/* Tells functions apart in attach cookies: the argument that is the skb, above the number of the function. */
enum { TRACE_COOKIE_NUMBER_BITS = 16 };

struct trace_event {
	__u32 after_ns; /* since the record began */
	__u16 cpu;
	__u16 probe; /* TRACE_PROBE: number of the function */
	__u32 stage; /* enum trace_stage */
	__u32 thread; /* the current one; 0: idle */
	__u8 comm[TRACE_COMM_BYTES]; /* name of the current thread */
};
_Static_assert(sizeof(struct trace_event) == 32, "trace_event is ABI");

/* A packet. Only the events in use are copied to user space. */
struct trace_record {
	__u64 began_ns;
	struct trace_tuple in; /* where the record began */
	struct trace_tuple out; /* as it was queued to a driver; family 0 if it was not */
	__u32 in_ifindex; /* 0 if sent by this machine */
	__u32 out_ifindex;
	__u32 bytes; /* from the L3 header on */
	__u32 flags; /* enum trace_flags */
	__u32 position; /* enum trace_stage of the last event but functions */
	__u32 end; /* enum trace_end */
	__u32 reason; /* TRACE_DROPPED: enum skb_drop_reason */
	__u32 events;
	__u32 lost; /* events that had no room */
	__u32 slot; /* index into trace_keys */
	__u32 verdict; /* enum trace_verdict */
	__u32 _pad;
	__u8 qdisc[TRACE_COMM_BYTES]; /* kind of the root qdisc to which the packet was given */
	__u8 table[TRACE_NAME_BYTES]; /* TRACE_BY_CHAIN: of nftables; TRACE_BY_TABLE: of iptables */
	__u8 chain[TRACE_NAME_BYTES];
	struct trace_event event[TRACE_EVENTS_MAX];
};
_Static_assert(sizeof(struct trace_record) == 216 + 32 * TRACE_EVENTS_MAX, "trace_record is ABI");

/* What was lost. */
struct trace_losses {
	__u64 busy; /* packets not traced: their slot was in use */
	__u64 ring_full; /* records that did not fit the ring */
};
_Static_assert(sizeof(struct trace_losses) == 16, "trace_losses is ABI");

enum trace_switch_kind {
	TRACE_SWITCH = 1, /* `from` leaves the CPU, and `to` gets it */
	TRACE_WAKE = 2, /* `from` wakes `to` */
	TRACE_SOFTIRQ = 3, /* a softirq ran for took_ns until now, while `from` had the CPU */
};

enum trace_switch_flags {
	TRACE_RUNNABLE = 1 << 0, /* SWITCH: `from` would have run on */
	TRACE_THROTTLED = 1 << 1, /* SWITCH: the cgroup of `from` has used up its CPU time */
	TRACE_FOREIGN = 1 << 2, /* SOFTIRQ: the device belongs to another network namespace */
};

/* What happened to a thread that is followed, or on any CPU while such a thread waits for one. */
struct trace_switch {
	__u64 at_ns;
	__u64 took_ns;
	__u32 kind; /* enum trace_switch_kind */
	__u32 flags; /* enum trace_switch_flags */
	__u32 from;
	__u32 to;
	__u32 from_process;
	__u32 to_process;
	__s32 call; /* SWITCH, WAKE: the system call in which `from` is; negative: none */
	__u32 cpu;
	__u8 from_comm[TRACE_COMM_BYTES];
	__u8 to_comm[TRACE_COMM_BYTES];
	__u8 cgroup[TRACE_NAME_BYTES]; /* TRACE_THROTTLED: its name */
	__u8 device[TRACE_COMM_BYTES]; /* SOFTIRQ: at least three in four packets came from here; empty: none did */
	__u32 vector; /* SOFTIRQ: its number, in the order of /proc/softirqs */
	__u32 _pad;
};
_Static_assert(sizeof(struct trace_switch) == 136, "trace_switch is ABI");

#endif
