"""A real headless Chromium, driven over the DevTools protocol through a pipe: no driver, no websocket, no server."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 300.0  # seconds a page may take on a busy machine before a test gives up

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--mute-audio"),
)


def chromium() -> str:
    """The program, or a skip that says how to get it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs Chromium: `make browser` installs it where apt is at hand")
    return found


class Browser:
    """One process; `open` gives pages."""

    def __init__(self) -> None:
        program = chromium()
        self.folder = tempfile.TemporaryDirectory(prefix="recurra-chromium-", ignore_cleanup_errors=True)
        to_read, self.to = _high(os.pipe())
        self.back, to_write = _high(os.pipe())

        def attach() -> None:  # Chromium reads commands from 3 and answers on 4
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank"],
            preexec_fn=attach,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.numbers, self.buffer = itertools.count(1), b""
        self.answers: dict[int, dict] = {}
        self.events: list[dict] = []

    def open(self, path: Path, width: int = 1280, height: int = 900) -> "Page":
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        page.ask("Page.navigate", url=path.resolve().as_uri())
        page.wait_for("document.readyState === 'complete'")
        return page

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict:
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while number not in self.answers:
            self._read(deadline)
        answer = self.answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _read(self, deadline: float) -> None:
        ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, "Chromium does not answer"
        chunk = os.read(self.back, 1 << 20)
        assert chunk, "Chromium ended"
        *whole, self.buffer = (self.buffer + chunk).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str, target: str):
        self.browser, self.session, self.target = browser, session, target

    def ask(self, method: str, **parameters: Any) -> dict:
        return self.browser.ask(method, self.session, **parameters)

    def close(self) -> None:
        self.browser.ask("Target.closeTarget", targetId=self.target)

    def run(self, program: str) -> Any:
        """The value of an expression, promises awaited."""
        answer = self.ask("Runtime.evaluate", expression=program, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never became true: {condition}"
            time.sleep(0.05)

    def go_dark(self) -> None:
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def move_mouse(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(picture))

    def complaints(self) -> list[str]:
        """Console errors and warnings, uncaught exceptions, policy violations, failed requests."""
        self.run("0")  # whatever was said before this has been read when it is answered
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            kind, said = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(str(said["exceptionDetails"]))
            elif kind == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
                found.append(said["entry"]["text"])
            elif kind == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(one.get("value", one)) for one in said["args"]))
        return found

    def requests(self) -> list[str]:
        """Addresses the page asked for, itself apart."""
        asked = [e["params"]["request"]["url"] for e in self.browser.events if self._is(e, "Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]

    def _is(self, event: dict, method: str) -> bool:
        return event.get("sessionId") == self.session and event["method"] == method


def _high(pipe: tuple[int, int]) -> tuple[int, int]:
    """The same pipe on file descriptors out of the way of 3 and 4."""
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 32) for end in pipe)
    for end in pipe:
        os.close(end)
    return moved[0], moved[1]
