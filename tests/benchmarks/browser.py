"""A page in a headless Chromium: what it shows, asks for and complains about."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
LIMIT_SECONDS = 60
PHONE_PIXELS = 360

# Answers in the page itself, which is what --dump-dom prints; measures before it writes.
PROBE = """<script>
addEventListener("load", () => {
  const width = %d;
  if (width) document.body.style.maxWidth = width + "px";
  const found = {
    images: [...document.images].map((image) => {
      const box = image.getBoundingClientRect();
      return {complete: image.complete, natural: image.naturalWidth, alt: image.alt,
              width: box.width, height: box.height};
    }),
    tables: document.querySelectorAll("table").length,
    sections: [...document.querySelectorAll("h2")].map((head) => head.textContent),
    scripts: document.scripts.length - 1,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name)
      .filter((name) => !name.startsWith("data:")),
    overflow: document.body.scrollWidth - document.body.clientWidth,
    background: getComputedStyle(document.body).backgroundColor,
    colour: getComputedStyle(document.body).color,
  };
  const answer = document.createElement("pre");
  answer.id = "probe";
  answer.textContent = JSON.stringify(found);
  document.body.append(answer);
});
</script>"""


@dataclass(frozen=True)
class View:
    """What the browser made of a page.

    Args:
        found: The probe's answer.
        console: What was written to the console, errors included: its lines bear no level.
    """

    found: dict[str, Any]
    console: list[str]


def view(page: Path, profile: Path, *, width_pixels: int = 0, dark: bool = False) -> View:
    """Open a copy of the page, with the probe in it.

    Args:
        page: The page; its relative links keep their meaning.
        profile: The folder for the browser's own files.
        width_pixels: Make the page no wider than this; 0 leaves it as wide as the window.
        dark: Whether the reader prefers dark colours.
    """
    assert PROGRAM is not None
    copy = page.with_name(f"probed-{page.name}")
    text = page.read_text()
    assert "</body>" in text
    copy.write_text(text.replace("</body>", PROBE % width_pixels + "</body>"))
    done = subprocess.run(
        [
            PROGRAM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={profile}",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    answer = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer is not None, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return View(json.loads(html.unescape(answer[1])), console)
