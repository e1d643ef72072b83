"""Runs the module's behaviour tests (rust/nginx/tests) on a row's server with a row's module.

Owns: how those tests are built, once for all rows, and run. Promises: what is tested is the very
file that is packed, in the row's own server. Never: counts a test that did not run.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path

from . import fetch
from .rows import ROOT

# These make the module fail from inside, which only a module with debug assertions does; what is
# shipped has none. tools/nginx-module test runs them.
ONLY_DEBUG = "failures::"
RESULT = re.compile(r"^test result: (\w+)\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


class Tests:
    """The test program, and the folder of the programs that it starts."""

    def __init__(self, program, programs):
        self.program, self.programs = program, programs


class Outcome:
    """What a run of the tests came to."""

    def __init__(self, passed, ignored, seconds):
        self.passed, self.ignored, self.seconds = passed, ignored, seconds


def cargo(row, *args, env):
    done = subprocess.run(["cargo", *args], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.strip().split("\n")[-20:])
        raise row.fail(f"the behaviour tests do not build:\n{tail}", "see what cargo says above")
    return done.stdout


def build(row, server):
    """Builds the tests. They hold nothing of a version of nginx, so any row's headers do."""
    fetch.say("building the behaviour tests")
    env = os.environ | {"NGINX_BUILD_DIR": str(server.objs)}
    cargo(row, "build", "--quiet", "--locked", "-p", "gabion-server", "--bin", "gabiond",
          "-p", "gabion-loader", "--bin", "gabion-loader", env=env)
    out = cargo(row, "test", "--quiet", "--locked", "-p", "gabion-nginx", "--features",
                "ngx-module", "--test", "nginx", "--no-run", "--message-format=json", env=env)
    programs = Path(env.get("CARGO_TARGET_DIR") or ROOT / "target") / "debug"
    for line in out.split("\n"):
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message["target"]["name"] == "nginx":
            return Tests(Path(message["executable"]), programs)
    raise row.fail("cargo built no test program", "run tools/nginx-module test")


def run(row, server, module, tests, log):
    """Runs them: all, or those that the row names."""
    env = os.environ | {
        "NGINX_BINARY": str(server.nginx),
        "GABION_MODULE": str(module),
        "GABION_PROGRAMS": str(tests.programs),
    }
    lua = server.libc and server.libc / "usr/lib/nginx/modules/ngx_http_lua_module.so"
    env.pop("GABION_LUA", None)
    if lua and lua.is_file() and not row.from_sources:
        env["GABION_LUA"] = str(server.libc)
    elif row.smoke:
        raise row.fail("its Lua module is not among its packages", "add it to `packages`")
    fetch.say(f"{row.name}: running the behaviour tests (log {log})")
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as out:
        done = subprocess.run([tests.program, *row.smoke, "--skip", ONLY_DEBUG],
                              cwd=ROOT / "rust/nginx", env=env, stdin=subprocess.DEVNULL,
                              stdout=out, stderr=subprocess.STDOUT, check=False)
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    result = RESULT.search(text)
    if done.returncode or not result or result[1] != "ok":
        failed = re.findall(r"^test (\S+) \.\.\. FAILED", text, re.M)
        raise row.fail(f"behaviour tests failed: {', '.join(failed) or 'none ended'}",
                       f"the log says why: {log}")
    if not int(result[2]):
        raise row.fail("no behaviour test ran", f"`smoke` names tests: {', '.join(row.smoke)}")
    return Outcome(int(result[2]), int(result[4]), round(time.monotonic() - start))
