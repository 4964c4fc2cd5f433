import pytest

from torchcaps.data.captions import cut_to_fit


@pytest.mark.parametrize(
    ("name", "room", "expected"),
    [
        ("cat", 3, "cat"),
        ("Eurasian tree sparrow", 21, "Eurasian tree sparrow"),
        ("Eurasian tree sparrow", 16, "Eurasian…sparrow"),
        ("Eurasian house sparrow", 12, "Eurasi…arrow"),
        ("two\nlines  here", 14, "two lines here"),
        ("abcdef", 2, "a…"),
        ("abcdef", 1, "…"),
        ("abcdef", 0, "…"),  # there is nothing shorter
        ("", 0, ""),
    ],
)
def test_names_lose_their_middle(name: str, room: int, expected: str) -> None:
    assert cut_to_fit(name, lambda text: len(text) <= room) == expected
