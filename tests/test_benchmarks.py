"""What the race makes of its records: pages, goals and comparisons, without measuring anything."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from benchmarks import cases, compare, goals, measure, records, report, session

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


def test_contenders_take_turns_in_an_order_that_changes(monkeypatch):
    order: list[str] = []
    settled = False

    def settle(seconds: float) -> None:  # before every sample
        nonlocal settled
        settled = True

    class Quick:
        def __init__(self, name: str) -> None:
            self.name = name

        def time(self, count: int) -> float:
            nonlocal settled
            if settled:
                order.append(self.name)
            settled = False
            return 1e-3 * count

    monkeypatch.setattr(measure, "sleep", settle)
    effort = replace(measure.QUICK, rounds=6, least_rounds=6)
    timings = measure.race([Quick(name) for name in "abcdefgh"], effort, "a cell")
    rounds = [order[i : i + 8] for i in range(0, len(order), 8)]
    assert len(rounds) == 6 and all(sorted(round) == list("abcdefgh") for round in rounds)
    assert len(set(map(tuple, rounds))) > 1
    assert all(len(timing.taken) == 6 for timing in timings.values())


def test_who_runs_after_all_is_not_listed_as_absent():
    """JAX has two layouts: where one is refused, the other takes part."""
    cell = cases.cells("small")[0]
    jax, torch = (SimpleNamespace(name=name, refused={cell.name: "not in this layout"}) for name in ("JAX", "torch"))
    assert session.absent([jax, torch], {"JAX": None}, cell) == {"torch": "not in this layout"}
