"""Counting by how many people two sets differ, from hashes on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy import set_hashes
from florist.common.privacy.set_hashes import count_difference, file_digest, write_set_hashes
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(32))


@settings(deadline=None, max_examples=60)
@given(
    one=st.sets(st.integers(0, 60)),
    other=st.sets(st.integers(0, 60)),
    block=st.integers(1, 9),
    memory=st.sampled_from([1, 1000, 10**6]),
)
def test_differences_are_those_of_the_sets(
    tmp_path_factory: pytest.TempPathFactory,
    one: set[int],
    other: set[int],
    block: int,
    memory: int,
) -> None:
    storage = FolderStorage(tmp_path_factory.mktemp("sets"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_hashes, "_COMPARED", block)
        patch.setattr(set_hashes, "_BATCH", 3)
        patch.setattr(set_hashes, "SORT_MEMORY", memory)
        digests = [
            write_set_hashes(
                storage, name, IdColumn.from_bytes(b"%d" % number for number in numbers), KEY
            )
            for name, numbers in (("one", one), ("other", other))
        ]
        assert count_difference(storage, "one", "other") == len(one ^ other)
    assert (digests[0] == digests[1]) == (one == other)
    assert file_digest(storage, "one", KEY) == digests[0]
    assert storage.size("one") == 8 * len(one)


def test_the_key_changes_everything(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    ids = IdColumn.from_bytes(b"%d" % number for number in range(100))
    digests = {
        write_set_hashes(storage, name, ids, key) for name, key in (("a", KEY), ("b", KEY[::-1]))
    }
    assert len(digests) == 2
    assert count_difference(storage, "a", "b") == 200
