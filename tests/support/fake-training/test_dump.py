"""The outcome of a dying checkpoint with and without Swansong's measures, for each loss that was measured.

`cargo test --test e2e-training` runs each test in a separate network namespace. Times are scaled by FAKE_TIME_FACTOR.
"""

import time
import unittest

from jobs import HOOK, Job
from scale import FACTOR, seconds

HOOK_LIMIT = 300 * max(FACTOR, 0.2)
SAVED, FAILED, LOST, STATUS_LOST = (True, "dump-success"), (False, "dump-failed"), (False, None), (True, None)
GROUP_PER_NODE = [{"ranks": [0, 1], "replicas": 2}, {"ranks": [2, 3], "replicas": 2}]


class Scenario(unittest.TestCase):
    def job(self, **options):
        job = Job(**options)
        self.addCleanup(job.close)
        return job

    def training(self, *jobs):
        for job in jobs:
            self.assertTrue(job.wait_until_training(), job.logs())
        return jobs

    def check_jobs(self, fault, timeout, *jobs_and_outcomes):
        """Applies `fault` to jobs that train side by side, and compares their outcomes."""
        self.training(*(job for job, _ in jobs_and_outcomes))
        for job, _ in jobs_and_outcomes:
            fault(job)
        for job, expected in jobs_and_outcomes:
            self.assertEqual(job.wait_for_outcome(timeout), expected, job.logs())

    def check_hook(self, fault, expected_without, expected_with, timeout=60, **options):
        """Compares a job without the launcher hook with one that has it."""
        without, with_hook = self.job(**options), self.job(hook=HOOK_LIMIT, **options)
        self.check_jobs(fault, timeout, (without, expected_without), (with_hook, expected_with))

    def wait_until(self, condition, job, timeout=60):
        deadline = time.monotonic() + seconds(timeout) + 5
        while not condition():
            self.assertLess(time.monotonic(), deadline, job.logs())
            time.sleep(0.02)

    def wait_for_log(self, job, text, timeout=60):
        self.wait_until(lambda: text in job.logs(), job, timeout)


class DeviceFaults(Scenario):
    """Faults of a device, in the normal way: ClusterD ends the rank, MindIO misses it, and the order follows."""

    def test_on_another_node_than_rank_0_the_hook_keeps_the_status(self):
        self.check_hook(lambda job: job.device_fault(3), STATUS_LOST, SAVED)

    def test_on_rank_0s_node_only_the_hook_saves(self):
        self.check_hook(lambda job: job.device_fault(1), LOST, SAVED)

    def test_of_the_first_rank_of_its_group_only_the_hook_saves(self):
        self.check_hook(lambda job: job.device_fault(0), LOST, SAVED, groups=GROUP_PER_NODE)

    def test_in_a_job_of_one_pod_only_the_hook_saves(self):
        self.check_hook(lambda job: job.device_fault(3), LOST, SAVED, nodes=1, ranks_per_node=4)

    def test_with_a_saver_on_the_same_node_only_the_hook_saves(self):
        self.check_hook(lambda job: job.device_fault(2), LOST, SAVED, groups=GROUP_PER_NODE)

    def test_in_a_mindspore_job_only_the_hook_saves(self):
        self.check_hook(lambda job: job.device_fault(1), LOST, SAVED, mindspore=True)

    def test_with_clean_pod_policy_running_only_the_hook_saves(self):
        self.check_hook(lambda job: job.device_fault(3), LOST, SAVED, clean_pods=True)

    def test_a_job_with_retries_keeps_its_status_without_the_hook(self):
        self.check_hook(lambda job: job.device_fault(3), SAVED, SAVED, retries=1)

    def test_of_five_jobs_in_the_same_second_all_are_saved(self):
        jobs = self.training(*[self.job(hook=HOOK_LIMIT) for _ in range(5)])
        start = time.monotonic()
        for index, job in enumerate(jobs):
            job.device_fault(index % 4)
        self.assertLess(time.monotonic() - start, 1)
        for job in jobs:
            self.assertEqual(job.wait_for_outcome(60), SAVED, job.logs())


class EndedRanks(Scenario):
    """Ranks whose processes end: by themselves, or by Swansong's fast path."""

    def test_one_on_rank_0s_node_needs_the_hook(self):
        self.check_hook(lambda job: job.kill_rank(1), LOST, SAVED)

    def test_one_on_another_node_needs_the_hook_for_the_status(self):
        self.check_hook(lambda job: job.kill_rank(3), STATUS_LOST, SAVED)

    def test_one_with_a_saver_on_the_same_node_needs_the_hook(self):
        self.check_hook(lambda job: job.kill_rank(2), LOST, SAVED, groups=GROUP_PER_NODE)

    def test_all_on_rank_0s_node_need_the_hook_around_the_manager(self):
        def kill(job):
            job.kill_rank(0)
            job.kill_rank(1)

        self.check_hook(kill, LOST, SAVED)

    def test_all_on_another_node_lose_the_status_even_with_the_hook(self):
        def kill(job):
            job.kill_rank(2)
            job.kill_rank(3)

        # Longer than the hook waits where no processor is connected.
        self.check_hook(kill, STATUS_LOST, STATUS_LOST, save=60, timeout=120)

    def test_a_report_to_clusterd_as_well_changes_nothing(self):
        def kill_and_report(job):
            job.kill_rank(1)
            job.device_fault(1)

        self.check_hook(kill_and_report, LOST, SAVED)

    def test_ending_the_rank_saves_where_reporting_it_directly_fails(self):
        """An order that comes before MindIO has missed a heartbeat: the rank without a device is chosen to save."""

        def report(job):
            job.lose_devices(0)
            job.clusterd.report_process_fault(job.name, [0])

        def end(job):
            job.lose_devices(0)
            job.kill_rank(0)

        reported, ended = self.training(self.job(hook=HOOK_LIMIT), self.job(hook=HOOK_LIMIT))
        report(reported)
        end(ended)
        self.assertEqual(reported.wait_for_outcome(60), FAILED, reported.logs())
        self.assertEqual(ended.wait_for_outcome(60), SAVED, ended.logs())

    def test_ending_the_rank_brings_the_order_before_clusterds_way_does(self):
        ended, normal = self.training(self.job(hook=HOOK_LIMIT), self.job(hook=HOOK_LIMIT))
        normal.device_fault(1)
        ended.lose_devices(1)
        ended.kill_rank(1)
        for job in (ended, normal):
            self.assertEqual(job.wait_for_outcome(60), SAVED, job.logs())
        self.assertLess(ended.clusterd.ordered_at[ended.name], normal.clusterd.ordered_at[normal.name])


class Variables(Scenario):
    """What Swansong injects into Pods, left out."""

    def test_without_ttp_addr_training_does_not_start(self):
        job = self.job(without=["TTP_ADDR"])
        self.assertFalse(job.wait_until_training(timeout=seconds(60)), job.logs())

    def test_without_ms_tft_port_mindspore_does_not_start(self):
        job = self.job(mindspore=True, without=["MS_TFT_PORT"])
        self.assertTrue(job.wait_for_log("int() argument must be"), job.logs())
        self.assertFalse(job.wait_until_training(timeout=seconds(60)), job.logs())

    def test_without_pod_ip_or_ttp_port_there_is_no_controller(self):
        for name in ("POD_IP", "TTP_PORT"):
            with self.subTest(name):
                job = self.job(without=[name])
                self.assertFalse(job.wait_until_training(timeout=seconds(20)), job.logs())

    def test_a_save_beyond_the_default_limit_needs_a_higher_one(self):
        default, higher = self.job(save=200, hook=HOOK_LIMIT), self.job(save=200, hook=HOOK_LIMIT, limit=1800)
        self.check_jobs(lambda job: job.device_fault(3), 300, (default, FAILED), (higher, SAVED))


class Waiting(Scenario):
    """How long the hook waits."""

    def test_a_limit_below_the_save_loses_the_file(self):
        short, long = (self.job(save=60, hook=limit) for limit in (seconds(10), HOOK_LIMIT))
        self.check_jobs(lambda job: job.device_fault(0), 120, (short, LOST), (long, SAVED))

    def test_connections_of_restarted_ranks_are_not_waited_for(self):
        text, condition = HOOK.read_text(), "if waited_for & connections:"
        self.assertEqual(text.count(condition), 1)
        counts_later_ones = text.replace(condition, "if connections:")
        limit = seconds(60)
        job, other = self.training(self.job(hook=limit), self.job(hook=limit, hook_text=counts_later_ones))
        for one in (job, other):
            one.device_fault(0)
        self.wait_for_log(job, "all processors disconnected", 90)
        self.wait_for_log(other, "limit reached", 150)

    def test_deletion_ends_a_wait_within_a_second(self):
        job, = self.training(self.job(hook=HOOK_LIMIT, save=300, limit=1800))
        job.device_fault(0)
        self.wait_for_log(job, "exit ordered")
        start = time.monotonic()
        job.delete(job.pods[0])
        self.assertEqual(job.pods[0].wait(30), 143, job.logs())
        self.assertLess(time.monotonic() - start, 1, job.logs())
        self.assertEqual(job.has_file(), False)


class Bounds(Scenario):
    """Losses that nothing of Swansong's prevents."""

    def test_a_group_without_a_surviving_replica_is_not_saved(self):
        groups = [{"ranks": [0, 1], "replicas": 1}, {"ranks": [2, 3], "replicas": 2}]
        self.check_hook(lambda job: job.device_fault(1), FAILED, FAILED, groups=groups)

    def test_a_report_that_clusterd_misses_is_not_repeated(self):
        def run(away):
            job, = self.training(self.job(hook=HOOK_LIMIT))
            job.clusterd.available.clear()
            job.kill_rank(3)
            self.wait_for_log(job, "reported as lost")
            time.sleep(seconds(away))
            job.clusterd.available.set()
            return job

        short, long = run(10), run(25)
        self.assertEqual(short.wait_for_outcome(60), SAVED, short.logs())
        self.wait_for_log(long, "ended without a dump")
        self.assertFalse(long.has_file())

    def test_rank_0s_pod_stays_after_a_dump_without_status(self):
        job, = self.training(self.job())
        job.kill_rank(3)
        self.assertEqual(job.wait_for_outcome(60), STATUS_LOST, job.logs())
        self.wait_until(lambda: job.connected() == 0, job)
        self.assertIsNone(job.pods[0].poll(), job.logs())


if __name__ == "__main__":
    unittest.main()
