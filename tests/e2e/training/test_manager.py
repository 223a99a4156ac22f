"""The program of the TaskD Manager's sidecar, with a TaskD that listens as the real one does.

`cargo test --test e2e-training` runs each test in separate network and mount namespaces.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = (pathlib.Path(__file__).resolve().parents[3] / "webhook/inject/src/manager/manager.py").read_text()
# As the real one, it blocks in a library, and ignores SIGTERM.
TASKD = """
import os, signal, socket, time

def init_taskd_manager(config):
    print("config", sorted(config.items()), flush=True)

def start_taskd_manager():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener = socket.create_server((os.environ["POD_IP"], 9601))
    print("manager %d listens" % os.getpid(), flush=True)
    while True:
        time.sleep(3600)
"""
TIMEOUT = 30


class Manager(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        package = self.folder / "taskd/api"
        package.mkdir(parents=True)
        (self.folder / "taskd/__init__.py").touch()
        (package / "__init__.py").write_text(TASKD)
        self.logs = {}

    def start(self, program=PROGRAM, **environment):
        variables = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(self.folder), "POD_IP": "127.0.0.1", "TTP_PORT": "8000",
            "MINDX_TASK_ID": "job", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8",
        }
        variables.update(environment)
        path = self.folder / ("log%d" % len(self.logs))
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", program], env=variables, stdout=log, stderr=log, start_new_session=True
            )
        self.logs[process.pid] = path
        self.addCleanup(self.kill, process)
        return process

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def log(self, process):
        return self.logs[process.pid].read_text()

    def wait_for_log(self, process, text):
        deadline = time.monotonic() + TIMEOUT
        while text not in self.log(process):
            self.assertLess(time.monotonic(), deadline, self.log(process))
            time.sleep(0.02)

    def processor(self):
        """The two ends of a connection of a processor to MindIO's controller."""
        if not hasattr(self, "controller"):
            self.controller = socket.create_server(("127.0.0.1", 8000))
            self.addCleanup(self.controller.close)
        client = socket.create_connection(("127.0.0.1", 8000))
        server, _ = self.controller.accept()
        for end in (client, server):
            self.addCleanup(end.close)
        return client, server

    def test_numbers_come_from_the_variables(self):
        empty = {"WORLD_SIZE": "", "LOCAL_WORLD_SIZE": ""}
        for environment, expected in (
            ({}, "('job_id', 'job'), ('node_nums', 2), ('proc_per_node', 8)"),
            ({**empty, "MS_WORKER_NUM": "32", "MS_LOCAL_WORKER": "16"}, "('node_nums', 2), ('proc_per_node', 16)"),
            ({"WORLD_SIZE": "4"}, "('node_nums', 1), ('proc_per_node', 4)"),
            (empty, "('node_nums', 1), ('proc_per_node', 1)"),
        ):
            with self.subTest(environment):
                process = self.start(**environment)
                self.wait_for_log(process, "listens")
                self.assertIn(expected, self.log(process))
                self.kill(process)

    def test_it_ends_when_the_training_has_ended_and_no_processor_is_connected(self):
        process = self.start()
        self.wait_for_log(process, "listens")
        client, server = self.processor()
        process.terminate()
        self.wait_for_log(process, "the training has ended")
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(7)
        disconnected = time.monotonic()
        client.close()
        server.close()
        self.assertEqual(process.wait(TIMEOUT), 0)
        self.assertGreater(time.monotonic() - disconnected, 4)

    def test_later_connections_do_not_keep_it(self):
        process = self.start()
        self.wait_for_log(process, "listens")
        client, server = self.processor()
        process.terminate()
        self.wait_for_log(process, "waiting until 1 processors")
        # A rank of another node, restarted after the dump.
        self.processor()
        client.close()
        server.close()
        self.assertEqual(process.wait(TIMEOUT), 0)

    def test_it_does_not_end_while_the_training_runs(self):
        process = self.start()
        self.wait_for_log(process, "listens")
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(7)

    def test_it_waits_while_the_start_scripts_manager_runs(self):
        script = self.start(TASKD + "\nstart_taskd_manager()\n")
        self.wait_for_log(script, "listens")
        sidecar = self.start()
        self.wait_for_log(sidecar, "another TaskD Manager has port 9601")
        self.assertNotIn("listens", self.log(sidecar))
        self.kill(script)
        self.wait_for_log(sidecar, "listens")

    def test_one_in_the_start_script_waits_for_the_sidecar(self):
        sidecar = self.start()
        self.wait_for_log(sidecar, "listens")
        script = self.start()
        self.wait_for_log(script, "another TaskD Manager has port 9601")
        script.terminate()
        self.assertEqual(script.wait(TIMEOUT), 0)
        self.assertIsNone(sidecar.poll())

    def test_end_of_the_manager_is_its_own_end(self):
        (self.folder / "taskd/api/__init__.py").write_text("raise ImportError('libtaskd.so')")
        process = self.start()
        self.assertEqual(process.wait(TIMEOUT), 1)
        self.assertIn("can't be run", self.log(process))

    def test_it_works_where_the_address_is_unknown(self):
        process = self.start(POD_IP="127.0.0.1", LOCAL_PROXY_ENABLE="on", MASTER_ADDR="10.0.0.1")
        self.wait_for_log(process, "listens")


class Connections(unittest.TestCase):
    """Which connections the Manager waits for, by a clock and connections of the test."""

    def setUp(self):
        self.now = 0.0
        self.connected = set()
        self.names = {"__name__": "manager"}
        exec(PROGRAM, self.names)
        self.names.update(time=self, processor_connections=lambda: set(self.connected), log=lambda message: None)
        self.stop = self.names["Stop"]()

    def monotonic(self):
        return self.now

    def is_due_after(self, seconds):
        """Whether the Manager ends within a time, during which the connections stay as they are."""
        end = self.now + seconds
        while self.now < end:
            self.now += self.names["POLL_SECONDS"]
            if self.stop.is_due():
                return True
        return False

    def connect(self, *names):
        self.connected.update(names)
        self.assertFalse(self.is_due_after(3))

    def lose(self, *names):
        self.connected.difference_update(names)
        self.assertFalse(self.is_due_after(3))

    def test_ranks_restarted_after_a_dump_do_not_keep_it(self):
        """The launcher hook of rank 0 holds the order to exit until the controller is replaced."""
        self.connect("rank 0", "rank 1")
        self.lose("rank 0")
        self.lose("rank 1")
        self.connect("rank 1 restarted")
        self.stop.request(15, None)
        self.assertTrue(self.is_due_after(6))

    def test_survivors_of_a_lost_rank_keep_it(self):
        self.connect("rank 0", "rank 1", "rank 2")
        self.lose("rank 0")
        self.connect("rank 2 restarted")
        self.stop.request(15, None)
        self.assertFalse(self.is_due_after(1000))
        self.lose("rank 1", "rank 2")
        self.assertTrue(self.is_due_after(6))

    def test_a_loss_of_long_ago_does_not_matter(self):
        """All ranks were replaced by a recovery, and trained for minutes since."""
        self.connect("rank 0", "rank 1")
        self.lose("rank 0", "rank 1")
        self.connect("rank 0 again", "rank 1 again")
        self.assertFalse(self.is_due_after(300))
        self.lose("rank 0 again")
        self.stop.request(15, None)
        self.assertFalse(self.is_due_after(1000))

    def test_unreadable_connections_do_not_end_it(self):
        def unreadable():
            raise OSError("no /proc")

        self.connect("rank 0")
        self.names["processor_connections"] = unreadable
        self.stop.request(15, None)
        self.assertFalse(self.is_due_after(60))


if __name__ == "__main__":
    unittest.main()
