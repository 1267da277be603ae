// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Runs the engine's batch and scheduler on vectors from standard input, without libc: `cargo xtask companion` compares
 * the results with those of the build machine. System calls stand in for a companion core's mailboxes.
 */
#include "external/engine.h"

enum op {
	OP_CONTROL = 1, /* struct shunt_control */
	OP_FLOW = 2, /* struct flow_op */
	OP_FRAME = 3, /* struct frame_op, bytes; answered by a struct frame_answer, bytes */
	OP_SCHEDULER = 4, /* struct shunt_sched_config */
	OP_ENQUEUE = 5, /* struct enqueue_op; answered by a __u32 */
	OP_DEQUEUE = 6, /* a __u64 of time; answered by a struct dequeue_answer */
	OP_CONFIGURE = 7, /* struct shunt_sched_config, for the scheduler that runs; answered by a __u32 */
	OP_POLICE = 8, /* struct police_op; answered by a __u32 */
};

struct flow_op {
	__u32 family;
	__u8 key[48];
	__u32 _pad;
	struct shunt_flow flow;
	__u8 to[32];
};

struct frame_op {
	__u64 reachable;
	__u64 jiffies;
	__u32 ifindex;
	__u32 bytes;
};

struct frame_answer {
	__u32 why;
	__u32 bytes; /* 0 unless the frame was rewritten */
};

struct enqueue_op {
	__u64 handle;
	__u64 now_ns;
	__u32 bytes;
	__u32 dscp;
	__u32 mark;
	__u32 _pad;
};

struct police_op {
	__u64 bytes_per_s; /* set before the packet; 0 leaves the policer as it is */
	__u64 now_ns;
	__u32 burst_bytes;
	__u32 bytes;
};

struct dequeue_answer {
	__u64 handle; /* of a packet that was sent or dropped */
	__u64 wake_ns; /* if the shaper waits */
	__u32 verdict;
	__u32 _pad;
};

enum { ENTRIES = 1024, BUCKETS = 512, ITEMS = 256, LONGEST = 2048 };

static __u32 groups[SHUNT_GROUPS];
static struct shunt_bucket index4[BUCKETS], index6[BUCKETS];
static struct shunt_entry4 entries4[ENTRIES];
static struct shunt_entry6 entries6[ENTRIES];
static struct shunt_cold cold4[ENTRIES], cold6[ENTRIES];
static struct shunt_sched sched;
static struct shunt_queued items[ITEMS];
static __u8 buffer[64 + LONGEST] __attribute__((aligned(64)));

#if defined(__arm__)
static long call(long number, long a, long b, long c)
{
	register long r7 __asm__("r7") = number;
	register long r0 __asm__("r0") = a;
	register long r1 __asm__("r1") = b;
	register long r2 __asm__("r2") = c;

	__asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
	return r0;
}

enum { CALL_EXIT = 1, CALL_READ = 3, CALL_WRITE = 4 };
#elif defined(__riscv)
static long call(long number, long a, long b, long c)
{
	register long a7 __asm__("a7") = number;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
	return a0;
}

enum { CALL_EXIT = 93, CALL_READ = 63, CALL_WRITE = 64 };
#else
#error "no system calls for this architecture"
#endif

/* The compiler calls these two for structures. */
void *memcpy(void *to, const void *from, __SIZE_TYPE__ bytes)
{
	for (__SIZE_TYPE__ i = 0; i < bytes; i++)
		((volatile __u8 *)to)[i] = ((const __u8 *)from)[i];
	return to;
}

void *memset(void *to, int value, __SIZE_TYPE__ bytes)
{
	for (__SIZE_TYPE__ i = 0; i < bytes; i++)
		((volatile __u8 *)to)[i] = value;
	return to;
}

static void __attribute__((noreturn)) leave(int status)
{
	call(CALL_EXIT, status, 0, 0);
	__builtin_unreachable();
}

/* Returns 0 at the end of the input. */
static int get(void *to, __u32 bytes)
{
	for (__u32 got = 0; got < bytes;) {
		long more = call(CALL_READ, 0, (long)((__u8 *)to + got), bytes - got);

		if (more <= 0) {
			if (got)
				leave(2);
			return 0;
		}
		got += more;
	}
	return 1;
}

static void answer(const void *from, __u32 bytes)
{
	for (__u32 sent = 0; sent < bytes;) {
		long more = call(CALL_WRITE, 1, (long)((const __u8 *)from + sent), bytes - sent);

		if (more <= 0)
			leave(3);
		sent += more;
	}
}

static void run_frame(void)
{
	static __u32 frames;
	struct frame_op op;
	struct frame_answer result;
	struct shunt_frame frame;

	get(&op, sizeof(op));
	if (op.bytes > LONGEST)
		leave(4);
	/* The IP header is at a multiple of four. */
	frame = (struct shunt_frame){ .data = buffer + 32 + 2 + frames++ % 4 * 4, .ifindex = op.ifindex };
	frame.data_end = frame.data + op.bytes;
	get(frame.data, op.bytes);
	shunt_engine_batch(&frame, 1, op.reachable, op.jiffies);
	result.why = frame.why;
	result.bytes = frame.why ? 0 : frame.data_end - frame.data;
	answer(&result, sizeof(result));
	answer(frame.data, result.bytes);
}

static void run_flow(void)
{
	static struct flow_op op;

	get(&op, sizeof(op));
	if (shunt_engine_insert(op.family, op.key, &op.flow, op.to, 0))
		leave(5);
}

static void run_enqueue(void)
{
	struct enqueue_op op;
	__u32 accepted;

	get(&op, sizeof(op));
	accepted = shunt_sched_enqueue(&sched, op.handle, op.bytes, op.dscp, op.mark, op.now_ns);
	answer(&accepted, sizeof(accepted));
}

static void run_configure(void)
{
	static struct shunt_sched_config config;
	__u32 changed;

	get(&config, sizeof(config));
	changed = !shunt_sched_configure(&sched, &config);
	answer(&changed, sizeof(changed));
}

static void run_police(void)
{
	static struct shunt_policer policer;
	struct police_op op;
	__u32 passed;

	get(&op, sizeof(op));
	if (op.bytes_per_s)
		shunt_meter_set(&policer.meter, op.bytes_per_s, op.burst_bytes);
	passed = shunt_police(&policer, op.bytes, op.now_ns);
	answer(&passed, sizeof(passed));
}

static void run_dequeue(void)
{
	struct dequeue_answer result = {};
	struct shunt_queued item = {};
	__u64 now_ns;

	get(&now_ns, sizeof(now_ns));
	result.verdict = shunt_sched_dequeue(&sched, now_ns, &item);
	if (result.verdict == SHUNT_SCHED_WAIT)
		result.wake_ns = shunt_sched_wake_ns(&sched);
	result.handle = item.handle;
	answer(&result, sizeof(result));
}

void __attribute__((noreturn, used)) run(void)
{
	static struct shunt_sched_config config;
	static struct shunt_control control;
	const struct shunt_memory memory = {
		.control = &control,
		.groups = groups,
		.index = { index4, index6 },
		.entries4 = entries4,
		.entries6 = entries6,
		.cold = { cold4, cold6 },
		.buckets = BUCKETS,
		.entries = ENTRIES,
	};
	__u32 op;

	shunt_engine_tables(&memory);
	while (get(&op, sizeof(op))) {
		if (op == OP_CONTROL)
			get(&control, sizeof(control));
		else if (op == OP_FLOW)
			run_flow();
		else if (op == OP_FRAME)
			run_frame();
		else if (op == OP_SCHEDULER && get(&config, sizeof(config)))
			shunt_sched_init(&sched, &config, items, ITEMS);
		else if (op == OP_ENQUEUE)
			run_enqueue();
		else if (op == OP_DEQUEUE)
			run_dequeue();
		else if (op == OP_CONFIGURE)
			run_configure();
		else if (op == OP_POLICE)
			run_police();
		else
			leave(6);
	}
	leave(0);
}

/* The ABIs want an aligned stack; RISC-V code expects its global pointer, too. */
#if defined(__riscv)
__asm__(".globl _start\n_start:\n.option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
	"andi sp, sp, -16\ncall run\n");
#else
__asm__(".globl _start\n_start:\nbic sp, sp, #7\nbl run\n");
#endif
