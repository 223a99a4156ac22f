"""Runs jobs of the fakes: each Pod in a separate PID namespace, so that its processes end with its launcher.

The Job here also plays ascend-operator: a Pod that fails makes the job fail at once, and its PodGroup is deleted. Needs
root, and a network namespace in which ports 8000 and 9601 are free.
"""

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

HERE = pathlib.Path(__file__).resolve().parent
HOOK = HERE.parents[2] / "webhook/inject/src/launcher_hook/swansong_launcher_hook.py"
# From the end of a Pod to the deletion of the PodGroup.
OPERATOR_DELAY = 0.3
GRACE_PERIOD = 30
PROGRAM = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


class Job:
    """A training job with `nodes` Pods of `ranks_per_node` ranks, the Manager beside rank 0."""

    count = 0

    def __init__(self, nodes=2, ranks_per_node=2, groups=None, save=10, limit=None, hook=None, clean_pods=False, ttp_addr=True):
        Job.count += 1
        self.name = "job-%d" % Job.count
        self.address = "127.0.%d.1" % Job.count
        self.ranks_per_node = ranks_per_node
        self.world_size = nodes * ranks_per_node
        self.groups = groups or [{"ranks": list(range(self.world_size)), "replicas": 2}]
        self.save, self.limit, self.hook, self.clean_pods, self.ttp_addr = save, limit, hook, clean_pods, ttp_addr
        self.folder = tempfile.TemporaryDirectory()
        self.checkpoints = pathlib.Path(self.folder.name, "checkpoints")
        self.clusterd = ClusterD(ranks_per_node)
        self.clusterd_port = self.clusterd.serve()
        self.status = None
        self.failed = threading.Event()
        self.site = self.prepare_image()
        self.pods = [self.start_pod(node) for node in range(nodes)]

    def prepare_image(self):
        """The user site directory, in which Python finds modules and `.pth` files as in the system's one."""
        version = "python%d.%d" % sys.version_info[:2]
        site = pathlib.Path(self.folder.name, "lib", version, "site-packages")
        shutil.copytree(HERE, site, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
        if self.hook is not None:
            shutil.copy(HOOK, site)
            call = "import swansong_launcher_hook; swansong_launcher_hook.install(%d)\n" % self.hook
            (site / "swansong_launcher_hook.pth").write_text(call)
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
            "MINDX_TASK_ID": self.name,
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.ranks_per_node),
            "NODE_RANK": str(node),
            "POD_IP": self.address,
            "MASTER_ADDR": self.address,
            "TTP_PORT": "8000",
            "TTP_RETRY_TIMES": "5",
        }
        if self.ttp_addr:
            environment["TTP_ADDR"] = self.address
        if self.limit is not None:
            environment["TTP_NORMAL_ACTION_TIME_LIMIT"] = str(self.limit)
        python = '"%s"' % sys.executable
        manager = "%s %s/manager.py & " % (python, self.site) if node == 0 else ""
        script = "%sexec %s %s/torchrun.py" % (manager, python, self.site)
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script]
        with open(self.log(node), "wb") as log:
            pod = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        start(self.watch_pod, pod)
        return pod

    def watch_pod(self, pod):
        if pod.wait() == 0:
            return
        time.sleep(seconds(OPERATOR_DELAY))
        if self.failed.is_set():
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
        """True when all ranks are connected to the controller."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.clusterd.jobs.get(self.name) and self.connected() == self.world_size:
                return True
            time.sleep(0.02)
        return False

    def connected(self):
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

    def device_fault(self, *ranks):
        self.clusterd.device_fault(self.name, list(ranks))

    def wait_for_outcome(self, timeout):
        """Waits until the job has failed and its files are renamed, or can't be any more since the Manager has ended."""
        deadline = time.monotonic() + seconds(timeout) + 5
        while time.monotonic() < deadline and not (self.failed.is_set() and (self.has_file() or self.has_lost_manager())):
            time.sleep(0.02)
        return self.has_file(), self.status

    def has_lost_manager(self):
        return self.pods[0].poll() is not None

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
