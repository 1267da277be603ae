"""Runs the reference implementation of MLRsearch against routers that the other end of the pipe simulates.

A search begins with a line on standard input: goals and range. For each trial a line is written, {"load_pps",
"duration_s"}, and one is read, {"expected", "offered", "forwarded"}. The last line of a search has the results. Standard
input ends after the last search.
"""

import json
import sys

import MLRsearch


def tell(value):
    print(json.dumps(value), flush=True)


class Pipe(MLRsearch.AbstractMeasurer):
    def measure(self, intended_duration, intended_load):
        tell({"load_pps": intended_load, "duration_s": intended_duration})
        outcome = json.loads(sys.stdin.readline())
        return MLRsearch.MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            # The package takes a frame too many for a lost one; ours may ask for a few less than are sent.
            intended_count=max(outcome["expected"], outcome["offered"]),
            offered_count=outcome["offered"],
            forwarding_count=outcome["forwarded"],
        )


def goal_of(goal):
    return MLRsearch.SearchGoal(
        loss_ratio=goal["loss_ratio"],
        exceed_ratio=goal["exceed_ratio"],
        relative_width=goal["width"],
        initial_trial_duration=goal["initial_s"],
        final_trial_duration=goal["final_s"],
        duration_sum=goal["sum_s"],
        fail_fast=False,
    )


def bound(load):
    return None if load is None else float(load)


def search(asked):
    goals = [goal_of(goal) for goal in asked["goals"]]
    config = MLRsearch.Config(
        goals=goals,
        min_load=asked["range"]["min_pps"],
        max_load=asked["range"]["max_pps"],
        search_duration_max=120.0,
        warmup_duration=None,
    )
    found = MLRsearch.MultipleLossRatioSearch(config=config).search(measurer=Pipe(), debug=lambda _: None)
    results = [found[goal] for goal in goals]
    tell(
        [
            {
                "lower_pps": bound(result.relevant_lower_bound),
                "upper_pps": bound(result.relevant_upper_bound),
                "throughput_pps": bound(result.conditional_throughput),
            }
            for result in results
        ]
    )


while line := sys.stdin.readline():
    search(json.loads(line))
