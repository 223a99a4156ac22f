"""Runs the TaskD Manager beside rank 0, without numbers to fill in.

Swansong runs this text as a sidecar of rank 0's Pod; `swansong manager-py` prints it for start scripts. It takes the
number of nodes and processes from the variables of ascend-operator. While another process listens on the Manager's port,
it waits. Nothing ends a Manager: after SIGTERM, which the kubelet sends a sidecar once the training containers have
ended, this one ends when the processors that may be saving have been disconnected from MindIO's controller for five
seconds, so that a checkpoint that is being written gets its final name.
"""

import os
import signal
import socket
import sys
import time

TASKD_PORT = 9601
IDLE_SECONDS = 5.0
POLL_SECONDS = 0.2
OBSERVE_SECONDS = 1.0
# How long a loss of ranks shows that those that connect later were restarted.
RESTART_SECONDS = 120.0
ESTABLISHED = "01"


def main():
    """Runs the Manager in a child, since TaskD's library blocks the thread that starts it, also for signals."""
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.request)
    wait_for_port(stop)
    manager = os.fork()
    if manager == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        run_manager()
    log("the TaskD Manager runs as process %d" % manager)
    while not stop.is_due():
        status = ended(manager)
        if status is not None:
            log("the TaskD Manager ended with status %d" % status)
            return status
        time.sleep(POLL_SECONDS)
    os.kill(manager, signal.SIGKILL)
    return 0


class Stop:
    """Whether the training has ended, and no processor that may be saving has been connected for a while."""

    def __init__(self):
        self.is_requested = False
        self.processors = Processors()
        self.next_observation = 0.0
        self.waited_for = None
        self.idle_since = None

    def request(self, number, frame):
        self.is_requested = True

    def is_due(self):
        # SIGTERM may come while the connections are read.
        now, is_requested = time.monotonic(), self.is_requested
        if not is_requested and now < self.next_observation:
            return False
        self.next_observation = now + OBSERVE_SECONDS
        try:
            connections = processor_connections()
        except (OSError, ValueError, IndexError) as error:
            if is_requested:
                log("the connections can't be read: %r" % error)
            return False
        self.processors.observe(connections, now)
        if not is_requested:
            return False
        if self.waited_for is None:
            self.waited_for = self.processors.before_losses()
            count = len(self.waited_for)
            log("the training has ended: waiting until %d processors have been gone for %d s" % (count, IDLE_SECONDS))
        if self.waited_for & connections:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = now
        elif now - self.idle_since >= IDLE_SECONDS:
            log("no processor that may be saving is connected")
            return True
        return False


class Processors:
    """Connections to MindIO's controller, and when each was opened.

    After a dump the controller is replaced, which disconnects all processors, and the launchers of other nodes restart
    their ranks, which connect again. The training container of rank 0 often ends only then. Restarted ranks have nothing
    to save, and nothing disconnects them.
    """

    def __init__(self):
        self.opened = {}
        self.losses = []

    def observe(self, connections, now):
        lost = [connection for connection in self.opened if connection not in connections]
        for connection in lost:
            del self.opened[connection]
        self.losses = [at for at in self.losses if now - at < RESTART_SECONDS] + [now] * bool(lost)
        for connection in connections:
            self.opened.setdefault(connection, now)

    def before_losses(self):
        """The connections that were opened before any processor was lost."""
        first_loss = min(self.losses, default=float("inf"))
        return {connection for connection, at in self.opened.items() if at < first_loss}


def wait_for_port(stop):
    """Returns when the Manager's port is free, or with SIGTERM ends this process."""
    is_waiting = False
    while is_taken():
        if stop.is_requested:
            sys.exit(0)
        if not is_waiting:
            log("another TaskD Manager has port %d, probably of the start script: waiting until it ends" % TASKD_PORT)
            is_waiting = True
        time.sleep(POLL_SECONDS)


def is_taken():
    """Whether a process listens on the Manager's port, on the address that TaskD takes."""
    address = os.environ.get("POD_IP") or "127.0.0.1"
    if os.environ.get("LOCAL_PROXY_ENABLE") == "on":
        address = "127.0.0.1"
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, TASKD_PORT))
        except OSError as error:
            import errno

            if error.errno == errno.EADDRINUSE:
                return True
            log("port %d can't be tested: %r" % (TASKD_PORT, error))
    return False


def run_manager():
    """Runs TaskD's Manager until the end of this process."""
    status = 1
    try:
        from taskd.api import init_taskd_manager, start_taskd_manager

        processes = number("WORLD_SIZE", "MS_WORKER_NUM")
        per_node = min(number("LOCAL_WORLD_SIZE", "MS_LOCAL_WORKER"), processes)
        nodes = (processes + per_node - 1) // per_node
        job = os.environ.get("MINDX_TASK_ID")
        log("job %s: %d nodes with %d processes each" % (job, nodes, per_node))
        init_taskd_manager({"job_id": job, "node_nums": nodes, "proc_per_node": per_node})
        start_taskd_manager()
        # It returns where TaskD starts it in the background.
        while True:
            time.sleep(3600)
    except BaseException as error:
        log("the TaskD Manager can't be run by %s: %r" % (sys.executable, error))
    finally:
        sys.stdout.flush()
        os._exit(status)


def number(pytorch, mindspore):
    """A number by the variable of a framework. A wrong one affects TaskD's profiling only, so 1 will do."""
    for name in (pytorch, mindspore):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    log("neither %s nor %s is a number" % (pytorch, mindspore))
    return 1


def ended(manager):
    """The exit status of the Manager; None while it runs. As PID 1 this process also reaps the children of others."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 1
        if child == 0:
            return None
        if child == manager:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def processor_connections():
    """The established connections to a port of MindIO's controller."""
    values = [os.environ.get(name, "") for name in ("TTP_PORT", "MS_TFT_PORT")]
    ports = {int(value) for value in values if value.isdigit()} or {8000}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        with open(table) as lines:
            for fields in map(str.split, lines.read().splitlines()[1:]):
                if fields[3] == ESTABLISHED and port_of(fields[1]) in ports:
                    found.add((fields[1], fields[2]))
    return found


def port_of(address):
    """The port of an address as /proc/net/tcp writes it, `0100007F:1F40`."""
    return int(address.rsplit(":", 1)[1], 16)


def log(message):
    sys.stderr.write("swansong manager: %s\n" % message)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
