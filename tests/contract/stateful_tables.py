# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets in archives, tables and databases."""

from __future__ import annotations

import contextlib
import csv
import dbm.dumb
import io
import json
import linecache
import pickle
import shelve
import sqlite3
import tarfile
import threading
import xml.etree.ElementTree as ET
import zipfile
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
    def prepare(self, folder):
        self.handle, self.offsets = open(folder / "samples.pickle", "w+b"), []
        for number in range(LENGTH):
            self.offsets.append(self.handle.tell())
            pickle.dump(content(number), self.handle)

    def read(self, number):
        self.handle.seek(self.offsets[number])
        pause()
        return pickle.load(self.handle)


class JsonLines(Stateful):
    def prepare(self, folder):
        self.handle, self.offsets = open(folder / "samples.jsonl", "w+"), []
        for number in range(LENGTH):
            self.offsets.append(self.handle.tell())
            self.handle.write(json.dumps({"data": content(number).hex()}) + "\n")

    def read(self, number):
        self.handle.seek(self.offsets[number])
        pause()
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
