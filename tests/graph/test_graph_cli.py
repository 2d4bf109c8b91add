"""The command line: what it prints, what it writes, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from poolgrad.cli import main
from poolgrad.cli.output import bytes_of, glance
from poolgrad.graph import Page, Scope, add_symbolic_gradients, ops

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.page.json"))


@pytest.fixture
def poolgrad(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        found = capsys.readouterr()
        return ended.value.code or 0, found.out, found.err

    return run


@pytest.fixture
def page(tmp_path):
    root = Scope.new_root("a test page")
    x = ops.Placeholder(root.with_name("x"), "float32", shape="1,-1,-1,1")
    y = ops.MaxPool(root.with_name("y"), x, "1,2,2,1", "1,2,2,1", "SAME")
    (gx,) = add_symbolic_gradients(root, [ops.Sum(root.with_name("loss"), y)], [x])
    ops.Identity(root.with_name("gx"), gx)
    root.page.save(tmp_path / "page.json")
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1))
    return tmp_path / "page.json"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_every_example_runs(poolgrad, path):
    code, out, err = poolgrad("run", path)
    assert code == 0, err
    opened = Page.load(path)
    assert opened.title in out
    assert opened.comment
    assert all(name in out for name in opened.blocks if len(name) < 20)
    assert set(opened.layout) == set(opened.blocks)


def test_the_seed_operators_and_what_users_ask_for_are_there():
    types = {t.type.name for path in EXAMPLES for t in Page.load(path).blocks.values()}
    assert types >= {"MaxPoolGradGrad", "MaxPool3DGrad", "AvgPool3DGrad", "FractionalMaxPoolGrad", "ClientSession"}
    names = {path.name for path in EXAMPLES}
    assert names >= {
        "second_order_check.page.json",
        "fractional_picture.page.json",
        "policies.page.json",
        "three_orders.page.json",
    }


def test_examples_show_what_they_say(poolgrad):
    folder = EXAMPLES[0].parent
    result = lambda name: json.loads(poolgrad("run", folder / f"{name}.page.json", "--json")[1])["blocks"]  # noqa: E731
    assert result("second_order_check")["agree"]["outputs"]["output"]["values"] is True
    blocks = result("policies")
    assert np.ravel(blocks["ties_split"]["outputs"]["output"]["values"]).tolist() == [2, 2, 0, 2, 0, 0, 2, 0]
    assert np.ravel(blocks["nan_ignore"]["outputs"]["output"]["values"]).tolist() == ["3", "2", "nan"]
    orders = result("three_orders")
    page = Page.load(folder / "three_orders.page.json")
    fetched = [w.partition(".")[0] for w in page["session"].inputs["fetch_outputs"]][1:]
    values = [orders[name]["outputs"]["output"]["values"] for name in fetched]
    assert values[0] == values[1] == values[2]


def test_run_with_feed_fetch_and_save(poolgrad, page):
    code, out, _ = poolgrad("run", page, "--feed", "x=x.npy", "--fetch", "gx", "--save", "out")
    assert code == 0
    assert "gx" in out
    (file,) = Path("out").iterdir()
    assert file.name == "gx.output.npy"
    assert np.load(file).sum() == 4


def test_numbers_as_a_feed(poolgrad, page):
    code, out, _ = poolgrad("run", page, "--feed", "x=[[[[1],[5]],[[3],[2]]]]", "--fetch", "y", "--json")
    assert code == 0
    assert json.loads(out)["blocks"]["y"]["outputs"]["output"]["values"] == [[[[5]]]]


def test_a_failure_is_at_its_block_and_the_code_is_1(poolgrad, page):
    code, out, err = poolgrad("run", page)
    assert code == 1
    assert "error: x: nothing was fed to this placeholder" in err
    assert "waits for x" in out


def test_json_of_a_failure(poolgrad, page):
    code, out, _ = poolgrad("run", page, "--json")
    data = json.loads(out)
    assert code == 1
    assert data["blocks"]["x"]["problem"]["message"] == "nothing was fed to this placeholder"
    assert data["blocks"]["y"]["status"] == "skipped"


def test_max_memory(poolgrad, page):
    code, _, err = poolgrad("run", page, "--feed", "x=x.npy", "--max-memory", "70")
    assert code == 1
    assert "of 70 bytes are in use" in err
    code, _, err = poolgrad("run", page, "--feed", "x=x.npy", "--max-memory", "20")
    assert code == 1
    assert "which takes 64 bytes; 20 bytes are" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "nothing.json"], 2, "does not exist"),
        (["run", "page.json", "--device", "moon"], 2, "is not one of cpu"),
        (["run", "page.json", "--max-memory", "lots"], 2, "is not a size"),
        (["run", "page.json", "--feed", "x"], 2, "NAME=FILE"),
        (["run", "page.json", "--feed", "x=no.npy"], 2, "neither a file nor numbers"),
        (["run", "page.json", "--feed", "q=x.npy"], 1, "there is no block 'q'"),
        (["run", "page.json", "--fetch", "q"], 1, "there is no block 'q'"),
        (["run", "x.npy"], 1, "x.npy"),
        (["run"], 2, "Missing argument"),
        (["no-such-command"], 2, "No such command"),
        (["show", "MaxPol"], 2, "did you mean MaxPool?"),
        (["show", "zzz"], 2, "poolgrad ops --blocks"),
        (["export", "page.json", "--to", "fortran"], 2, "is not one of python"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_wrong_calls(poolgrad, page, arguments, code, message):
    found, _, err = poolgrad(*arguments)
    assert found == code
    assert message in " ".join(err.replace("│", "").split())


def test_check(poolgrad, page):
    code, out, _ = poolgrad("check", page)
    assert code == 0
    assert "float32 [1, ?, ?, 1]" in out
    opened = Page.load(page)
    opened.set("y", "ksize", "1,2,x,1")
    opened.save(page)
    code, _, err = poolgrad("check", page)
    assert code == 1
    assert "y.ksize: expected an integer\n    1,2,x,1\n        ^" in err
    code, out, _ = poolgrad("check", page, "--json")
    assert (code, json.loads(out)["problems"][0]["position"]) == (1, 4)


def test_export(poolgrad, page):
    code, out, _ = poolgrad("export", page, "--to", "python")
    assert code == 0
    assert "pg.raw_ops.MaxPool(" in out
    compile(out, "page.py", "exec")
    assert poolgrad("export", page, "-o", "page.py")[:2] == (0, "")
    assert Path("page.py").read_text() == out
    assert poolgrad("export", page, "--to", "page")[1] == page.read_text()


def test_files_that_cannot_be_written(poolgrad, page):
    (page.parent / "file").write_text("")
    for arguments in (("export", page, "-o", "nowhere/p.py"), ("run", page, "--feed", "x=x.npy", "--save", "file/out")):
        code, _, err = poolgrad(*arguments)
        assert code == 1
        assert err.startswith("error: ")
        assert "Traceback" not in err


def test_ops_and_show(poolgrad):
    code, out, _ = poolgrad("ops")
    assert code == 0
    assert "MaxPool3DGradGrad" in out
    assert "ClientSession" not in out
    assert "ClientSession" in poolgrad("ops", "--blocks")[1]
    assert len(json.loads(poolgrad("ops", "--json")[1])) == 22
    code, out, _ = poolgrad("show", "maxpoolgradgrad")
    assert code == 0
    for piece in (
        "The gradient of MaxPoolGrad",
        "orig_input",
        "[before, after]",
        "Derivative: MaxPoolGrad",
        ">>> pg.raw_ops",
    ):
        assert piece in out
    assert json.loads(poolgrad("show", "Const", "--json")[1])["type"] == "Const"


def test_help_teaches(poolgrad):
    code, out, _ = poolgrad("--help")
    assert code == 0
    assert "poolgrad run examples/maxpool3dgrad.page.json" in out
    for command in ("run", "check", "export", "ops", "show"):
        code, out, _ = poolgrad(command, "-h")
        assert code == 0
        assert "Usage" in out
    assert poolgrad("--version")[1].startswith("poolgrad ")


def complete(words, at, folder):
    environment = os.environ | {
        "_POOLGRAD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)
    }  # fmt: skip
    code = "import sys; sys.argv[0] = 'poolgrad'; from poolgrad.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.split()


def test_completion(page):
    assert "MaxPool3DGradGrad" in complete("poolgrad show MaxPool3DG", 2, page.parent)
    assert complete("poolgrad run page.json --fetch gra", 4, page.parent)[0].startswith("gradients/")


def process(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "poolgrad.cli", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.timeout(120)
def test_watch_runs_again_when_the_page_changes(page):
    """However soon after the first run the change comes."""
    folder = page.parent
    watching = process(folder, "run", "page.json", "--feed", "x=x.npy", "--fetch", "y", "--json", "--watch")
    try:
        assert json.loads(watching.stdout.readline())["blocks"]["y"]["outputs"]["output"]["shape"] == [1, 2, 2, 1]
        assert "watching" in watching.stderr.readline()
        opened = Page.load(page)
        opened.set("y", "strides", "1,1,1,1")
        opened.save(page)
        assert json.loads(watching.stdout.readline())["blocks"]["y"]["outputs"]["output"]["shape"] == [1, 4, 4, 1]
    finally:
        watching.terminate()  # not an interrupt, which whoever started the tests may have switched off
        watching.communicate(timeout=30)


def test_control_c_stops_the_run_and_keeps_what_is_done(page):
    """Many blocks wait for their turn when it comes; they are not begun any more."""
    drawing = Page(folder=page.parent)
    root = drawing.scope
    x = ops.Save(root, ops.RandomNormal(root.with_name("x"), "700,1000", "float64"), "begun.npy")
    for _ in range(300):
        x = ops.Exp(root, ops.Negate(root, x))
    drawing.save(page)
    running = process(page.parent, "run", "page.json", "--json", "--threads", "1", "--max-memory", "4GiB")
    while not (page.parent / "begun.npy").exists() and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "stopping" in err
    blocks = json.loads(out)["blocks"]
    assert blocks["x"]["status"] == "done"
    assert "cancelled" in {b["status"] for b in blocks.values()}


def test_sizes_and_glances():
    assert bytes_of("1.5 GiB") == 3 * 2**29
    for wrong in ("", "GiB", "-1", "5 parsecs", "1ib"):
        with pytest.raises(ValueError, match="is not a size"):
            bytes_of(wrong)
    assert glance(np.array([np.nan] * 3 + [1.0] * 9)) == "1 .. 1 (3 NaN)"
    assert glance(np.zeros(0)) == ""
    assert glance(np.array(True)) == "True"


def test_a_page_cannot_command_the_terminal(poolgrad, page):
    opened = Page.load(page)
    opened.title = "[/red] \x1b[2J \x07 [link=http://example.org]here[/link]"
    opened.set("y", "padding", "\x1b[31mSAME")
    opened.save(page)
    for command in ("run", "check"):
        code, out, err = poolgrad(command, page)
        assert code == 1
        assert "[/red]" in out
        assert not set("\x1b\x07") & set(out + err)


def test_a_broken_package_takes_no_commands_away(poolgrad, monkeypatch):
    import importlib.metadata as metadata

    broken = metadata.EntryPoint("broken", "no.such.module:register", "poolgrad.commands")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [broken])
    code, _, err = poolgrad("--version")
    assert code == 0
    assert "cannot be loaded" in err


def test_other_packages_add_commands(poolgrad, monkeypatch):
    import importlib.metadata as metadata

    class Entry:
        value = "test"

        def load(self):
            return lambda app: app.command("hello")(lambda: print("hello"))

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry()])
    assert poolgrad("hello")[:2] == (0, "hello\n")


def test_without_the_libraries_it_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from poolgrad.cli import main; main(['ops'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "pip install 'poolgrad[cli]'" in done.stderr
