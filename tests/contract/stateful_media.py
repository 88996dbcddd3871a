# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets that decode sound, video and images of many pages."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from tests.contract.stateful import (
    LENGTH,
    SIZE,
    SlowFile,
    Stateful,
    array,
    content,
    pause,
    raw_file,
)


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
