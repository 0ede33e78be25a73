"""Kept best matches: the certain ones are at the positions that a ranking of all matches gives them."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from backstay.store.verbs.best_matches import BestMatches, RankedMatch

usual_lengths = st.floats(1, 1_000)


@st.composite
def matches(draw: st.DrawFn, low: int, high: int) -> list[RankedMatch]:
    """This number of matches: texts are at least as long as the number of terms in them."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 300)), min_size=low, max_size=high))
    return [RankedMatch(key, count, count + more) for key, (count, more) in enumerate(sizes)]


@given(
    found=matches(1, 60),
    kept=st.integers(1, 20),
    newer=st.integers(0, 8),
    before=usual_lengths,
    factor=st.floats(0.9, 1.2),
)
def test_no_match_that_was_left_out_can_stand_before_a_certain_one(
    found: list[RankedMatch], kept: int, newer: int, before: float, factor: float
) -> None:
    old, new = found[: len(found) - newer] or found, found[len(found) - newer :] if newer < len(found) else []
    ranked = sorted(old, key=lambda match: match.rank(before))
    best = BestMatches(key=len(old), usual=before, matches=msgspec.msgpack.encode(ranked[:kept]))

    certain = best.certain(new, before * factor)

    everything = sorted([*old, *new], key=lambda match: match.rank(before * factor))
    assert certain == [match.key for match in everything[: len(certain)]]


def test_the_matches_above_the_last_kept_one_are_certain_while_texts_stay_alike() -> None:
    found = [RankedMatch(key, count, 20) for key, count in enumerate([9, 7, 7, 5, 3, 1])]
    best = BestMatches(key=5, usual=20.0, matches=msgspec.msgpack.encode(found[:5]))

    assert best.certain([RankedMatch(6, 8, 20)], 20.1) == [0, 6, 2, 1, 3]
