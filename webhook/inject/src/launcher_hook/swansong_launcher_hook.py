"""Delays TaskD's order to exit until the dying checkpoint of the job is written.

When ranks are lost, TaskD Manager orders the launcher of their node to kill its workers and to exit (command 203, the
method `exit_agent` of TaskD's agent), a few seconds after MindIO was ordered to save. On that node the surviving ranks,
or the Manager itself, are then killed while they save. This module wraps that one method, so that it first waits until
the processors that were connected to TTP_PORT have disconnected, which they do when the checkpoint is written.

Swansong mounts this file and a `.pth` file into the image's site directory. Python runs the latter's one line at each
start, in every process of the container. It registers an import hook, which imports this module in the process that
imports TaskD's agent or torch's launcher; no other process is changed.
"""

import sys

TASKD_PATCH = "taskd.python.adaptor.patch"
TORCH_LAUNCHER = "torch.distributed.run"
AGENTS = {
    "taskd.python.framework.agent.pt_agent.pt_agent": "PtAgent",
    "taskd.python.framework.agent.ms_agent.ms_agent": "MsAgent",
}
ESTABLISHED = "01"
UNREADABLE = (OSError, ValueError, IndexError)
# A process or descriptor has ended while /proc is read.
GONE = (FileNotFoundError, ProcessLookupError)
# From the last disconnection to the exit: the Manager reports the result of the dump meanwhile.
SETTLE_SECONDS = 2.0
POLL_SECONDS = 0.2
# How long /proc may be unreadable when the order comes.
RETRY_SECONDS = 10.0
# By which processors find the controller, and the numbers of nodes, one of which is not 0 where no controller runs.
ADDRESSES = ("PROCESSOR_ADDR", "TTP_ADDR", "CONTROLLER_ADDR", "MS_TFT_IP")
NODE_RANKS = ("RANK", "MS_NODE_RANK")
MAPPED_IPV4 = b"\0" * 10 + b"\xff\xff"
# MindIO's limit for saving, and what the hook waits longer.
SAVE_LIMIT = "TTP_NORMAL_ACTION_TIME_LIMIT"
MAX_SAVE_SECONDS = 1800
MARGIN_SECONDS = 60


def install(limit_seconds, patch_launcher=False):
    """Returns the import hook, which is registered once.

    Python reads a `.pth` file once for each spelling of its directory, such as `lib` and `lib64`.
    """
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            return finder
    finder = Finder(limit_seconds, patch_launcher)
    sys.meta_path.insert(0, finder)
    return finder


class Finder:
    """Finds the modules of TaskD's agents as Python would, and wraps their `exit_agent` once they are loaded."""

    def __init__(self, limit_seconds, patch_launcher):
        self.limit_seconds = limit_seconds
        self.patch_launcher = patch_launcher
        self.searching = set()

    def find_spec(self, name, path=None, target=None):
        if name == TORCH_LAUNCHER and self.patch_launcher:
            self.patch_launcher = False
            import_taskd_patch()
        # Another finder may search sys.meta_path in turn, and so call this one again.
        if name not in AGENTS or name in self.searching:
            return None
        self.searching.add(name)
        try:
            spec = self.find_with_others(name, path, target)
        finally:
            self.searching.discard(name)
        if spec is not None:
            try:
                wrap_after_loading(spec.loader, AGENTS[name], self.limit_seconds)
            except Exception as error:  # The launcher has to start with any loader.
                log("not active: %s can't be wrapped: %r" % (name, error))
        return spec

    def find_with_others(self, name, path, target):
        """What the import system finds without this finder."""
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None


def import_taskd_patch():
    """Imports TaskD's patch of torch's launcher, which otherwise a line in the image's torch/distributed/run.py does."""
    import importlib

    try:
        importlib.import_module(TASKD_PATCH)
        log("imported %s" % TASKD_PATCH)
    except Exception as error:
        log("%s can't be imported, the launcher stays unpatched: %r" % (TASKD_PATCH, error))


def wrap_after_loading(loader, class_name, limit_seconds):
    """Has `loader` wrap the agent class of the module that it loads."""
    load = loader.exec_module

    def exec_module(module):
        load(module)
        try:
            wrap_exit_agent(getattr(module, class_name), limit_seconds)
        except Exception as error:
            log("not active: %s is not as expected: %r" % (module.__name__, error))

    loader.exec_module = exec_module


def wrap_exit_agent(agent, limit_seconds):
    """Replaces `exit_agent` of the class, before TaskD creates an instance, whose command table binds the method."""
    import functools
    import inspect

    exit_agent = agent.exit_agent
    parameters = list(inspect.signature(exit_agent).parameters)
    if parameters != ["self", "msg"] or inspect.iscoroutinefunction(exit_agent):
        raise TypeError("exit_agent has the parameters %s" % parameters)

    @functools.wraps(exit_agent)
    def exit_agent_after_dump(self, msg):
        wait_for_dump(limit_seconds)
        return exit_agent(self, msg)

    agent.exit_agent = exit_agent_after_dump
    keep_file_open()
    log("active: an order to exit waits up to %d s for a dump" % limit_seconds)


def keep_file_open():
    """Keeps a descriptor of this file open, by which the node agent sees in /proc that the hook is active."""
    import os

    try:
        os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        log("the node agent can't see this hook: %r" % error)


def wait_for_dump(limit_seconds):
    """Returns when the connections to TTP_PORT that are open now have been closed for two seconds, or at the limit.

    Connections that are opened later don't count: ranks of other nodes are restarted after the dump and connect again.
    Signals are not delayed: what a signal handler raises, such as torch's SignalException on SIGTERM, ends the wait. It
    is an Exception, so nothing here may catch more than reading /proc can raise.
    """
    from time import monotonic, sleep

    start = monotonic()
    limit_seconds = max(limit_seconds, limit_of_environment())
    waited_for = None
    closed_since = None
    while monotonic() - start < limit_seconds:
        try:
            connections = processor_connections()
            if waited_for is None:
                waited_for = without_other_servers(connections)
                log("exit ordered: waiting for %d connections of processors" % len(waited_for))
        except UNREADABLE as error:
            if waited_for is None and monotonic() - start >= RETRY_SECONDS:
                log("no wait: the connections can't be read: %r" % error)
                return
            # What can't be read may still be open.
            closed_since = None
            sleep(POLL_SECONDS)
            continue
        if waited_for & connections:
            closed_since = None
        elif closed_since is None:
            closed_since = monotonic()
        elif monotonic() - closed_since >= SETTLE_SECONDS:
            log("waited %.1f s: all processors disconnected" % (monotonic() - start))
            return
        sleep(POLL_SECONDS)
    log("waited %.1f s: limit reached, processors may still be connected" % (monotonic() - start))


def limit_of_environment():
    """How long a save may take by the environment, which a start script can change, and the margin; 0 if unset."""
    import os

    value = os.environ.get(SAVE_LIMIT, "")
    return min(int(value), MAX_SAVE_SECONDS) + MARGIN_SECONDS if value.isdigit() else 0


def processor_connections():
    """The established TCP connections from or to a port of MindIO that processes of this container hold.

    Under hostNetwork /proc/net lists the connections of the whole node, so the owner of the socket is compared, unless
    a process can't be inspected, whose sockets aren't known.
    """
    ports = controller_ports()
    sockets = socket_inodes()
    found = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in read_lines(table)[1:]:
            fields = line.split()
            if len(fields) < 10 or fields[3] != ESTABLISHED or sockets is not None and fields[9] not in sockets:
                continue
            local, remote = fields[1], fields[2]
            if port_of(local) in ports or port_of(remote) in ports:
                found.add((local, remote))
    return found


def without_other_servers(connections):
    """Leaves out connections of another server that has the controller's port, where that is certain.

    It is if a process is connected to an address of the environment. Otherwise all count: a Service's address is another
    one in /proc/net where the node translates it when a process connects.
    """
    ports, addresses = controller_ports(), controller_addresses()
    dialed = {pair for pair in connections if port_of(pair[0]) not in ports}
    known = {pair for pair in dialed if address_of(pair[1]) in addresses}
    if not known:
        return connections
    return known if has_no_controller() else connections - dialed | known


def controller_addresses():
    """The addresses of the controller in the environment, as bytes; names are left out."""
    import os
    import socket

    addresses = set()
    for name in ADDRESSES:
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                addresses.add(socket.inet_pton(family, os.environ.get(name, "")))
            except (OSError, ValueError):
                continue
    return addresses


def has_no_controller():
    """Whether this is the container of another node than that of rank 0."""
    import os

    values = [os.environ.get(name, "") for name in NODE_RANKS]
    return any(value.isdigit() and int(value) > 0 for value in values)


def controller_ports():
    """The ports of MindIO's controller by the environment; 8000, which MindSpeed-LLM uses, where it has none."""
    import os

    values = [os.environ.get(name, "") for name in ("TTP_PORT", "MS_TFT_PORT")]
    return {int(value) for value in values if value.isdigit()} or {8000}


def socket_inodes():
    """The inodes of all sockets that processes hold, as text; None if a process can't be inspected."""
    import os

    inodes = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        folder = "/proc/%s/fd" % process
        try:
            for descriptor in os.listdir(folder):
                inodes.add(socket_inode("%s/%s" % (folder, descriptor)))
        except PermissionError:
            return None
        except GONE:
            continue
    return inodes


def socket_inode(link):
    """The inode of the socket to which a descriptor in /proc leads; None for another file or a closed descriptor."""
    import os

    try:
        target = os.readlink(link)
    except GONE:
        return None
    return target[8:-1] if target.startswith("socket:[") else None


def read_lines(path):
    """The lines of a file; none where the kernel has no such table."""
    try:
        with open(path) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def port_of(address):
    """The port of an address as /proc/net/tcp writes it, `0100007F:1F40`."""
    return int(address.rsplit(":", 1)[1], 16)


def address_of(endpoint):
    """The address of an endpoint as bytes; /proc/net/tcp has each four of them as a number of the machine's byte order."""
    import struct

    digits = endpoint.rsplit(":", 1)[0]
    address = b"".join(struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8))
    return address[12:] if address.startswith(MAPPED_IPV4) else address


def log(message):
    """Writes a line to standard error, which may be closed."""
    try:
        sys.stderr.write("swansong launcher hook: %s\n" % message)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
