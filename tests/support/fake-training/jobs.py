"""Runs jobs of the fakes: each Pod in a separate PID namespace, so that its processes end with its launcher.

The Job here also plays ascend-operator: a Pod that fails makes the job fail at once, and its PodGroup is deleted, unless
the job has retries left. Needs root, and a network namespace in which ports 8000 and 9601 are free.
"""

import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from channel import start
from clusterd import ClusterD
from scale import FACTOR, seconds
from variables import NAMES

HERE = pathlib.Path(__file__).resolve().parent
HOOK = HERE.parents[2] / "webhook/inject/src/launcher_hook/swansong_launcher_hook.py"
PTH = HOOK.with_name("swansong-launcher-hook.pth")
# From the end of a Pod to the deletion of the PodGroup.
OPERATOR_DELAY = 0.3
GRACE_PERIOD = 30
PROGRAM = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


class Job:
    """A training job with `nodes` Pods of `ranks_per_node` ranks, the Manager beside rank 0.

    `hook` is the limit of the launcher hook in seconds; None leaves the hook out. `hook_text` replaces its source.
    `without` names variables that Swansong injects and that are left out here.
    """

    numbers = itertools.count(1)

    def __init__(
        self,
        nodes=2,
        ranks_per_node=2,
        groups=None,
        save=10,
        limit=None,
        hook=None,
        hook_text=None,
        clean_pods=False,
        retries=0,
        mindspore=False,
        without=(),
    ):
        number = next(Job.numbers)
        self.name = "job-%d-%d" % (os.getpid(), number)
        self.address = "127.0.%d.1" % number
        self.ranks_per_node = ranks_per_node
        self.world_size = nodes * ranks_per_node
        self.groups = groups or [{"ranks": list(range(self.world_size)), "replicas": 2}]
        self.save, self.limit, self.mindspore, self.without = save, limit, mindspore, without
        self.hook, self.hook_text = hook, hook_text or HOOK.read_text()
        self.clean_pods, self.retries = clean_pods, retries
        self.folder = tempfile.TemporaryDirectory()
        self.checkpoints = pathlib.Path(self.folder.name, "checkpoints")
        self.checkpoints.mkdir()
        self.clusterd = ClusterD()
        self.clusterd_port = self.clusterd.serve()
        self.status = None
        self.ended_pod = threading.Event()
        self.failed = threading.Event()
        self.site = self.prepare_image()
        self.pods = [self.start_pod(node) for node in range(nodes)]

    def prepare_image(self):
        """The user site directory, in which Python finds modules and `.pth` files as in the system's one."""
        version = "python%d.%d" % sys.version_info[:2]
        site = pathlib.Path(self.folder.name, "lib", version, "site-packages")
        shutil.copytree(HERE, site, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
        if self.hook is not None:
            (site / HOOK.name).write_text(self.hook_text)
            line = PTH.read_text().replace("LIMIT", str(self.hook)).replace("PATCH", "False")
            (site / PTH.name).write_text(line)
        return site

    def start_pod(self, node):
        environment = {
            **os.environ,
            "PYTHONUSERBASE": self.folder.name,
            "FAKE_TIME_FACTOR": str(FACTOR),
            "FAKE_CHECKPOINT_DIR": str(self.checkpoints),
            "FAKE_SAVE_SECONDS": str(self.save),
            "FAKE_CLUSTERD_ADDR": "127.0.0.1",
            "FAKE_CLUSTERD_PORT": str(self.clusterd_port),
            "FAKE_GROUPS": json.dumps(self.groups),
            **self.operator_variables(node),
            **self.injected_variables(),
        }
        python = '"%s"' % sys.executable
        manager = "%s %s/manager.py & " % (python, self.site) if node == 0 else ""
        script = "%sexec %s %s/torchrun.py" % (manager, python, self.site)
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script]
        with open(self.log(node), "wb") as log:
            pod = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        start(self.watch_pod, pod)
        return pod

    def operator_variables(self, node):
        """What ascend-operator sets."""
        variables = {
            "RANK": str(node),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.ranks_per_node),
            "MASTER_ADDR": self.address,
        }
        if self.mindspore:
            variables = {NAMES[name]: value for name, value in variables.items()}
            variables["MINDIO_FOR_MINDSPORE"] = "1"
        return {**variables, "MINDX_TASK_ID": self.name, "TTP_RETRY_TIMES": "5"}

    def injected_variables(self):
        """What Swansong injects."""
        variables = {"POD_IP": self.address, "TTP_PORT": "8000"}
        if self.mindspore:
            variables.update(MS_TFT_IP=self.address, MS_TFT_PORT="8000")
        else:
            variables["TTP_ADDR"] = self.address
        if self.limit is not None:
            variables["TTP_NORMAL_ACTION_TIME_LIMIT"] = str(self.limit)
        return {name: value for name, value in variables.items() if name not in self.without}

    def watch_pod(self, pod):
        if pod.wait() == 0:
            return
        self.ended_pod.set()
        time.sleep(seconds(OPERATOR_DELAY))
        if self.failed.is_set() or self.retries > 0:
            return
        self.failed.set()
        self.status = self.clusterd.delete_pod_group(self.name)
        if self.clean_pods:
            for other in self.pods:
                self.delete(other)

    def delete(self, pod):
        """Deletes a Pod as the kubelet does; returns without waiting for its end."""
        signal_init(pod, signal.SIGTERM)
        start(self.kill_after_grace, pod)

    @staticmethod
    def kill_after_grace(pod):
        try:
            pod.wait(seconds(GRACE_PERIOD))
        except subprocess.TimeoutExpired:
            pod.kill()

    def wait_until_training(self, timeout=20):
        """True when all ranks are registered with the controller, and that with ClusterD."""
        return self.wait_for_log("all processors registered", timeout, lambda: self.clusterd.jobs.get(self.name))

    def wait_for_log(self, text, timeout=20, condition=lambda: True):
        """True when a log has a text while a condition holds."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if condition() and text in self.logs():
                return True
            time.sleep(0.02)
        return False

    def connected(self):
        """The number of processors that are connected to the controller."""
        lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        end = "%s:%04X" % ("".join("%02X" % int(part) for part in reversed(self.address.split("."))), 8000)
        return sum(line.split()[1] == end and line.split()[3] == "01" for line in lines)

    def kill_rank(self, rank):
        """Ends one training process, as the loss of its device may."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
                program = (process / "cmdline").read_bytes()
            except OSError:
                continue
            expected = (b"RANK=%d" % rank, b"MINDX_TASK_ID=%s" % self.name.encode())
            if b"train.py" in program and all(variable in variables for variable in expected):
                os.kill(int(process.name), signal.SIGKILL)
                return
        raise LookupError("no process of rank %d" % rank)

    def lose_devices(self, *ranks):
        """The devices of `ranks` are gone; their processes continue, but can't save."""
        for rank in ranks:
            (self.checkpoints / ("lost-device-%d" % rank)).touch()

    def device_fault(self, *ranks):
        self.lose_devices(*ranks)
        self.clusterd.device_fault(self.name, list(ranks))

    def wait_for_outcome(self, timeout):
        """Whether there is a file, and the status, once neither can change any more; both as they are after `timeout`.

        They can't after a Pod has ended and the result of the dump is known, or can't be since the Manager has ended.
        """
        deadline = time.monotonic() + seconds(timeout) + 5
        while time.monotonic() < deadline and not self.has_finished():
            time.sleep(0.02)
        return self.has_file(), self.recover_status()

    def has_finished(self):
        has_lost_manager = self.pods[0].poll() is not None
        if self.retries == 0:
            return self.failed.is_set() and (self.has_file() or has_lost_manager or self.status == "dump-failed")
        return self.ended_pod.is_set() and (has_lost_manager or self.recover_status() is not None)

    def recover_status(self):
        """What the PodGroup says, or said when it was deleted."""
        job = self.clusterd.jobs.get(self.name)
        return job.status if job else self.status

    def has_file(self):
        return any(self.checkpoints.glob("iter_*/rank-*"))

    def log(self, node):
        return pathlib.Path(self.folder.name, "pod-%d.log" % node)

    def logs(self):
        return "\n".join("== pod %d\n%s" % (node, self.log(node).read_text()) for node in range(len(self.pods)))

    def close(self):
        for pod in self.pods:
            pod.kill()
            pod.wait()
        self.folder.cleanup()


def signal_init(pod, number):
    """Signals the first process of the Pod's PID namespace, the child of `unshare`."""
    children = pathlib.Path("/proc/%d/task/%d/children" % (pod.pid, pod.pid))
    try:
        for child in children.read_text().split():
            os.kill(int(child), number)
    except (FileNotFoundError, ProcessLookupError):
        pass
