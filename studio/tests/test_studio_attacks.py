"""The studio under attack: other sites, other names, no key, wrong paths, floods, bombs. Nothing gets through."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from tab import Refusal, Server, Tab
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from poolgrad_studio import frames
from poolgrad_studio.connection import HANDLERS
from poolgrad_studio.security import Access
from poolgrad_studio.worker import QUESTIONS

SMALL = [{"name": "x", "type": "Const", "attributes": {"value": [1, 2]}}]


# -- who may talk -----------------------------------------------------------------------------------------------------


def test_it_listens_on_this_machine_only(server):
    assert server.host == "127.0.0.1"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = {row[1] for row in rows if row[3] == "0A"}
    listening = [address for address in found if int(address.partition(":")[2], 16) == server.port]
    assert listening == [f"{int.from_bytes(socket.inet_aton('127.0.0.1'), 'little'):08X}:{server.port:04X}"]


def test_the_token_is_long_and_new_every_time(tmp_path, server):
    assert len(server.token) >= 40
    assert Access(1).token != Access(1).token


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", "/download/x", "/download/%2e%2e"])
def test_without_the_key_there_is_nothing(server, path):
    answer = server.request("GET", path)
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert b"script" not in answer.read()


def test_the_cookie_is_closed_to_scripts_and_to_other_sites(server):
    answer = server.request("GET", f"/?token={server.token}")
    cookie = str(answer.getheader("Set-Cookie"))
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert server.token not in cookie
    assert answer.getheader("Location") == "/", "the token does not stay in the address"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost.evil.example:{port}",
                                  "127.0.0.1:{port}@evil.example", "[::1", "", "169.254.169.254:{port}",
                                  "127.0.0.1:1{port}"])  # fmt: skip
def test_a_foreign_name_is_not_served(server, host):
    """DNS rebinding: the browser believes that evil.example is 127.0.0.1 and sends its name."""
    answer = server.request("GET", f"/?token={server.token}", Host=host.format(port=server.port))
    assert answer.status in (400, 403)
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_its_own_names_are_served(server, name):
    assert server.request("GET", f"/?token={server.token}", Host=f"{name}:{server.port}").status == 303


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "https://127.0.0.1:{port}",
        "http://localhost:{port}",
        "file://",
    ],
)
def test_other_sites_cannot_open_the_socket(server, origin):
    """Cross-site WebSocket hijacking: the cookie is there, but the page is another's."""
    headers = {"Cookie": server.cookie()}
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        socket = connect(
            f"ws://127.0.0.1:{server.port}/socket", origin=origin.format(port=server.port), additional_headers=headers
        ).__enter__()
        socket.send('{"type":"hello","id":1}')
        socket.recv(timeout=5)


def test_other_sites_cannot_read_by_a_request(server):
    for extra in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}):
        assert server.request("GET", "/", Cookie=server.cookie(), **extra).status == 403


@pytest.mark.parametrize(
    "cookie", ["", "poolgrad_studio_1=x", "poolgrad_studio_{port}=", "poolgrad_studio_{port}=wrong", 'a="b;;;=']
)
def test_a_socket_without_a_session_is_told_so_and_closed(server, cookie):
    tab = Tab(server, cookie.format(port=server.port), hello=False)
    assert tab.closed_with() == 4401


def test_every_answer_carries_the_policy(server):
    cookie = server.cookie()
    for path in ("/", "/door.css", "/favicon.ico", "/assets/none.js", "/nothing", "/download/none"):
        answer = server.request("GET", path, Cookie=cookie)
        policy = str(answer.getheader("Content-Security-Policy"))
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert f"connect-src 'self' ws://127.0.0.1:{server.port};" in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Referrer-Policy") in ("no-referrer", "same-origin"), "the token stays in the house"
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert answer.getheader("Server") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_is_changed_by_a_plain_request(server, method):
    assert server.request(method, "/", Cookie=server.cookie()).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../index.html",
        "/assets/%2e%2e/%2e%2e/app.py",
        "/assets/..%2f..%2fapp.py",
        "/assets//etc/passwd",
        "/assets/%00",
    ],
)
def test_assets_stay_in_their_folder(server, path):
    answer = server.request("GET", path, Cookie=server.cookie())
    assert answer.status in (400, 403, 404)


# -- a server for others ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    started = Server(tmp_path_factory.mktemp("open"), "--host", "0.0.0.0")
    yield started
    started.stop()


def test_a_server_for_others_warns_and_has_a_password(open_server):
    said = "".join(open_server.said)
    assert "WARNING" in said
    assert "unencrypted" in said
    assert re.search(r"Password: \S{12,}", said)


def test_the_password_opens_and_guessing_is_slow(open_server):
    password = re.search(r"Password: (\S+)", "".join(open_server.said))[1]  # type: ignore[index]
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert b"password" in open_server.request("GET", "/").read()
    assert open_server.request("POST", "/login", "password=wrong", **form).status == 401
    assert open_server.request("POST", "/login", f"password={password}", **form).status == 303
    assert open_server.request("POST", "/login", "password=" + "x" * 10_000, **form).status == 413
    access = Access(1, "0.0.0.0", "right")
    assert not any(access.guess(f"wrong {n}") for n in range(20))
    assert not access.guess("right"), "not even the right one, after so many wrong ones"


def test_a_server_for_others_still_has_no_foreign_names(open_server):
    for host, status in (("evil.example", 403), ("192.0.2.7", 303), ("127.0.0.1", 303)):
        path = f"/?token={open_server.token}"
        assert open_server.request("GET", path, Host=f"{host}:{open_server.port}").status == status, host


def test_a_short_password_is_refused(tmp_path):
    (tmp_path / "password").write_text("1234567")
    with pytest.raises(AssertionError, match="did not start"):
        Server(tmp_path, "--host", "0.0.0.0", "--password-file", str(tmp_path / "password"))


def test_sessions_on_disk_are_hashes_for_the_owner_only(tmp_path):
    access = Access(1, state=tmp_path / "deep" / "sessions.json")
    secret = access.begin_session()
    assert secret not in (tmp_path / "deep" / "sessions.json").read_text()
    assert os.stat(tmp_path / "deep" / "sessions.json").st_mode & 0o077 == 0
    (tmp_path / "deep" / "sessions.json").write_text('{"x": 1e999, "y": "z", "z": null}')
    Access(1, state=tmp_path / "deep" / "sessions.json")


# -- paths ------------------------------------------------------------------------------------------------------------


OUTSIDE = ["../x.page.json", "/etc/x.page.json", "a/../../x.page.json", "..\\x.page.json", ".poolgrad/x.page.json",
           "\x00.page.json", "a\nb.page.json", "x.page.json\x00.npy", "C:x.page.json", "", None, 7, {}, []]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_request_leads_out_of_the_folder(tab, server, path):
    (server.folder / "in.page.json").write_text(json.dumps({"poolgrad-page": 1, "blocks": [], "wires": []}))
    before = sorted(p.name for p in server.folder.parent.iterdir())
    attempts = [
        ("open", {"page": path}),
        ("copy", {"from": path, "page": "stolen.page.json"}),
        ("copy", {"from": f"example:{path}", "page": "stolen.page.json"}),
        ("rename", {"page": "in.page.json", "to": path}),
        ("rename", {"page": path, "to": "stolen.page.json"}),
        ("delete", {"page": path}),
    ]
    if path not in (None, ""):
        attempts += [("new", {"title": "x", "page": path}), ("copy", {"from": "in.page.json", "page": path})]
    for request, fields in attempts:
        with pytest.raises(Refusal) as refused:
            tab.ask(request, **fields)
        assert refused.value.code in ("bad_request", "refused", "not_found"), request
    assert sorted(p.name for p in server.folder.parent.iterdir()) == before
    assert not (server.folder / "stolen.page.json").exists()


@pytest.mark.parametrize(
    "name", ["../../evil.npy", "/tmp/evil.npy", "..\\evil.npy", "evil.py", ".bashrc", "evil.npy/..", None]
)
def test_uploads_stay_in_the_folder(tab, server, name):
    tab.ask("new", title="up", page=f"up{time.monotonic_ns()}.page.json")
    page = max(p.name for p in server.folder.glob("up*.page.json"))
    try:
        made = tab.upload(b"x", name=name, kind="data", page=page)["path"]
    except Refusal:
        return
    assert "/" not in made
    assert (server.folder / made).exists()
    assert not (server.folder.parent / "evil.npy").exists()


@pytest.mark.parametrize("file", ["../secret.npy", "/etc/passwd", "link.npy", "sub/../../secret.npy"])
def test_a_page_cannot_read_files_outside(tab, server, write_page, file):
    np.save(server.folder.parent / "secret.npy", np.arange(3))
    if not (server.folder / "link.npy").exists():
        (server.folder / "link.npy").symlink_to(server.folder.parent / "secret.npy")
    tab.open(write_page([{"name": "l", "type": "Load", "attributes": {"file": file}}], name="thief.page.json"))
    assert tab.run()["state"] == "failed"
    assert tab.results == {}


def test_a_page_cannot_write_files_outside(tab, server, write_page):
    blocks = [*SMALL, {"name": "s", "type": "Save", "attributes": {"file": "../written.npy"}}]
    tab.open(write_page(blocks, ["x.output -> s.input"], name="vandal.page.json"))
    assert tab.run()["state"] == "failed"
    assert not (server.folder.parent / "written.npy").exists()


def test_a_pickle_in_an_array_file_is_not_unpickled(tab, server, write_page):
    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {server.folder}/exploded",)

    np.save(server.folder / "bomb.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    tab.open(write_page([{"name": "l", "type": "Load", "attributes": {"file": "bomb.npy"}}], name="bomb.page.json"))
    assert tab.run()["state"] == "failed"
    assert not (server.folder / "exploded").exists()


# -- sizes and times --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    """A run may take 300 MB."""
    started = Server(tmp_path_factory.mktemp("small"), "--max-memory", "300M")
    yield started
    started.stop()


@pytest.fixture
def hasty_server(tmp_path):
    """A run may take two seconds. A process takes six to come up, as on a machine that is busy."""
    slow_start = "import sys, time\nif 'poolgrad_studio.worker' in sys.orig_argv: time.sleep(6)\n"
    (tmp_path / "sitecustomize.py").write_text(slow_start)
    started = Server(tmp_path / "pages", "--max-seconds", "2", env={"PYTHONPATH": str(tmp_path)})
    yield started
    started.stop()


def _page(server, name, blocks, wires=()):
    text = {"poolgrad-page": 1, "blocks": blocks, "wires": list(wires)}
    (server.folder / name).write_text(json.dumps(text))
    return name


def test_a_page_cannot_take_more_memory_than_it_may(small_server):
    tab = small_server.tab()
    shape = {"shape": [1024, 1024, 1024], "dtype": "float32"}
    tab.open(_page(small_server, "huge.page.json", [{"name": "x", "type": "RandomNormal", "attributes": shape}]))
    ended = tab.run()
    assert ended["state"] in ("failed", "lost")
    assert ended["message"]
    assert tab.ask("gallery")["pages"], "the server lives"
    tab.open(_page(small_server, "fine.page.json", SMALL))
    assert tab.run()["state"] == "done"


def test_many_small_results_cannot_take_it_either(small_server):
    tab = small_server.tab()
    shape = {"shape": [20_000_000], "dtype": "float32"}
    blocks = [{"name": f"x{n}", "type": "RandomNormal", "attributes": shape | {"seed": n}} for n in range(12)]
    tab.open(_page(small_server, "crowd.page.json", blocks))
    assert tab.run()["state"] in ("failed", "lost")
    assert tab.ask("gallery")["pages"]


OVERLAPPING = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
SLOW = [
    {"name": "x", "type": "RandomNormal", "attributes": {"shape": [1, 1500, 1500, 1], "dtype": "float32"}},
    *({"name": f"p{n}", "type": "MaxPool", "attributes": OVERLAPPING} for n in range(600)),
]
SLOW_WIRES = ["x.output -> p0.input", *(f"p{n}.output -> p{n + 1}.input" for n in range(599))]
APART = {"ksize": [1, 16, 16, 1], "strides": [1, 16, 16, 1], "padding": "SAME"}
LONG = [SLOW[0], *({"name": f"p{n}", "type": "MaxPool", "attributes": APART} for n in range(4000))]
LONG_WIRES = [f"x.output -> p{n}.input" for n in range(4000)]


def test_a_run_that_takes_too_long_is_ended_but_not_one_whose_process_starts_slowly(hasty_server):
    tab = hasty_server.tab()
    tab.open(_page(hasty_server, "fine.page.json", SMALL))
    assert tab.run()["state"] == "done"
    tab.open(_page(hasty_server, "long.page.json", LONG, LONG_WIRES))
    ended = tab.run()
    assert ended["state"] == "stopped", ended
    assert ended["seconds"] < 20


def test_stop_stops(server, tab):
    tab.open(_page(server, "stop.page.json", SLOW, SLOW_WIRES))
    tab.ask("run")
    tab.event("progress")
    begun = time.monotonic()
    tab.ask("stop")
    ended = tab.event("run", lambda m: m["state"] != "running")
    assert ended["state"] == "stopped"
    assert time.monotonic() - begun < 3
    tab.open(_page(server, "afterwards.page.json", SMALL))
    assert tab.run()["state"] == "done"


def test_a_worker_that_is_killed_is_replaced(server, tab):
    tab.open(_page(server, "killed.page.json", SLOW, SLOW_WIRES))
    tab.ask("run")
    tab.event("progress")
    _kill_workers(server.process.pid)
    assert tab.event("run", lambda m: m["state"] != "running")["state"] == "lost"
    assert tab.event("results_lost")["message"]
    tab.open(_page(server, "afterwards2.page.json", SMALL))
    assert tab.run()["state"] == "done"


def _kill_workers(parent):
    """All of them, the spare one too; when this returns they are dead."""
    killed = _children(parent)
    for child in killed:
        os.kill(int(child), 9)
    while any(_parent(child) == parent and not _is_dead(child) for child in killed):
        time.sleep(0.01)


def _is_dead(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _children(parent):
    return [entry for entry in os.listdir("/proc") if entry.isdecimal() and _parent(entry) == parent]


def _parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_no_worker_outlives_its_server(tmp_path):
    started = Server(tmp_path)
    tab = started.tab()
    tab.open(_page(started, "a.page.json", SMALL))
    tab.run()
    children = _children(started.process.pid)
    assert children
    started.kill()
    for _ in range(100):
        if not any("poolgrad_studio.worker" in _command(child) for child in children):
            return
        time.sleep(0.05)
    raise AssertionError("a worker is still there")


def test_a_page_that_is_too_large_is_refused(tab, server):
    (server.folder / "large.page.json").write_bytes(b" " * (9 * 2**20))
    with pytest.raises(Refusal) as refused:
        tab.open("large.page.json")
    assert refused.value.code == "too_large"
    with pytest.raises(Refusal):
        tab.upload(b" " * (9 * 2**20), name="large", kind="page")


def test_a_page_with_too_many_blocks_is_refused(tab, server):
    tab.open(_page(server, "crowded.page.json", SMALL))
    blocks = [["block", f"b{n}", {"type": "Const", "attributes": {"value": [n]}}] for n in range(5001)]
    with pytest.raises(Refusal) as refused:
        tab.ask("edit", edit="many", base=1, changes=blocks)
    assert refused.value.code == "too_many"


def test_deeply_nested_messages_are_refused(tab):
    tab.socket.send('{"type":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(Refusal):
        tab.reply(None)
    assert tab.ask("gallery")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "nonsense",
        "[]",
        "7",
        "null",
        '{"type":7}',
        '{"type":"no such thing"}',
        '{"type":"__init__"}',
        '{"type":"_here"}',
        '{"type":"edit"}',
        '{"type":"slice","key":NaN}',
        '{"type":"open","page":"\\ud800.page.json"}',
        b"",
        b"\x00",
        b"\xff\xff\xff\xff",
        struct.pack("<I", 2) + b"[]",
        struct.pack("<I", 5) + b"\xff\xfe\x00\x00\x00",
    ],
)
def test_nonsense_gets_an_answer_not_a_crash(tab, message):
    tab.socket.send(message)
    with pytest.raises(Refusal) as refused:
        tab.reply(None)
    assert refused.value.code in ("bad_request", "not_found", "refused"), refused.value.reply
    assert tab.ask("gallery")["type"] == "gallery"


def test_a_thousand_distorted_messages(tab, server):
    """Every request with fields of wrong kinds and extremes: an answer every time, never an internal error."""
    tab.open(_page(server, "fuzz.page.json", [*SMALL, {"name": "y", "type": "Square"}], ["x.output -> y.x"]))
    tab.run()
    chance = random.Random(7)
    requests = sorted({*HANDLERS, *QUESTIONS} - {"upload", "new", "close"})
    fields = re.findall(
        r"\w+",
        """page from to key axes index rows columns max reduce start count bins range format block side which at batch
        channel base changes edit label fetch engine on outputs inputs entry keep block_type attribute text selection
        have client name pin limit overwrite""",
    )
    values = [
        *(None, True, -1, 0, 10**30, 1e308, "", "x.output", "x", "y.output", "\x00", "../..", "é" * 1000),
        *([], [0, 0], [-1, -1], [[1]], {}, {"a": {}}, ["x"] * 300, [10**20] * 4),
    ]
    failed = []
    for number in range(1000):
        request = chance.choice(requests)
        given = {name: chance.choice(values) for name in chance.sample(fields, chance.randint(0, 12))}
        if request in ("slice", "cells", "table", "histogram", "statistics", "download", "copy_text"):
            given["key"] = "x.output"
        if request == "open":
            given["page"] = "fuzz.page.json"
        tab.send({"type": request, "id": number + 10**6, **given})
        if request == "presence":
            continue
        reply = tab.wait(lambda m, wanted=number + 10**6: m.get("id") == wanted)
        if reply.get("code") == "internal":
            failed.append((request, given, reply["message"]))
    assert failed == []
    assert "x" in tab.open("fuzz.page.json")["doc"]["block"]


def test_a_flood_of_tabs_is_bounded(tmp_path):
    started = Server(tmp_path)
    cookie = started.cookie()
    tabs = [Tab(started, cookie) for _ in range(32)]
    assert Tab(started, cookie, hello=False).closed_with() == 4429
    tabs[0].close()
    time.sleep(0.3)
    Tab(started, cookie).close()
    started.stop()


def test_a_frame_with_a_lying_length_is_refused():
    for frame in (b"", b"\x01", struct.pack("<I", 2**32 - 1), struct.pack("<I", 100) + b"{}"):
        with pytest.raises(frames.BadFrame):
            frames.unpack(frame)
