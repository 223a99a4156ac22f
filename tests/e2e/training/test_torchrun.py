"""The launcher hook in the launcher of the real torch, and in the ways in which a start script may start Python.

`cargo test --test e2e-training` runs each test in separate network and mount namespaces, as root. The site directory of
an image is a folder that is mounted over that of the machine.
"""

import os
import pathlib
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
HOOK = HERE.parents[2] / "webhook/inject/src/launcher_hook/swansong_launcher_hook.py"
PTH = HOOK.with_name("swansong-launcher-hook.pth")
AGENT = "taskd.python.framework.agent.pt_agent.pt_agent"
ACTIVE = "swansong launcher hook: active"
# Of the image: where pip installs TaskD, and so where libtaskd.so is.
SITE = site.getsitepackages()[0]
RUN_PY = "/usr/lib/python3/dist-packages/torch/distributed/run.py"
TORCHRUN = ("/usr/bin/python3", "-m", "torch.distributed.run")
# torch 1.13 with Python 3.11 misreads its own default, 0; a setting for a rank that doesn't exist means the same.
DEFAULTS = ("--redirects", "9:3", "--tee", "9:3")
TIMEOUT = 60


def mount_over(source, target):
    subprocess.check_call(["mount", "--bind", str(source), target])


class Launcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"
        self.image = self.folder / "image"
        shutil.copytree(HERE / "image", self.image)
        mount_over(self.image, SITE)
        self.addCleanup(subprocess.check_call, ["umount", SITE])
        self.listener = socket.socket()
        self.listener.bind(("", 0))
        self.listener.listen(16)
        self.addCleanup(self.listener.close)

    def add_hook(self, patch_launcher=False):
        shutil.copy(HOOK, self.image)
        line = PTH.read_text().replace("LIMIT", str(TIMEOUT)).replace("PATCH", repr(patch_launcher))
        (self.image / PTH.name).write_text(line)

    def patch_run_py(self):
        """What the line `sed` of MindCluster's Dockerfile does."""
        patched = self.folder / "run.py"
        patched.write_text("import taskd.python.adaptor.patch\n" + pathlib.Path(RUN_PY).read_text())
        mount_over(patched, RUN_PY)
        self.addCleanup(subprocess.check_call, ["umount", RUN_PY])

    def launch(self, torchrun=TORCHRUN, ranks=2):
        """Starts torchrun, and waits until its ranks are connected."""
        with open(self.log, "wb") as log:
            launcher = subprocess.Popen(
                [*torchrun, *DEFAULTS, "--nproc_per_node", str(ranks), "--master_port", "29500", str(HERE / "rank.py")],
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.addCleanup(self.kill_session, launcher)
        self.connections = [self.accept(launcher) for _ in range(ranks)]
        return launcher

    def environment(self):
        port = str(self.listener.getsockname()[1])
        return {**os.environ, "TTP_PORT": port, "FAKE_ORDER": str(self.folder / "order"), "OMP_NUM_THREADS": "1"}

    def accept(self, launcher):
        """The next connection of a rank."""
        self.listener.settimeout(0.2)
        for _ in range(5 * TIMEOUT):
            try:
                connection, _ = self.listener.accept()
            except socket.timeout:
                self.assertIsNone(launcher.poll(), self.log.read_text())
            else:
                self.addCleanup(connection.close)
                return connection
        return self.fail(self.log.read_text())

    @staticmethod
    def kill_session(launcher):
        try:
            os.killpg(launcher.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        launcher.wait()

    def order_exit(self):
        (self.folder / "order").touch()

    def wait_for_log(self, text):
        deadline = time.monotonic() + TIMEOUT
        while text not in self.log.read_text():
            self.assertLess(time.monotonic(), deadline, self.log.read_text())
            time.sleep(0.02)

    def end_dump(self):
        for connection in self.connections:
            connection.close()


class Torchrun(Launcher):
    def test_without_the_hook_the_order_stops_the_ranks_at_once(self):
        self.patch_run_py()
        launcher = self.launch()
        self.order_exit()
        self.assertEqual(launcher.wait(TIMEOUT), 1)
        for connection in self.connections:
            connection.settimeout(TIMEOUT)
            self.assertEqual(connection.recv(1), b"")

    def test_the_order_waits_until_the_processors_disconnect(self):
        self.patch_run_py()
        self.add_hook()
        launcher = self.launch()
        self.order_exit()
        self.wait_for_log("exit ordered: waiting for 4 connections")
        self.assertNotIn("exit_agent stops the ranks", self.log.read_text())
        self.end_dump()
        self.assertEqual(launcher.wait(TIMEOUT), 1)
        self.wait_for_log("all processors disconnected")
        self.assertIn("exit_agent stops the ranks", self.log.read_text())

    def test_torchs_store_responds_during_the_wait(self):
        self.patch_run_py()
        self.add_hook()
        launcher = self.launch()
        self.order_exit()
        self.wait_for_log("exit ordered")
        for connection in self.connections:
            connection.settimeout(TIMEOUT)
            connection.sendall(b"save")
            self.assertEqual(connection.recv(16), b"saved", self.log.read_text())
        self.assertIsNone(launcher.poll())

    def test_sigterm_ends_the_wait_and_the_ranks(self):
        self.patch_run_py()
        self.add_hook()
        launcher = self.launch()
        self.order_exit()
        self.wait_for_log("exit ordered")
        launcher.send_signal(signal.SIGTERM)
        self.wait_for_log("death signal")
        self.assertNotEqual(launcher.wait(TIMEOUT), 0)
        self.assertNotIn("exit_agent stops the ranks", self.log.read_text())

    def test_the_launcher_is_patched_exactly_once_where_asked_for(self):
        self.add_hook(patch_launcher=True)
        for name, torchrun in (("module", TORCHRUN), ("script", ("/usr/bin/torchrun",))):
            with self.subTest(name):
                launcher = self.launch(torchrun)
                self.assertEqual(self.log.read_text().count("patched by process"), 1)
                self.assertIn("patched by process %d\n" % launcher.pid, self.log.read_text())
                self.wait_for_log(ACTIVE)
                self.kill_session(launcher)

    def test_a_patched_launcher_is_not_patched_again(self):
        self.patch_run_py()
        self.add_hook(patch_launcher=True)
        self.launch()
        self.assertEqual(self.log.read_text().count("patched by process"), 1)

    def test_an_unpatched_launcher_stays_unpatched_without_being_asked(self):
        self.add_hook()
        self.launch()
        self.assertNotIn("patched by process", self.log.read_text())
        self.assertNotIn("swansong launcher hook", self.log.read_text())


class Defaults(Launcher):
    """The variables of `torchrunDefaults`."""

    PET = {"PET_MAX_RESTARTS": "32767", "PET_MONITOR_INTERVAL": "10"}

    def environment(self):
        return {**super().environment(), **self.PET}

    def test_variables_are_defaults_of_the_flags(self):
        self.patch_run_py()
        self.launch()
        self.wait_for_log("max_restarts 32767, monitor_interval 10\n")

    def test_flag_wins_over_its_variable(self):
        self.patch_run_py()
        for flags, expected in (
            (("--max_restarts", "3"), "max_restarts 3, monitor_interval 10\n"),
            (("--monitor_interval", "1"), "max_restarts 32767, monitor_interval 1\n"),
        ):
            with self.subTest(flags):
                launcher = self.launch((*TORCHRUN, *flags))
                self.wait_for_log(expected)
                self.kill_session(launcher)


class TwoNodes(Launcher):
    """One launcher here and one in a second network namespace, with a link between them."""

    ADDRESSES = ("10.77.0.1", "10.77.0.2")

    def setUp(self):
        super().setUp()
        other = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE
        )
        self.addCleanup(other.stdout.close)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        other.stdout.readline()
        self.enter = ("nsenter", "--net=/proc/%d/ns/net" % other.pid)
        subprocess.check_call(["ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1", "netns", str(other.pid)])
        for enter, link, address in (((), "node0", self.ADDRESSES[0]), (self.enter, "node1", self.ADDRESSES[1])):
            subprocess.check_call([*enter, "ip", "link", "set", "lo", "up"])
            subprocess.check_call([*enter, "ip", "address", "add", address + "/24", "dev", link])
            subprocess.check_call([*enter, "ip", "link", "set", link, "up"])

    def environment(self):
        return {**super().environment(), "TTP_ADDR": self.ADDRESSES[0]}

    def launch_both(self):
        """Starts both launchers, and waits until all ranks are connected."""
        flags = ("--nnodes", "2", "--nproc_per_node", "1", "--master_addr", self.ADDRESSES[0], "--master_port", "29500")
        logs, launchers = [], []
        for rank, enter in enumerate(((), self.enter)):
            logs.append(self.folder / ("log%d" % rank))
            with open(logs[rank], "wb") as log:
                command = [*enter, *TORCHRUN, *DEFAULTS, *flags, "--node_rank", str(rank), str(HERE / "rank.py")]
                launchers.append(
                    subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log, start_new_session=True)
                )
            self.addCleanup(self.kill_session, launchers[rank])
        self.log = logs[0]
        self.connections = [self.accept(launchers[0]) for _ in range(2)]
        return launchers, logs

    def expect_patched_once(self, is_patched, patch_launcher):
        if is_patched:
            self.patch_run_py()
        self.add_hook(patch_launcher)
        launchers, logs = self.launch_both()
        for log in logs:
            self.assertEqual(log.read_text().count("patched by process"), 1, log.read_text())
            self.assertIn(ACTIVE, log.read_text())
        self.order_exit()
        for self.log in logs:
            self.wait_for_log("exit ordered: waiting for")
        self.end_dump()
        self.assertEqual([launcher.wait(TIMEOUT) for launcher in launchers], [1, 1])

    def test_unpatched_launchers_are_patched_by_the_hook(self):
        self.expect_patched_once(is_patched=False, patch_launcher=True)

    def test_launchers_of_a_patched_image_are_left_as_they_are(self):
        self.expect_patched_once(is_patched=True, patch_launcher=False)

    def test_launchers_are_not_patched_twice(self):
        self.expect_patched_once(is_patched=True, patch_launcher=True)


class StartScripts(Launcher):
    """Whether the hook is loaded, by how Python is started."""

    def is_loaded(self, *command, **environment):
        code = "import sys; print('SwansongTrigger' in str(sys.meta_path))"
        output = subprocess.check_output([*command, "-c", code], env={**os.environ, **environment})
        return {b"True\n": True, b"False\n": False}[output]

    def setUp(self):
        super().setUp()
        self.add_hook()

    def virtual_environment(self, *options):
        """Without pip; its interpreter."""
        folder = self.folder / "venv"
        subprocess.check_call(["/usr/bin/python3", "-m", "venv", "--without-pip", *options, str(folder)])
        return str(folder / "bin" / "python")

    def test_options_and_variables_that_leave_it_loaded(self):
        for options in ([], ["-E"], ["-I"], ["-s"], ["-B"], ["-O"], ["-u"]):
            with self.subTest(options):
                self.assertTrue(self.is_loaded("/usr/bin/python3", *options))
        for value in ("", "/usr/lib", "/nowhere"):
            with self.subTest(PYTHONPATH=value):
                self.assertTrue(self.is_loaded("/usr/bin/python3", PYTHONPATH=value))
        self.assertTrue(self.is_loaded("/usr/bin/python3", PYTHONNOUSERSITE="1", PYTHONDONTWRITEBYTECODE="1"))

    def test_venv_with_system_site_packages_leaves_it_loaded(self):
        self.assertTrue(self.is_loaded(self.virtual_environment("--system-site-packages")))

    def test_venv_without_system_site_packages_does_not_load_it(self):
        self.assertFalse(self.is_loaded(self.virtual_environment()))

    def test_option_s_does_not_load_it(self):
        self.assertFalse(self.is_loaded("/usr/bin/python3", "-S"))

    def test_interpreter_of_another_prefix_does_not_load_it(self):
        """As conda's, whose site directory is elsewhere than the one that the path of libtaskd.so names."""
        prefix = self.folder / "conda"
        (prefix / "bin").mkdir(parents=True)
        shutil.copy("/usr/bin/python3", prefix / "bin/python")
        library = prefix / "lib"
        library.mkdir()
        version = "python%d.%d" % sys.version_info[:2]
        (library / version).symlink_to("/usr/lib/" + version)
        self.assertFalse(self.is_loaded(str(prefix / "bin/python")))

    def test_launcher_that_imports_the_agent_is_seen_in_proc(self):
        code = "import %s as m; print(m.__name__, flush=True); input()" % AGENT
        process = subprocess.Popen(
            ["/usr/bin/python3", "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        )
        self.assertEqual(process.stdout.readline(), AGENT + "\n")
        folder = pathlib.Path("/proc/%d/fd" % process.pid)
        self.assertIn("%s/%s" % (SITE, HOOK.name), [os.readlink(link) for link in folder.iterdir()])
        _, errors = process.communicate("\n")
        self.assertIn(ACTIVE, errors)


if __name__ == "__main__":
    unittest.main()
