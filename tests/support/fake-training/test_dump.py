"""What becomes of a dying checkpoint with and without the launcher hook, for each loss that was measured.

Run by the tests of swansong-inject in a separate network namespace: FAKE_TIME_FACTOR=0.1 python3 test_dump.py
"""

import time
import unittest

from jobs import Job
from scale import seconds

HOOK_LIMIT = 60
SAVED, LOST, UNKNOWN = (True, "dump-success"), (False, None), (True, None)


class Dump(unittest.TestCase):
    def job(self, **options):
        job = Job(**options)
        self.addCleanup(job.close)
        self.assertTrue(job.wait_until_training(), job.logs())
        return job

    def outcome(self, fault, timeout=60, **options):
        job = self.job(**options)
        fault(job)
        outcome = job.wait_for_outcome(timeout)
        return outcome, job

    def check(self, fault, expected_without, expected_with, **options):
        for hook, expected in ((None, expected_without), (HOOK_LIMIT, expected_with)):
            with self.subTest(hook=hook):
                outcome, job = self.outcome(fault, hook=hook, **options)
                self.assertEqual(outcome, expected, job.logs())

    def test_fault_on_another_node_saves_and_needs_the_hook_for_its_status(self):
        self.check(lambda job: job.device_fault(3), UNKNOWN, SAVED)

    def test_fault_on_rank_0s_node_needs_the_hook(self):
        self.check(lambda job: job.device_fault(0), LOST, SAVED)

    def test_job_of_one_pod_needs_the_hook(self):
        self.check(lambda job: job.device_fault(3), LOST, SAVED, nodes=1, ranks_per_node=4)

    def test_saver_on_the_faults_node_needs_the_hook(self):
        groups = [{"ranks": [0, 1], "replicas": 2}, {"ranks": [2, 3], "replicas": 2}]
        self.check(lambda job: job.device_fault(2), LOST, SAVED, groups=groups)

    def test_killed_process_on_rank_0s_node_needs_the_hook(self):
        self.check(lambda job: job.kill_rank(1), LOST, SAVED)

    def test_pods_deleted_by_clean_pod_policy_need_the_hook(self):
        self.check(lambda job: job.device_fault(3), LOST, SAVED, clean_pods=True)

    def test_save_beyond_the_time_limit_is_thrown_away(self):
        for limit, expected in ((30, False), (1800, True)):
            with self.subTest(limit=limit):
                job = self.job(save=45, limit=limit, hook=HOOK_LIMIT)
                job.device_fault(3)
                self.assertEqual(job.wait_for_outcome(90)[0], expected, job.logs())

    def test_limit_of_the_hook_below_the_save_loses_the_file(self):
        outcome, job = self.outcome(lambda job: job.device_fault(0), save=60, limit=1800, hook=1, timeout=120)
        self.assertEqual(outcome, LOST, job.logs())

    def test_without_ttp_addr_training_does_not_start(self):
        job = Job(ttp_addr=False)
        self.addCleanup(job.close)
        self.assertFalse(job.wait_until_training(timeout=seconds(60)), job.logs())

    def test_a_group_without_a_surviving_replica_is_not_saved(self):
        groups = [{"ranks": [0, 1], "replicas": 1}, {"ranks": [2, 3], "replicas": 2}]
        outcome, job = self.outcome(lambda job: job.device_fault(1), groups=groups, hook=HOOK_LIMIT)
        self.assertFalse(outcome[0], job.logs())

    def test_pods_stay_deletable_while_they_wait(self):
        job = self.job(hook=HOOK_LIMIT, save=300, limit=1800)
        job.device_fault(0)
        self.assertTrue(job.clusterd.wait_for(lambda clusterd: clusterd.jobs[job.name].ordered_at, 30), job.logs())
        deadline = time.monotonic() + 10
        while "exit ordered" not in job.logs():
            self.assertLess(time.monotonic(), deadline, job.logs())
            time.sleep(0.02)
        job.delete(job.pods[0])
        self.assertEqual(job.pods[0].wait(10), 143, job.logs())

    def test_five_jobs_hit_in_the_same_second_are_all_saved(self):
        jobs = [self.job(hook=HOOK_LIMIT) for _ in range(5)]
        for index, job in enumerate(jobs):
            job.device_fault(index % 4)
        for job in jobs:
            self.assertEqual(job.wait_for_outcome(60), SAVED, job.logs())


if __name__ == "__main__":
    unittest.main()
