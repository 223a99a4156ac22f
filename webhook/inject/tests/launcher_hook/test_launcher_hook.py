"""Tests of the launcher hook in real Python processes, with a TaskD of the same shape and real TCP connections."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
HOOK = HERE.parent.parent / "src" / "launcher_hook" / "swansong_launcher_hook.py"
PTH = HOOK.with_name("swansong-launcher-hook.pth")
LIMIT_SECONDS = 60
AGENT_MODULE = "taskd/python/framework/agent/pt_agent/pt_agent.py"
AGENT = """
    class PtAgent:
        def __init__(self):
            self.command_map = {203: self.exit_agent}

        def exit_agent(self, msg):
            print("exiting after", msg, flush=True)
            raise SystemExit(1)
"""
LAUNCHER = """
    import signal
    from taskd.python.framework.agent.pt_agent.pt_agent import PtAgent

    class SignalException(Exception):
        pass

    def on_signal(number, frame):
        raise SignalException("signal %d" % number)

    signal.signal(signal.SIGTERM, on_signal)
    PtAgent().command_map[203]("203")
"""

# Each of these precedes the launcher and has its indentation.
UNREADABLE_PROC = """
    import os
    listdir = os.listdir

    def refuse(path):
        if path.endswith("/fd"):
            raise PermissionError(path)
        return listdir(path)

    os.listdir = refuse
"""
FAILING_PROC = """
    import os, sys
    listdir = os.listdir
    calls = []

    def fail_at_times(path):
        if path == "/proc":
            calls.append(path)
            if len(calls) in (1, 3, 4):
                raise OSError(24, "Too many open files")
            if len(calls) == 6:
                print("proc failed", file=sys.stderr, flush=True)
        return listdir(path)

    os.listdir = fail_at_times
"""
SEARCHING_FINDER = """
    import sys

    class Searching:
        def find_spec(self, name, path=None, target=None):
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(name, path, target)
                if spec is not None:
                    return spec

    sys.meta_path.insert(0, Searching())
"""


class Image:
    """A site directory with the hook, a fake TaskD and a launcher, as a container's image has them."""

    def __init__(self, agent=AGENT, limit_seconds=LIMIT_SECONDS, patch_launcher=False):
        self.folder = tempfile.TemporaryDirectory()
        self.site = pathlib.Path(self.folder.name)
        (self.site / HOOK.name).write_text(HOOK.read_text())
        line = PTH.read_text().replace("LIMIT", str(limit_seconds)).replace("PATCH", repr(patch_launcher))
        (self.site / PTH.name).write_text(line)
        self.write(AGENT_MODULE, agent)

    def write(self, path, text):
        file = self.site / path
        for folder in reversed(file.relative_to(self.site).parents):
            (self.site / folder).mkdir(exist_ok=True)
            if folder != pathlib.Path("."):
                (self.site / folder / "__init__.py").touch()
        file.write_text(textwrap.dedent(text))

    def run(self, program, **environment):
        """Starts Python with this folder as site directory, before a torch that the machine has."""
        site = str(self.site)
        code = "import site, sys; sys.path.insert(0, %r); site.addsitedir(%r)\n%s" % (site, site, textwrap.dedent(program))
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )


class Processor:
    """A connection from this process, a fake of a rank, to a controller, both on this machine."""

    def __init__(self, address="127.0.0.1", port=0, family=socket.AF_INET):
        self.listener = socket.socket(family)
        self.listener.bind((address, int(port)))
        self.listener.listen(1)
        self.port = str(self.listener.getsockname()[1])
        self.client = socket.socket(family)
        self.client.connect((address, int(self.port)))
        self.server, _ = self.listener.accept()

    def disconnect(self):
        self.client.close()
        self.server.close()

    def close(self):
        self.disconnect()
        self.listener.close()


def read_until(stream, text):
    """Reads lines until one has `text`, and returns it."""
    for line in stream:
        if text in line:
            return line
    raise AssertionError("no line with %r" % text)


class LauncherHook(unittest.TestCase):
    def start(self, image, program=LAUNCHER, **environment):
        process = image.run(program, **environment)
        self.addCleanup(image.folder.cleanup)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def processor(self, *where):
        processor = Processor(*where)
        self.addCleanup(processor.close)
        return processor

    def test_exit_waits_until_connected_processors_disconnect(self):
        processor = self.processor()
        launcher = self.start(Image(), TTP_PORT=processor.port)
        self.assertIn("2 connections", read_until(launcher.stderr, "exit ordered"))
        self.assertIsNone(launcher.poll())
        later = socket.create_connection(processor.listener.getsockname())
        self.addCleanup(later.close)
        processor.disconnect()
        self.assertIn("all processors disconnected", read_until(launcher.stderr, "waited"))
        self.assertEqual(launcher.stdout.read(), "exiting after 203\n")
        self.assertEqual(launcher.wait(), 1)

    def test_exit_without_connection_follows_after_the_settle_time(self):
        launcher = self.start(Image(), TTP_PORT="1")
        self.assertIn("0 connections", read_until(launcher.stderr, "exit ordered"))
        self.assertIn("all processors disconnected", read_until(launcher.stderr, "waited"))
        self.assertEqual(launcher.wait(), 1)

    def test_wait_ends_at_the_limit(self):
        processor = self.processor()
        launcher = self.start(Image(limit_seconds=1), TTP_PORT=processor.port)
        self.assertIn("limit reached", read_until(launcher.stderr, "waited"))
        self.assertEqual(launcher.stdout.read(), "exiting after 203\n")

    def test_limit_of_the_environment_extends_the_wait(self):
        processor = self.processor()
        launcher = self.start(Image(limit_seconds=0), TTP_PORT=processor.port, TTP_NORMAL_ACTION_TIME_LIMIT="180")
        read_until(launcher.stderr, "exit ordered")
        processor.disconnect()
        self.assertIn("all processors disconnected", read_until(launcher.stderr, "waited"))

    def test_other_port_than_that_of_the_controller_is_not_waited_for(self):
        processor = self.processor()
        launcher = self.start(Image(), TTP_PORT="1", OTHER_PORT=processor.port)
        self.assertIn("0 connections", read_until(launcher.stderr, "exit ordered"))

    def test_connections_of_another_server_on_the_port_are_left_out_where_that_is_certain(self):
        controller = self.processor()
        other = self.processor("127.0.0.2", controller.port)
        for environment, count in (
            ({"TTP_ADDR": "127.0.0.1", "RANK": "1"}, 1),
            ({"MS_TFT_IP": "127.0.0.1", "MS_NODE_RANK": "12"}, 1),
            # The controller may run here, so all connections to its port count.
            ({"TTP_ADDR": "127.0.0.1", "RANK": "0"}, 3),
            ({"TTP_ADDR": "127.0.0.1"}, 3),
            # No process is connected to the address: the node may have translated it.
            ({"TTP_ADDR": "10.96.0.1", "RANK": "1"}, 4),
            ({"TTP_ADDR": "job-master-0", "RANK": "1"}, 4),
            ({"RANK": "1"}, 4),
        ):
            launcher = self.start(Image(), TTP_PORT=controller.port, **environment)
            self.assertIn("for %d connections" % count, read_until(launcher.stderr, "exit ordered"), environment)
            launcher.kill()
        launcher = self.start(Image(), TTP_PORT=controller.port, TTP_ADDR="127.0.0.1", RANK="1")
        read_until(launcher.stderr, "exit ordered")
        controller.disconnect()
        self.assertIn("all processors disconnected", read_until(launcher.stderr, "waited"))
        self.assertEqual(launcher.wait(), 1)
        other.disconnect()

    def test_address_of_ipv4_in_a_socket_of_ipv6_is_known(self):
        controller = self.processor("::ffff:127.0.0.1", 0, socket.AF_INET6)
        self.processor("127.0.0.2", controller.port)
        launcher = self.start(Image(), TTP_PORT=controller.port, TTP_ADDR="127.0.0.1", RANK="1")
        self.assertIn("for 1 connections", read_until(launcher.stderr, "exit ordered"))

    def test_connections_of_processes_that_cannot_be_inspected_count(self):
        processor = self.processor()
        launcher = self.start(Image(), UNREADABLE_PROC + LAUNCHER, TTP_PORT=processor.port)
        self.assertIn("2 connections", read_until(launcher.stderr, "exit ordered"))
        processor.disconnect()
        self.assertIn("all processors disconnected", read_until(launcher.stderr, "waited"))

    def test_short_failure_to_read_proc_does_not_end_the_wait(self):
        processor = self.processor()
        launcher = self.start(Image(), FAILING_PROC + LAUNCHER, TTP_PORT=processor.port)
        read_until(launcher.stderr, "proc failed")
        self.assertIsNone(launcher.poll())
        processor.disconnect()
        self.assertIn("all processors disconnected", read_until(launcher.stderr, "waited"))

    def test_hook_is_registered_once(self):
        image = Image()
        program = "site.addsitedir(%r + '/')\n" % str(image.site) + textwrap.dedent(LAUNCHER)
        launcher = self.start(image, program, TTP_PORT="1")
        self.assertIn("active", read_until(launcher.stderr, "active"))
        self.assertEqual(launcher.stdout.read(), "exiting after 203\n")

    def test_finder_that_searches_all_finders_is_no_endless_loop(self):
        launcher = self.start(Image(), SEARCHING_FINDER + LAUNCHER, TTP_PORT="1")
        self.assertIn("active", read_until(launcher.stderr, "active"))
        self.assertEqual(launcher.stdout.read(), "exiting after 203\n")

    def test_sigterm_ends_the_wait(self):
        processor = self.processor()
        launcher = self.start(Image(), TTP_PORT=processor.port)
        read_until(launcher.stderr, "exit ordered")
        launcher.send_signal(signal.SIGTERM)
        self.assertIn("SignalException: signal 15", launcher.stderr.read())
        self.assertEqual(launcher.stdout.read(), "")

    def test_agent_with_other_parameters_is_left_unchanged(self):
        agent = AGENT.replace("(self, msg)", "(self, msg, reason='none')")
        launcher = self.start(Image(agent), TTP_PORT="1")
        self.assertIn("not as expected", read_until(launcher.stderr, "not active"))
        self.assertEqual(launcher.stdout.read(), "exiting after 203\n")

    def test_module_without_agent_is_left_unchanged(self):
        launcher = self.start(Image("VERSION = 2\n"), "import %s as m; print(m.VERSION)" % AGENT_MODULE[:-3].replace("/", "."))
        self.assertIn("not as expected", read_until(launcher.stderr, "not active"))
        self.assertEqual(launcher.stdout.read(), "2\n")

    def test_processes_that_are_no_launcher_are_unchanged(self):
        process = self.start(Image(), "import json, sys; print({'taskd', 'swansong_launcher_hook'} & set(sys.modules))")
        self.assertEqual(process.stdout.read(), "set()\n")
        self.assertEqual(process.stderr.read(), "")

    def test_missing_taskd_raises_as_without_the_hook(self):
        image = Image()
        (image.site / AGENT_MODULE).unlink()
        process = self.start(image)
        self.assertIn("ModuleNotFoundError", process.stderr.read())

    def test_active_hook_is_visible_in_proc(self):
        processor = self.processor()
        launcher = self.start(Image(), TTP_PORT=processor.port)
        read_until(launcher.stderr, "exit ordered")
        folder = "/proc/%d/fd" % launcher.pid
        links = [os.readlink("%s/%s" % (folder, name)) for name in os.listdir(folder)]
        self.assertTrue([link for link in links if link.endswith("/" + HOOK.name)], links)

    def test_launcher_patch_is_imported_once_where_asked_for(self):
        for run in ("from torch.distributed import run", "import runpy; runpy.run_module('torch.distributed.run')"):
            for patch_launcher, expected in ((True, "patched\nlaunched\n"), (False, "launched\n")):
                with self.subTest(run=run, patch_launcher=patch_launcher):
                    image = Image(patch_launcher=patch_launcher)
                    image.write("taskd/python/adaptor/patch.py", "print('patched')\n")
                    image.write("torch/distributed/run.py", "print('launched')\n")
                    process = self.start(image, run)
                    self.assertEqual(process.stdout.read(), expected)

    def test_image_with_patched_launcher_is_patched_once(self):
        image = Image(patch_launcher=True)
        image.write("taskd/python/adaptor/patch.py", "print('patched')\n")
        image.write("torch/distributed/run.py", "import taskd.python.adaptor.patch\nprint('launched')\n")
        process = self.start(image, "from torch.distributed import run")
        self.assertEqual(process.stdout.read(), "patched\nlaunched\n")

    def test_failing_launcher_patch_leaves_the_launcher_usable(self):
        image = Image(patch_launcher=True)
        image.write("taskd/python/adaptor/patch.py", "raise RuntimeError('no libtaskd.so')\n")
        image.write("torch/distributed/run.py", "print('launched')\n")
        process = self.start(image, "from torch.distributed import run")
        self.assertEqual(process.stdout.read(), "launched\n")
        self.assertIn("stays unpatched", process.stderr.read())


if __name__ == "__main__":
    unittest.main()
