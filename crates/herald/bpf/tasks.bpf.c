// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Two programs: `tasks`, an iterator, tells of every thread of the host, `lately` of every one that did anything lately; one record each, as
// crates/herald/src/bpf.rs has it too. Most threads of most hosts sleep. What is asked of all of them ten times a second comes out of memory that nobody
// has touched since, so `lately` goes along the kernel's own lists, counts nobody's references and reads a few fields.
//
// No header is included. Of the kernel's structures only those fields are declared that are read; where they are, the loader finds out
// from the kernel's own type information (CO-RE). `ci/bpf.sh build` compiles this, `ci/bpf.sh check` holds the committed object to it.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))
#define exists(field) __builtin_preserve_field_info(field, 2)

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
struct seq_file;
static long (*const bpf_seq_write)(struct seq_file *to, const void *from, u32 size) = (void *)127;

struct kernfs_node {
	u64 id;
} RELOCATED;

struct cgroup {
	struct kernfs_node *kn;
} RELOCATED;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} RELOCATED;

struct autogroup {
	u64 id;
} RELOCATED;

struct task_group {
	struct cgroup_subsys_state css;
	struct autogroup *autogroup;
} RELOCATED;

struct rq {
	u64 clock;
	u64 clock_task;
} RELOCATED;

struct cfs_rq {
	struct rq *rq;
} RELOCATED;

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
} RELOCATED;

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
} RELOCATED;

struct cpumask {
	unsigned long bits[1];
} RELOCATED;

struct task_struct {
	int on_cpu;
	int on_rq;
	int static_prio;
	u32 policy;
	int nr_cpus_allowed;
	struct cpumask *cpus_ptr;
	int pid;
	int tgid;
	u64 start_boottime;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
	char comm[16];
} RELOCATED;

struct bpf_iter_meta {
	struct seq_file *seq;
} RELOCATED;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} RELOCATED;

struct record {
	u32 pid;
	u32 tid;
	u64 started_ns;
	u64 run_ns;
	u64 wait_ns;
	// The number of its group; the highest bit tells autogroups from cgroups.
	u64 group;
	// The first CPUs that it may use, as bits.
	u64 cpus;
	u32 cpus_allowed;
	u32 policy;
	int nice;
	// Whether it runs or waits.
	u32 ready;
	char comm[16];
};

// The run queue of the CPU on which a thread is, whatever its policy. (The symbol `runqueues` has an address for BPF only on kernels with
// CONFIG_KALLSYMS_ALL.)
#define queue_of(task) ((task)->se.cfs_rq->rq)

static inline __attribute__((always_inline)) void note(struct record *record, struct task_struct *task)
{
	record->pid = task->tgid;
	record->tid = task->pid;
	record->started_ns = task->start_boottime;
	record->policy = task->policy;
	record->nice = task->static_prio - 120;
	record->cpus_allowed = task->nr_cpus_allowed;
	record->cpus = task->cpus_ptr->bits[0];

	// Neither counter tells what goes on now: a wait is added when it is over, a run at the next tick. Both began at times of the
	// clock of the run queue, which is not that of anything else.
	u64 run_ns = task->se.sum_exec_runtime, wait_ns = task->sched_info.run_delay;
	u64 queued = task->sched_info.last_queued;
	int runs = task->on_cpu;
	if (queued || runs) {
		struct rq *rq = queue_of(task);
		u64 now = rq->clock, now_task = rq->clock_task, began = task->se.exec_start;
		if (queued && now > queued)
			wait_ns += now - queued;
		else if (!queued && now_task > began)
			run_ns += now_task - began;
	}
	record->run_ns = run_ns;
	record->wait_ns = wait_ns;
	record->ready = runs || queued;

	struct task_group *group = task->sched_task_group;
	if (exists(group->autogroup) && group->autogroup)
		record->group = group->autogroup->id | 1ULL << 63;
	else
		record->group = group->css.cgroup->kn->id;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), task->comm);
}

SEC("iter/task")
int tasks(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	if (!task)
		return 0;
	struct record record = {};
	note(&record, task);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}

// Whoever has run so lately is told of each time, in the clock of its run queue, which stands still while its CPU is idle: two and a half
// seconds or longer.
#define LATELY 2500000000ULL
#define CHUNK 64
#define CHUNKS 128
// Of more threads than that, not all are looked at: nothing else happens on this CPU meanwhile.
#define MOST_TASKS 32768

// Where records are told, a chunk to be read at once.
struct chunk {
	struct record records[CHUNK];
};

struct {
	int (*type)[2]; // BPF_MAP_TYPE_ARRAY
	int (*max_entries)[CHUNKS];
	u32 *key;
	struct chunk *value;
} told SEC(".maps");

// What a run comes to, all zero before: how many records there are, and, so that one who sleeps and is ended is missed, how many threads, and the sum of their numbers.
struct tally {
	u32 told;
	u32 tasks;
	u64 numbers;
};

// Since Linux 6.7; before that `lately` is not loaded.
#define KERNELS SEC(".ksyms") __attribute__((weak))
struct bpf_iter_task {
	u64 opaque[3];
};
#define ALL_THREADS 1
extern void bpf_rcu_read_lock(void) KERNELS;
extern void bpf_rcu_read_unlock(void) KERNELS;
extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, u32 flags) KERNELS;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) KERNELS;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) KERNELS;

SEC("syscall")
int lately(struct tally *tally)
{
	struct task_struct *task;
	struct bpf_iter_task it;
	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, 0, ALL_THREADS);
	// All counts are in the tally, of which the verifier knows nothing: else each of their values were another state to it.
	while ((task = bpf_iter_task_next(&it))) {
		u32 number = task->pid;
		if (!number)
			continue; // the idle task
		if (++tally->tasks > MOST_TASKS)
			break;
		tally->numbers += number;
		if (!task->on_rq && queue_of(task)->clock_task > task->se.exec_start + LATELY)
			continue;
		u32 place = tally->told++, at = place / CHUNK;
		struct chunk *chunk = bpf_map_lookup_elem(&told, &at);
		if (chunk)
			note(&chunk->records[place % CHUNK], task);
	}
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

char terms[] SEC("license") = "Dual MIT/GPL";
