"""Lost, torn, doubled and split turns."""

import pytest

from benchmarks.peers.workload.anomalies import Anomalies, count_anomalies

WHOLE = ["0.0/user", "0.0/assistant", "1.0/user", "1.0/assistant"]


def test_complete_turns_in_any_order_are_not_an_anomaly() -> None:
    history = WHOLE[2:] + WHOLE[:2]
    assert count_anomalies(history, ["0.0", "1.0"], []) == Anomalies(acknowledged=2)


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        (WHOLE[:2], "lost"),
        (WHOLE[:3], "torn"),
        ([*WHOLE, "1.0/user"], "doubled"),
        (["1.0/user", "0.0/user", "0.0/assistant", "1.0/assistant"], "split"),
    ],
)
def test_each_damage_is_counted_under_its_name(history: list[str], kind: str) -> None:
    found = count_anomalies(history, ["0.0", "1.0"], [])
    counts = {name: getattr(found, name) for name in ("lost", "torn", "doubled", "split")}
    assert counts == {"lost": 0, "torn": 0, "doubled": 0, "split": 0, kind: 1}


def test_an_answer_before_its_question_is_split() -> None:
    assert count_anomalies(["0.0/assistant", "0.0/user"], ["0.0"], []).split == 1


def test_a_rejected_turn_may_be_missing() -> None:
    assert count_anomalies(WHOLE, ["0.0", "1.0"], ["2.0"]) == Anomalies(acknowledged=2)


def test_a_rejected_turn_in_the_history_is_counted() -> None:
    assert count_anomalies(WHOLE, ["0.0"], ["1.0"]).unacknowledged == 1


def test_messages_from_before_the_run_are_ignored() -> None:
    assert count_anomalies(["first.0/user", *WHOLE], ["0.0", "1.0"], []) == Anomalies(acknowledged=2)
