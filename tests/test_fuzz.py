"""A hundred and fifty damaged files and senseless command lines; ``bench/fuzz.py`` tries twenty thousand."""

import fuzzing


def test_damaged_files_and_senseless_arguments_are_one_line(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "work").mkdir()
    good = fuzzing.originals(tmp_path / "good")
    found = [fuzzing.case(number, good, tmp_path / "work") for number in range(150)]
    assert [one for one in found if one] == []
