// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Every thread of the host, one record each, for whoever reads the iterator: crates/herald/src/bpf.rs has the same record.
//
// No header is included. Of the kernel's structures only those fields are declared that are read; where they are, the loader finds out
// from the kernel's own type information (CO-RE). `ci/bpf.sh build` compiles this, `ci/bpf.sh check` holds the committed object to it.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))
#define exists(field) __builtin_preserve_field_info(field, 2)

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
	u32 unused;
	char comm[16];
};

SEC("iter/task")
int tasks(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	if (!task)
		return 0;
	struct record record = {};
	record.pid = task->tgid;
	record.tid = task->pid;
	record.started_ns = task->start_boottime;
	record.run_ns = task->se.sum_exec_runtime;
	record.wait_ns = task->sched_info.run_delay;
	record.policy = task->policy;
	record.nice = task->static_prio - 120;
	record.cpus_allowed = task->nr_cpus_allowed;
	record.cpus = task->cpus_ptr->bits[0];

	// Neither counter tells what goes on now: a wait is added when it is over, a run at the next tick. Both began at times of the
	// clock of the run queue, which is not that of anything else.
	u64 queued = task->sched_info.last_queued;
	int runs = task->on_cpu;
	if (queued || runs) {
		// That of the CPU on which the thread is, whatever its policy. (The symbol `runqueues` has an address for BPF only on kernels
		// with CONFIG_KALLSYMS_ALL.)
		struct rq *rq = task->se.cfs_rq->rq;
		u64 now = rq->clock, now_task = rq->clock_task, began = task->se.exec_start;
		if (queued && now > queued)
			record.wait_ns += now - queued;
		else if (!queued && now_task > began)
			record.run_ns += now_task - began;
	}

	struct task_group *group = task->sched_task_group;
	if (exists(group->autogroup) && group->autogroup)
		record.group = group->autogroup->id | 1ULL << 63;
	else
		record.group = group->css.cgroup->kn->id;
	bpf_probe_read_kernel(record.comm, sizeof(record.comm), task->comm);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}

char terms[] SEC("license") = "Dual MIT/GPL";
