# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets in archives, tables and databases, of media, and behind connections."""

from __future__ import annotations

import contextlib
import csv
import dbm.dumb
import http.client
import io
import json
import linecache
import pickle
import shelve
import socket
import sqlite3
import subprocess
import sys
import tarfile
import threading
import wave
import xml.etree.ElementTree as ET
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.contract.stateful import (
    LENGTH,
    SIZE,
    File,
    SlowFile,
    Stateful,
    array,
    content,
    pause,
    raw_file,
)


class Tar(Stateful):
    def prepare(self, folder):
        path = folder / "samples.tar"
        with tarfile.open(path, "w") as archive:
            for number in range(LENGTH):
                member = tarfile.TarInfo(str(number))
                member.size = SIZE
                archive.addfile(member, io.BytesIO(content(number)))
        self.file = SlowFile(path)
        self.archive = tarfile.open(fileobj=self.file)

    def read(self, number):
        return self.archive.extractfile(str(number)).read()


class Zip(Stateful):
    def prepare(self, folder):
        path = folder / "samples.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(LENGTH):
                archive.writestr(str(number), content(number))
        self.file = SlowFile(path)
        self.archive = zipfile.ZipFile(self.file)

    def read(self, number):
        with self.archive.open(str(number)) as member:
            return member.read()


class Hdf5(Stateful):
    """Reads into one buffer, through an open file."""

    def prepare(self, folder):
        import h5py

        rows = np.stack([array(content(number)) for number in range(LENGTH)])
        with h5py.File(folder / "samples.h5", "w") as file:
            file["rows"] = rows
        self.file = h5py.File(folder / "samples.h5", "r")
        self.buffer = np.zeros(SIZE, np.uint8)

    def read(self, number):
        self.file["rows"].read_direct(self.buffer, np.s_[number])
        pause()
        return self.buffer.copy()


class Shelf(Stateful):
    def prepare(self, folder):
        with shelve.Shelf(dbm.dumb.open(str(folder / "shelf"), "n")) as shelf:
            for number in range(LENGTH):
                shelf[str(number)] = content(number)
        self.shelf = shelve.Shelf(dbm.dumb.open(str(folder / "shelf"), "r"))
        self.key = ""

    def read(self, number):
        self.key = str(number)
        pause()
        return self.shelf[self.key]


class Pickles(Stateful):
    """Goes to where a sample begins, and reads on."""

    mode = "w+b"

    def prepare(self, folder):
        self.handle, self.offsets = open(folder / "samples", self.mode), []
        for number in range(LENGTH):
            self.offsets.append(self.handle.tell())
            self.write(content(number))

    def write(self, data: bytes) -> None:
        pickle.dump(data, self.handle)

    def load(self) -> bytes:
        return pickle.load(self.handle)

    def read(self, number):
        self.handle.seek(self.offsets[number])
        pause()
        return self.load()


class JsonLines(Pickles):
    mode = "w+"

    def write(self, data):
        self.handle.write(json.dumps({"data": data.hex()}) + "\n")

    def load(self):
        return bytes.fromhex(json.loads(self.handle.readline())["data"])


class CsvRows(Stateful):
    """Reads on to the row that is asked for, and keeps what it came by."""

    def prepare(self, folder):
        path = folder / "samples.csv"
        path.write_text("".join(f"{n},{content(n).hex()}\n" for n in range(LENGTH)))
        self.handle = open(path, newline="")
        self.reader, self.rows = csv.reader(self.handle), []

    def read(self, number):
        while len(self.rows) <= number:
            row = next(self.reader)
            pause()
            self.rows.append(row)
        return bytes.fromhex(self.rows[number][1])


class Lines(Stateful):
    """Reads a line by ``linecache``, and parses what is in its own attribute."""

    def prepare(self, folder):
        self.path, self.line = str(folder / "samples.txt"), ""
        Path(self.path).write_text("".join(content(n).hex() + "\n" for n in range(LENGTH)))

    def read(self, number):
        self.line = linecache.getline(self.path, number + 1)
        pause()
        return bytes.fromhex(self.line)

    def close(self):
        linecache.clearcache()


class Xml(Stateful):
    """Parses on to the element that is asked for; from the start for one that came before."""

    def prepare(self, folder):
        self.path = folder / "samples.xml"
        elements = "".join(f"<s n='{n}'>{content(n).hex()}</s>" for n in range(LENGTH))
        self.path.write_text(f"<all>{elements}</all>")
        self.at = LENGTH

    def read(self, number):
        if number < self.at:
            self.events, self.at = ET.iterparse(io.BytesIO(self.path.read_bytes())), 0
        while True:
            _, element = next(self.events)
            self.at = int(element.get("n")) + 1
            if self.at == number + 1:
                pause()
                return bytes.fromhex(element.text)


class Database(Stateful):
    """A connection of the thread that has made it, as sqlite3 has it by default."""

    def prepare(self, folder):
        self.path = folder / "samples.db"
        with sqlite3.connect(self.path) as connection:
            connection.execute("create table samples (number integer, data blob)")
            rows = [(number, content(number)) for number in range(LENGTH)]
            connection.executemany("insert into samples values (?, ?)", rows)
        connection.close()
        self.connection = self.connect()

    def connect(self):
        return sqlite3.connect(self.path)

    def read(self, number):
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        found = self.connection.execute("select data from samples where number = ?", (number,))
        pause()
        return found.fetchone()[0]

    def close(self):
        # Another thread may have opened it.
        with contextlib.suppress(sqlite3.ProgrammingError):
            super().close()


class LazyDatabase(Database):
    def connect(self):
        return None


class SharedCursor(Database):
    """One cursor for all that come."""

    def connect(self):
        connection = sqlite3.connect(self.path, check_same_thread=False)
        self.cursor = connection.cursor()
        return connection

    def read(self, number):
        self.cursor.execute("select data from samples where number = ?", (number,))
        pause()
        return self.cursor.fetchone()[0]


class OwnThread(File):
    """Has a client that works in the thread alone that has made it."""

    def prepare(self, folder):
        super().prepare(folder)
        self.thread = threading.get_ident()

    def read(self, number):
        if threading.get_ident() != self.thread:
            raise RuntimeError("this client was created in another thread")
        return super().read(number)


# --- sound, video and images of many pages ---


class Wave(Stateful):
    def prepare(self, folder):
        with wave.open(str(folder / "samples.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(raw_file(folder).read_bytes())
        self.file = wave.open(str(folder / "samples.wav"), "rb")

    def read(self, number):
        self.file.setpos(number * SIZE // 2)
        pause()
        return self.file.readframes(SIZE // 2)


class Sound(Stateful):
    """A reader with ``seek`` and ``read`` in frames, as soundfile's."""

    def prepare(self, folder):
        self.handle, self.place = open(raw_file(folder), "rb"), 0

    def seek(self, frame):
        self.place = frame
        pause()

    def read_frames(self, frames):
        self.handle.seek(self.place * 2)
        self.place += frames
        return np.frombuffer(self.handle.read(frames * 2), "<i2")

    def read(self, number):
        self.seek(number * SIZE // 2)
        return self.read_frames(SIZE // 2).tobytes()


class Video(Stateful):
    """Frames of one grey each, which says their number."""

    def prepare(self, folder):
        import cv2

        self.path = str(folder / "samples.avi")
        writer = cv2.VideoWriter(self.path, cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
        if not writer.isOpened():
            raise NotImplementedError("OpenCV writes no MJPG here")
        for number in range(LENGTH):
            writer.write(np.full((48, 64, 3), number * 6, np.uint8))
        writer.release()
        self.capture = self.capture_now()

    def capture_now(self):
        import cv2

        return cv2.VideoCapture(self.path)

    def expected(self, number):
        return bytes([number]) * SIZE

    def read(self, number):
        if self.capture is None:
            self.capture = Video.capture_now(self)
        import cv2

        self.capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        pause()
        _, frame = self.capture.read()
        return bytes([round(frame.mean() / 6)]) * SIZE

    def close(self):
        if self.capture is not None:
            self.capture.release()


class LazyVideo(Video):
    def capture_now(self):
        return None


def _pages(folder: Path) -> Path:
    import tifffile

    rows = np.stack([array(content(number)) for number in range(LENGTH)])
    tifffile.imwrite(folder / "samples.tif", rows.reshape(-1, 4, 8), photometric="minisblack")
    return folder / "samples.tif"


class Pages(Stateful):
    """Pillow's image of many frames."""

    def prepare(self, folder):
        from PIL import Image

        self.image = Image.open(_pages(folder))

    def read(self, number):
        self.image.seek(number)
        pause()
        return np.asarray(self.image).tobytes()


class Tiff(Stateful):
    def prepare(self, folder):
        import tifffile

        self.file = SlowFile(_pages(folder))
        self.tiff = tifffile.TiffFile(self.file)

    def read(self, number):
        return self.tiff.pages[number].asarray().tobytes()

    def close(self):
        self.tiff.close()
        self.file.close()


# --- a server, or another program ---


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
