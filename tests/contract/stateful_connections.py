"""Data sets that ask a server, or another program."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from tests.contract.stateful import SIZE, Stateful, content, pause


def _answer(server: socket.socket) -> None:
    with server, server.makefile("rb") as questions:
        while question := questions.readline():
            server.sendall(content(int(question)))


class Socket(Stateful):
    def prepare(self, folder):
        self.client, server = socket.socketpair()
        self.server = threading.Thread(target=_answer, args=(server,))
        self.server.start()

    def read(self, number):
        self.client.sendall(b"%d\n" % number)
        pause()
        return self.client.recv(SIZE, socket.MSG_WAITALL)

    def close(self):
        self.client.close()
        self.server.join(10)


class Server:
    """Accepts connections, until it is closed: then it ends all of them."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.serve)]
        self.threads[0].start()

    def serve(self) -> None:
        """Give each connection a thread."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # It was shut down.
                return
            self.connections.append(connection)
            self.threads.append(threading.Thread(target=self.answer, args=(connection,)))
            self.threads[-1].start()

    def answer(self, connection: socket.socket) -> None:
        """Answer HTTP's ``GET /7``, one after another."""
        # A client may have gone before it read its answer.
        with suppress(ConnectionError), connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                if line.startswith(b"GET /"):
                    number = int(line.split()[1][1:])
                elif line == b"\r\n":
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE
                    connection.sendall(head + content(number))

    def close(self) -> None:
        """End all connections, and wait for their threads."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join(10)
        self.listener.close()
        for connection in self.connections:
            with connection:
                if connection.fileno() >= 0:
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(10)


class Http(Stateful):
    """One connection, which is kept alive."""

    def prepare(self, folder):
        self.server = Server()
        self.client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        self.client.connect()

    def read(self, number):
        self.client.request("GET", f"/{number}")
        pause()
        return self.client.getresponse().read()

    def close(self):
        self.client.close()
        self.server.close()


class LazyHttp(Http):
    """Connects at the first use, in each process."""

    def prepare(self, folder):
        self.server = Server()
        self.port, self.client = self.server.port, None

    def __getstate__(self):
        return {"port": self.port, "client": None}

    def read(self, number):
        if self.client is None:
            self.client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return super().read(number)

    def close(self):
        if self.client is not None:
            self.client.close()
        self.server.close()


_CHILD = """
import hashlib, sys
for line in sys.stdin:
    print(hashlib.sha256(line.strip().encode()).hexdigest(), flush=True)
"""


class Pipe(Stateful):
    """Asks a program that runs as long as the data set is used."""

    def prepare(self, folder):
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, number):
        self.child.stdin.write(f"{number}\n")
        self.child.stdin.flush()
        pause()
        return bytes.fromhex(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait(10)
