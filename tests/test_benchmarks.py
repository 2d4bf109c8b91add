"""What the race makes of its records: pages, goals and comparisons, without measuring anything."""

import json
from dataclasses import replace

import pytest
from benchmarks import cases, compare, goals, measure, records, report, session
from benchmarks.peers import Call, Peer

HISTORY = sorted(records.HISTORY.glob("*.json"))
LATEST = HISTORY[-1]


@pytest.fixture
def record() -> records.Record:
    return records.load(LATEST)


@pytest.mark.parametrize(
    ("processor", "kernels", "page"),
    [
        ("AMD EPYC (AVX-512)", "avx512", "cpu"),
        ("AMD EPYC (AVX-512)", "zen5", "cpu"),
        ("AMD EPYC (AVX-512)", "avx2", "cpu-avx2"),
        ("Intel(R) Xeon(R) Processor (AVX-512)", "avx512", "cpu-intel"),
        ("Intel(R) Core (AVX2)", "avx2", "cpu-intel-avx2"),
    ],
)
def test_a_race_writes_the_page_of_its_processor(record, processor, kernels, page):
    record["machine"] |= {"processor": processor, "kernels": kernels}
    assert report.page_name(record) == page


@pytest.mark.parametrize("path", HISTORY, ids=lambda path: path.stem)
def test_every_stored_run_can_still_be_reported(path):
    """Its rows are those of today's cases, all goals are judged, and the page has a line for every row."""
    stored = records.load(path)
    rows = records.rows(stored)
    assert rows and all(row.seconds > 0 and row.fraction > 0 for row in rows)
    assert {outcome.group for outcome in goals.judge(stored)}
    page = report.page(stored)
    assert page.count("\n| ") > len(rows)


def test_a_record_comes_back_as_it_was_stored(record, tmp_path):
    records.save(record, tmp_path / "record.json")
    assert records.load(tmp_path / "record.json") == json.loads(json.dumps(record))


def test_a_run_compared_with_itself_has_no_change(record, capsys):
    assert compare.compare(LATEST, record) == 0
    said = capsys.readouterr().out
    assert "0 slower, 0 faster" in said
    assert "differ" not in said


def test_what_became_slower_is_a_regression(record, capsys):
    for cells in record["modes"].values():
        for cell in cells:
            cell["steady"] = {layout: share / 1.5 for layout, share in cell["steady"].items()}
            for name, times in cell["times"].items():
                if name.startswith(records.OURS):
                    cell["times"][name] = [1.5 * time for time in times]
    assert compare.compare(LATEST, record) == 1
    assert f"{len(records.rows(record))} slower, 0 faster" in capsys.readouterr().out


def test_runs_of_different_machines_are_told_apart(record, capsys):
    record["machine"]["threads"] += 1
    compare.compare(LATEST, record)
    assert "threads was" in capsys.readouterr().out


def test_contenders_take_turns_in_an_order_that_changes():
    seen: list[str] = []
    effort = replace(measure.QUICK, rounds=6, seconds=10.0, sample=0.0)

    class Quick:
        def __init__(self, name: str) -> None:
            self.name = name

        def time(self, count: int) -> float:
            seen.append(self.name)
            return 1e-3

    timings = measure.race([Quick(name) for name in "abcdefgh"], effort, "a cell")
    rounds = list(dict.fromkeys(tuple(dict.fromkeys(seen[i : i + 16])) for i in range(8, len(seen) - 15, 16)))
    assert all(len(timing.taken) == 6 for timing in timings.values())
    assert len(rounds) > 1


def test_who_runs_after_all_is_not_listed_as_absent():
    """JAX has two layouts: where one is refused, the other takes part."""

    class Refusing(Peer):
        name = "JAX"

        def supports(self, cell: cases.Cell) -> bool:
            return True

        def call(self, cell, data, reuse):
            self.refused[cell.name] = "not in this layout"
            return Call(lambda: None, None)

    cell = cases.cells("small")[0]
    taking_part = session.Session.__new__(session.Session)
    taking_part.allocation, taking_part.threads, taking_part.effort = "default", 1, replace(measure.QUICK, rounds=1)
    taking_part.peers, taking_part.ours = [Refusing()], []
    taking_part.worker = type("Nobody", (), {"prepare": lambda self, cell: False})()
    assert "JAX" not in taking_part.measure(cell).get("absent", {})
