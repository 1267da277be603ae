//! The flow table under concurrent CPUs.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use anyhow::ensure;
use shunt_proof::{
    cpu::{Image, Regions, link},
    explore::{Bounds, Done, Scenario, Step, explore},
    object::Object,
};
use std::{
    fs,
    path::PathBuf,
    sync::{Arc, LazyLock},
};

/// SHUNT_RETIRED_MS and SHUNT_REMOVE_MS, in ticks of a millisecond.
const QUIET: u64 = 100;
const REMOVE: u64 = 1000;
/// The number of entries in tables that do not fill up, and in the largest table.
const ENTRIES: u64 = 3;
const ENTRIES_MAX: u64 = 5;
/// Larger than any map's element.
const LARGE: u64 = 1 << 16;

#[derive(Clone)]
struct Table {
    operations: Arc<Image>,
    sweep: Arc<Image>,
    /// Whether packets look for hints before the index.
    by_hints: bool,
}

/// Compiles the operations from a copy of the sources, with each first text replaced by the second. Each text must
/// occur exactly once.
fn table_with(changes: &[(&str, &str)]) -> Table {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let copy = tempfile::tempdir().unwrap();
    let mut changed = vec![0; changes.len()];
    let sources = shunt_bpf_build::source_dir();
    for file in shunt_bpf_build::fast_path_files(&sources).unwrap() {
        let mut text = fs::read_to_string(sources.join(&file)).unwrap();
        for ((from, to), changed) in changes.iter().zip(&mut changed) {
            *changed += text.matches(from).count();
            text = text.replace(from, to);
        }
        let target = copy.path().join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, text).unwrap();
    }
    assert!(changed.iter().all(|times| *times == 1), "{changes:?} occur {changed:?} times");
    let [operations, sweep] = ["operations.o", "table.o"].map(|name| copy.path().join(name));
    shunt_bpf_build::compile_with(copy.path(), &root.join("table/operations.bpf.c"), &operations);
    shunt_bpf_build::compile_with(copy.path(), &copy.path().join("prog/table.bpf.c"), &sweep);
    table_of([operations, sweep].map(|object| Object::read(&fs::read(object).unwrap()).unwrap()))
}

/// The table that the operations and the sweep were compiled to.
fn table_of(objects: [Object; 2]) -> Table {
    let mut regions = Regions::default();
    regions.map("shunt_index4", 2, 16, false);
    regions.map("shunt_table4", ENTRIES_MAX, 128, false);
    regions.map("shunt_cold4", ENTRIES_MAX, 32, false);
    regions.map("shunt_marks", 1, 64, false);
    regions.map("shunt_candidates", 1, 192, false);
    for own in ["shunt_scratch", "shunt_counters", "proof_scratch"] {
        regions.map(own, 64, LARGE, true);
    }
    let mut images = link(objects.into(), regions).into_iter();
    Table { operations: images.next().unwrap(), sweep: images.next().unwrap(), by_hints: false }
}

/// The unmodified table, which the build script has compiled.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let operations = include_bytes!(concat!(env!("OUT_DIR"), "/operations.o"));
    let sweep = include_bytes!(concat!(env!("OUT_DIR"), "/table.o"));
    table_of([&operations[..], &sweep[..]].map(|object| Object::read(object).unwrap()))
});

/// The same table, whose packets look for hints first.
static HINTED: LazyLock<Table> = LazyLock::new(|| Table { by_hints: true, ..TABLE.clone() });

impl Table {
    fn run(&self, function: &'static str, key: u64, action: u64) -> Step {
        Step::Run(self.operations.clone(), function, vec![key, action, 0, 0, 0, 0, 0, 0, 0])
    }

    fn learn(&self, key: u64, action: u64) -> Step {
        self.run("learn_flow", key, action)
    }

    /// Learns a flow that conntrack does not know.
    fn learn_untracked(&self, key: u64, action: u64) -> Step {
        self.run("learn_untracked_flow", key, action)
    }

    fn forward(&self, key: u64) -> Step {
        self.run("use_flow", key, self.by_hints.into())
    }

    /// Changes a route to the destination of a flow. Packets that a flow is learned from arrived before.
    fn change(&self, key: u64) -> Step {
        self.run("change_route", key, 0)
    }

    fn retire(&self, key: u64) -> Step {
        self.run("retire_flow", key, 0)
    }

    /// Keeps a packet in the candidates' only slot.
    fn keep(&self, number: u64) -> Step {
        self.run("keep_candidate", 0, number)
    }

    /// Takes the candidate of the packet that was kept first.
    fn take_first(&self, number: u64) -> Step {
        // SHUNT_CANDIDATES times the round of the first write, plus one.
        self.run("take_candidate", 2 * 4096, number)
    }

    fn keep_and_take(&self, number: u64) -> Step {
        self.run("keep_and_take", 0, number)
    }

    fn sweep(&self, all: bool) -> Step {
        // struct shunt_sweep: now_ticks and idle_ticks; all, and results; from and entries at offset 40.
        let words = vec![1 << 62, u64::from(all), 0, 0, 0, ENTRIES_MAX << 32, 0];
        Step::Run(self.sweep.clone(), "shunt_sweep_flows", words)
    }

    /// Sets up an empty table of one or two buckets.
    fn empty(&self, buckets: u64, entries: u64) -> Step {
        self.run("set_up", buckets - 1, entries)
    }

    /// Audits the table, flushes all flows, and audits it again.
    fn flushed(&self) -> Vec<Step> {
        let audit = || self.run("audit", 0, 0);
        vec![
            audit(),
            self.sweep(true),
            Step::Wait(40 * REMOVE),
            self.sweep(true),
            Step::Wait(QUIET),
            self.sweep(true),
            audit(),
        ]
    }
}

const LEARN: [&str; 2] = ["learn_flow", "learn_untracked_flow"];

/// Without a change, the epoch never moves and is never a reason not to learn. Otherwise nothing would be explored.
fn learning_is_not_refused(done: &[Done]) -> anyhow::Result<()> {
    const OLD_EPOCH: u64 = 34;
    if done.iter().any(|run| run.function == "change_route") {
        return Ok(());
    }
    let refused = done.iter().any(|run| LEARN.contains(&run.function) && run.arguments[2] == OLD_EPOCH);
    ensure!(!refused, "a flow was not learned although nothing has changed");
    Ok(())
}

/// Every forwarded packet was rewritten by a single action of its key.
fn actions_are_whole(done: &[Done]) -> anyhow::Result<()> {
    for run in done.iter().filter(|run| run.function == "use_flow" && run.arguments[2] == 0) {
        let byte = run.arguments[3] & 0xff;
        let all = byte * 0x0101_0101_0101_0101;
        ensure!(byte >> 4 == run.arguments[0], "an action of another key");
        ensure!(run.arguments[3..7].iter().all(|out| *out == all), "a mixture of actions");
        ensure!(run.arguments[7] == byte * 0x0101, "a checksum of another action");
    }
    Ok(())
}

/// No entry is in two places, and none is left after the flush.
fn audits_pass(done: &[Done]) -> anyhow::Result<()> {
    let audits: Vec<&Done> = done.iter().filter(|run| run.function == "audit").collect();
    for audit in &audits {
        ensure!(audit.arguments[2] == 0, "audit: {}", audit.arguments[2]);
    }
    ensure!(audits.last().is_none_or(|last| last.arguments[1] == 0), "entries have leaked");
    Ok(())
}

/// A packet that arrives after its action was retired is not forwarded, unless an action was learned later.
fn retired_actions_are_unused(done: &[Done]) -> anyhow::Result<()> {
    for run in done.iter().filter(|run| run.function == "use_flow" && run.arguments[2] == 0) {
        let same = |function| {
            move |other: &&Done| other.function == function && other.arguments[0] == run.arguments[0]
        };
        let gone = done
            .iter()
            .filter(same("retire_flow"))
            .filter(|other| other.arguments[2] == 1 && other.to < run.from);
        let learned = done
            .iter()
            .filter(|other| LEARN.contains(&other.function) && other.arguments[0] == run.arguments[0])
            .filter(|other| other.from < run.to)
            .map(|other| other.from)
            .max();
        ensure!(gone.map(|other| other.to).max() < learned, "a retired action was used");
    }
    Ok(())
}

/// A packet that arrives after a change is not forwarded by an action that was learned from a packet before it.
fn changes_end_flows(done: &[Done]) -> anyhow::Result<()> {
    for run in done.iter().filter(|run| run.function == "use_flow" && run.arguments[2] == 0) {
        let is_earlier = |other: &Done| {
            other.function == "change_route" && other.arguments[0] == run.arguments[0] && other.to < run.from
        };
        ensure!(!done.iter().any(is_earlier), "an action from before a change was used");
    }
    Ok(())
}

/// A candidate is taken once, and whole: never with bytes of another packet.
fn candidates_are_whole(done: &[Done]) -> anyhow::Result<()> {
    let is_take = |run: &&Done| matches!(run.function, "take_candidate" | "keep_and_take");
    let taken: Vec<&Done> = done.iter().filter(is_take).filter(|run| run.arguments[2] == 0).collect();
    ensure!(taken.iter().all(|run| run.arguments[3] == 1), "a mixture of candidates, or another packet's");
    let mut numbers: Vec<u64> = taken.iter().map(|run| run.arguments[1]).collect();
    numbers.sort_unstable();
    ensure!(numbers.windows(2).all(|two| two[0] != two[1]), "a candidate was taken twice");
    Ok(())
}

fn judge(done: &[Done]) -> anyhow::Result<()> {
    candidates_are_whole(done)?;
    changes_end_flows(done)?;
    learning_is_not_refused(done)?;
    actions_are_whole(done)?;
    audits_pass(done)?;
    retired_actions_are_unused(done)
}

/// One interruption, with loads and stores in program order; part of `make test`.
const QUICK: Bounds = Bounds { preemptions: 1, weak: 0, schedules: 100_000 };
/// One interruption, and one load or store out of order, as on arm64.
const WEAK: Bounds = Bounds { preemptions: 1, weak: 1, schedules: 2_000_000 };
/// Two interruptions.
const TWICE: Bounds = Bounds { preemptions: 2, weak: 0, schedules: 2_000_000 };

/// Where a CPU detects that another one has learned the same flow.
const DETECTS_DUPLICATE: &str = "if (has_duplicate(family, key, hash, entry)) {";

#[derive(Clone, Copy, Debug)]
enum Which {
    Inserted,
    LearnedAgain,
    LearnedAgainTwice,
    Renewed,
    Reused,
    LearnedInItsOldEntry,
    LearnedTwice,
    LearnedInTwoBuckets,
    FreeList,
    Stack,
    Full,
    Changed,
    Overwritten,
}

const ALL: [Which; 13] = [
    Which::Inserted,
    Which::Renewed,
    Which::LearnedAgain,
    Which::LearnedTwice,
    Which::LearnedInTwoBuckets,
    Which::LearnedAgainTwice,
    Which::Reused,
    Which::LearnedInItsOldEntry,
    Which::FreeList,
    Which::Stack,
    Which::Full,
    Which::Changed,
    Which::Overwritten,
];

fn scenario(table: &Table, which: Which) -> Scenario {
    let t = table;
    let one = || vec![t.empty(2, ENTRIES), t.learn(1, 1), t.forward(1)];
    let (before, cpus) = match which {
        Which::Inserted => {
            (vec![t.empty(2, ENTRIES)], vec![vec![t.learn_untracked(1, 1)], vec![t.forward(1), t.forward(1)]])
        }
        Which::LearnedAgain => (
            one(),
            vec![
                vec![t.retire(1), Step::Wait(QUIET), t.learn(1, 2)],
                vec![t.forward(1), t.forward(1), t.forward(1)],
            ],
        ),
        Which::LearnedAgainTwice => (
            [one(), vec![t.retire(1), Step::Wait(QUIET)]].concat(),
            vec![vec![t.learn(1, 2)], vec![t.learn(1, 3)], vec![t.forward(1), t.forward(1)]],
        ),
        Which::Renewed => (one(), vec![vec![t.learn(1, 1)], vec![t.retire(1), t.forward(1)]]),
        Which::Reused => (
            vec![t.empty(2, 1), t.learn(1, 1), t.retire(1), Step::Wait(REMOVE)],
            vec![
                vec![
                    t.sweep(false),
                    t.sweep(false),
                    t.learn(2, 3),
                    Step::Wait(QUIET),
                    t.sweep(false),
                    t.learn(2, 3),
                ],
                vec![t.forward(1), t.forward(2)],
            ],
        ),
        // The flow's hint is older than its action.
        Which::LearnedInItsOldEntry => (
            vec![
                t.empty(2, 1),
                t.learn_untracked(1, 1),
                t.retire(1),
                Step::Wait(REMOVE),
                t.sweep(false),
                Step::Wait(QUIET),
                t.sweep(false),
            ],
            vec![vec![t.learn_untracked(1, 2)], vec![t.forward(1), t.forward(1)]],
        ),
        Which::LearnedTwice => (
            vec![t.empty(2, ENTRIES)],
            vec![vec![t.learn(1, 1)], vec![t.learn(1, 2)], vec![t.forward(1), t.forward(1)]],
        ),
        // The first bucket of flow 6 is half full, so flow 6 goes into the second one, unless the sweep runs first.
        Which::LearnedInTwoBuckets => (
            vec![
                t.empty(2, ENTRIES_MAX),
                t.learn(2, 1),
                t.learn(3, 1),
                t.retire(2),
                t.retire(3),
                Step::Wait(REMOVE),
            ],
            vec![vec![t.learn(6, 1)], vec![t.learn(6, 2)], vec![t.sweep(false)]],
        ),
        Which::FreeList => (
            vec![
                t.empty(2, ENTRIES),
                t.learn(1, 1),
                t.learn(2, 1),
                t.learn(3, 1),
                t.sweep(true),
                Step::Wait(REMOVE),
                t.sweep(true),
                Step::Wait(QUIET),
                t.sweep(true),
                t.learn(1, 1),
                t.retire(1),
                Step::Wait(REMOVE),
                t.sweep(false),
                Step::Wait(QUIET),
            ],
            vec![vec![t.learn(2, 2), t.learn(3, 2)], vec![t.sweep(false)], vec![t.learn(4, 2)]],
        ),
        // Two free entries and one free slot for three flows: one entry is freed at once.
        Which::Stack => (
            vec![
                t.empty(1, ENTRIES_MAX),
                t.learn(1, 1),
                t.learn(2, 1),
                t.learn(3, 1),
                t.learn(4, 1),
                t.learn(5, 1),
                t.retire(4),
                Step::Wait(REMOVE),
                t.sweep(false),
                Step::Wait(QUIET),
                t.sweep(false),
            ],
            vec![vec![t.learn(5, 2)], vec![t.learn(6, 2)], vec![t.learn(7, 2)]],
        ),
        Which::Full => (
            vec![t.empty(1, 1)],
            vec![vec![t.learn(1, 1)], vec![t.learn(2, 2)], vec![t.forward(1), t.forward(2)]],
        ),
        Which::Changed => (
            vec![t.empty(2, ENTRIES)],
            vec![vec![t.learn(1, 1), t.forward(1)], vec![t.change(1), t.forward(1)]],
        ),
        Which::Overwritten => (
            vec![t.empty(1, 1), t.keep(1)],
            vec![vec![t.take_first(1), t.take_first(1)], vec![t.keep_and_take(2)], vec![t.keep_and_take(3)]],
        ),
    };
    Scenario { before, cpus, after: table.flushed() }
}

fn holds_in(table: &Table, which: Which, bounds: Bounds) {
    let explored = explore(&scenario(table, which), bounds, &judge).unwrap();
    println!("{which:?}: {explored:?} within {bounds:?}");
    assert!(explored.all, "{which:?}: more schedules than the bound");
}

fn holds_within(which: Which, bounds: Bounds) {
    holds_in(&TABLE, which, bounds);
}

/// The scenarios in which packets are forwarded.
const FORWARDING: [Which; 7] = [
    Which::Inserted,
    Which::Renewed,
    Which::LearnedAgain,
    Which::LearnedTwice,
    Which::Reused,
    Which::LearnedInItsOldEntry,
    Which::Changed,
];

fn holds(which: Which) {
    holds_within(which, QUICK);
}

/// Asserts that the scenario rejects a modified table, which is correct while CPUs take turns.
fn fails(which: Which, bounds: Bounds, changes: &[(&str, &str)]) {
    let scenario = scenario(&table_with(changes), which);
    let turns = Bounds { preemptions: 0, weak: 0, ..bounds };
    assert!(explore(&scenario, turns, &judge).unwrap().all);
    rejects(&scenario, which, bounds);
}

fn rejects(scenario: &Scenario, which: Which, bounds: Bounds) {
    let e = explore(scenario, bounds, &judge).expect_err("the modified table was accepted");
    println!("{which:?}: {:#}", e.root_cause());
}

/// As [`fails`], for a change that is wrong even while CPUs take turns, one of which may come between a packet's
/// arrival and its leaving.
fn fails_in_turns(which: Which, changes: &[(&str, &str)]) {
    rejects(&scenario(&table_with(changes), which), which, QUICK);
}

#[test]
fn a_look_up_finds_a_whole_action_or_none() {
    holds(Which::Inserted);
}

#[test]
fn a_relearned_action_is_the_old_one_or_the_new_one() {
    holds(Which::LearnedAgain);
}

#[test]
fn a_flow_relearned_by_two_cpus_at_once_has_one_action() {
    holds(Which::LearnedAgainTwice);
}

#[test]
fn a_flow_retired_during_a_proof_stays_retired() {
    holds(Which::Renewed);
}

#[test]
fn a_reused_entry_is_not_mistaken_for_the_old_flow() {
    holds(Which::Reused);
}

#[test]
fn packets_that_follow_hints_use_whole_actions_of_their_own_key() {
    for which in FORWARDING {
        holds_in(&HINTED, which, QUICK);
    }
}

#[test]
#[ignore = "minutes; in make test-long"]
fn packets_that_follow_hints_do_so_with_one_load_or_store_out_of_order() {
    for which in FORWARDING {
        holds_in(&HINTED, which, WEAK);
    }
}

/// A hint leads to an entry before the index does, so the key has to be the last that is written.
#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn a_key_that_is_written_without_barriers_is_rejected_by_packets_that_follow_hints() {
    let changed = table_with(&[
        ("__sync_lock_test_and_set(&entry->epoch, epoch);", "entry->epoch = epoch;"),
        ("__sync_lock_test_and_set(&words[live], key->words[live]);", "words[live] = key->words[live];"),
    ]);
    let hinted = Table { by_hints: true, ..changed };
    let which = Which::LearnedInItsOldEntry;
    rejects(&scenario(&hinted, which), which, WEAK);
}

#[test]
fn a_flow_learned_by_two_cpus_at_once_has_one_entry() {
    holds(Which::LearnedTwice);
}

#[test]
fn a_flow_learned_by_two_cpus_while_a_slot_is_freed_has_one_entry() {
    holds(Which::LearnedInTwoBuckets);
}

#[test]
fn a_free_entry_is_allocated_once() {
    holds(Which::FreeList);
}

#[test]
fn an_entry_freed_at_once_is_allocated_once() {
    holds(Which::Stack);
}

#[test]
fn a_full_table_keeps_its_flows() {
    holds(Which::Full);
}

#[test]
#[ignore = "minutes; in make test-long"]
fn all_scenarios_hold_with_one_load_or_store_out_of_order() {
    for which in ALL {
        holds_within(which, WEAK);
    }
}

#[test]
#[ignore = "minutes; in make test-long"]
fn all_scenarios_hold_with_two_interruptions() {
    for which in ALL {
        holds_within(which, TWICE);
    }
}

#[test]
fn a_table_without_barriers_is_rejected() {
    fails(
        Which::Inserted,
        WEAK,
        &[
            ("__sync_lock_test_and_set(&entry->epoch, epoch);", "entry->epoch = epoch;"),
            ("__sync_lock_test_and_set(&words[live], key->words[live]);", "words[live] = key->words[live];"),
            (
                "__sync_val_compare_and_swap(&bucket->slot[way], from, to) == from",
                "(*(volatile __u32 *)&bucket->slot[way] = to, 1)",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn overwriting_an_action_is_rejected() {
    let fresh = "if (!shunt_unpublish(family, entry, s->now))\n\t\treturn SHUNT_RETIRING;\n\twhy = insert(s, family, key, hash);";
    let over = "s->scratch->entry = entry; why = shunt_write(family, entry, key, f, s->scratch->to, s->now) ? SHUNT_RETIRING : SHUNT_OK;";
    fails(Which::LearnedAgain, WEAK, &[(fresh, over)]);
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn relearning_a_flow_in_two_entries_is_rejected() {
    let first = "if (!shunt_unpublish(family, entry, s->now))\n\t\treturn SHUNT_RETIRING;";
    fails(
        Which::LearnedAgainTwice,
        QUICK,
        &[(first, "shunt_unpublish(family, entry, s->now);"), (DETECTS_DUPLICATE, "if (0) {")],
    );
}

#[test]
fn a_flow_learned_while_its_route_changes_is_not_used() {
    holds(Which::Changed);
}

#[test]
fn a_candidate_that_is_overwritten_is_not_used() {
    holds(Which::Overwritten);
}

#[test]
fn using_a_copy_of_an_overwritten_candidate_is_rejected() {
    let overwritten = "SHUNT_LEFT_TWICE : SHUNT_NOT_WATCHED;";
    fails(Which::Overwritten, QUICK, &[(overwritten, "SHUNT_LEFT_TWICE : SHUNT_OK;")]);
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn claiming_a_candidate_without_an_exchange_is_rejected() {
    let exchange = "have & SHUNT_CANDIDATE_BUSY ||\n\t    __sync_val_compare_and_swap(&c->state, have, state | SHUNT_CANDIDATE_BUSY) != have)\n\t\treturn 0;";
    fails(
        Which::Overwritten,
        TWICE,
        &[(
            exchange,
            "have & SHUNT_CANDIDATE_BUSY)\n\t\treturn 0;\n\tc->state = state | SHUNT_CANDIDATE_BUSY;",
        )],
    );
}

#[test]
fn learning_without_looking_for_changes_is_rejected() {
    fails_in_turns(Which::Changed, &[("!shunt_is_unchanged(s, family)", "0")]);
}

#[test]
fn a_change_that_is_not_noted_is_rejected() {
    let noted = "before = __sync_lock_test_and_set(shunt_last_change(hash), number);";
    fails_in_turns(Which::Changed, &[(noted, "before = 0;")]);
}

#[test]
fn a_proof_that_revives_a_retired_flow_is_rejected() {
    let exchange = "if (__sync_val_compare_and_swap(&have->epoch, epoch, f->epoch) != epoch) {";
    fails(Which::Renewed, QUICK, &[(exchange, "have->epoch = f->epoch;\n\tif (0) {")]);
}

#[test]
fn reusing_an_entry_without_quiet_time_is_rejected() {
    fails(Which::Reused, QUICK, &[("SHUNT_RETIRED_MS = 100,", "SHUNT_RETIRED_MS = 0,")]);
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn learning_a_flow_in_two_entries_is_rejected() {
    fails(Which::LearnedTwice, QUICK, &[(DETECTS_DUPLICATE, "if (0) {")]);
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn looking_for_duplicates_up_to_the_first_entry_is_rejected() {
    let first = "struct shunt_flow *have; __u32 found; have = shunt_find(family, key, hash, &found); if (have && found != entry) {";
    fails(Which::LearnedInTwoBuckets, QUICK, &[(DETECTS_DUPLICATE, first)]);
}

#[test]
#[ignore = "half a minute; in make test-long"]
fn a_sweep_that_frees_a_just_allocated_entry_is_rejected() {
    let again = " || __sync_fetch_and_add(&words[shunt_live_word(family)], 0)";
    fails(Which::FreeList, WEAK, &[(again, "")]);
}

#[test]
#[ignore = "half a minute; in make test-long"]
fn a_free_stack_without_a_change_count_is_rejected() {
    fails(
        Which::Stack,
        TWICE,
        &[
            (
                "first, have, ((have >> 32) + 1) << 32 | cold->next_free)",
                "first, have, cold->next_free | (__u64)1 << 32)",
            ),
            (
                "first, have, ((have >> 32) + 1) << 32 | (entry + 1))",
                "first, have, (entry + 1) | (__u64)1 << 32)",
            ),
        ],
    );
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn allocating_beyond_the_last_entry_is_rejected() {
    let full = "if (*entry >= shunt_control.max_flows)\n\t\t\treturn SHUNT_FULL;";
    fails(Which::Full, QUICK, &[(full, ";")]);
}

#[test]
#[ignore = "compiles a table of its own; in make test-long"]
fn freeing_an_entry_without_its_source_is_rejected() {
    fails_in_turns(Which::Stack, &[("shunt_count_source(family, words, f, shunt_new_addrs(f), -1);", "")]);
}
