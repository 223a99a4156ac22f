"""JSON messages over TCP, one a line: the transport between the fakes, in place of gRPC and MindIO's own protocol."""

import json
import socket
import threading
import time


class Channel:
    """One end of a connection. Messages may be sent by any thread and are received by one."""

    def __init__(self, connection):
        self.connection = connection
        self.lines = connection.makefile("r")
        self.lock = threading.Lock()

    def send(self, **message):
        """Sends a message; returns False where the peer is gone."""
        try:
            with self.lock:
                self.connection.sendall((json.dumps(message) + "\n").encode())
            return True
        except OSError:
            return False

    def receive(self):
        """The next message, or None where the peer is gone."""
        try:
            line = self.lines.readline()
        except OSError:
            return None
        return json.loads(line) if line.endswith("\n") else None

    def messages(self):
        return iter(self.receive, None)

    def close(self):
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()


def listen(address, port, handle):
    """Serves each connection to `address` in a separate thread; returns the port that is listened on."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(1024)

    def accept():
        while True:
            connection, _ = listener.accept()
            start(handle, Channel(connection))

    start(accept)
    return listener.getsockname()[1]


def connect(address, port, attempts, pause):
    """Connects with up to `attempts` attempts, `pause` seconds apart; raises the last error."""
    for attempt in range(attempts):
        try:
            return Channel(socket.create_connection((address, port)))
        except OSError:
            if attempt + 1 == attempts:
                raise
            time.sleep(pause)


def start(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread
