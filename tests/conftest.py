"""One thread per process, for the tests share the cores; without torch only the light half is tested."""

from importlib.util import find_spec

import pytest
from hypothesis import settings

from slow_tests import function_of, slow_functions

# The same examples every time: a failure is the code's, never the draw's.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items):
    """Mark the tests that ``make test-fast`` leaves out."""
    slow = slow_functions()
    for item in items:
        if function_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)


collect_ignore = []
if find_spec("selenium") is None:  # not a developer's environment; ``make test`` always has it
    collect_ignore.append("test_browser.py")
if find_spec("torch") is None:
    heavy = (
        "atari",
        "atari_commands",
        "attacked",
        "attacks_ddpg",
        "attacks_others",
        "attacks_paper",
        "blind",
        "channel",
        "cli",
        "cnn",
        "continuous",
        "defence",
        "discount",
        "fast",
        "features",
        "games",
        "gpu",
        "mountain_car",
        "noise",
        "norms",
        "per_step",
        "play",
        "policies",
        "replay",
        "reproduce",
        "runs",
        "sb3",
        "sequential",
        "shared_attacks",
        "store",
        "study",
        "train",
        "verification",
        "verification_bets",
        "verification_sequential",
        "workers",
        "zoo",
    )
    collect_ignore += [f"test_{name}.py" for name in heavy]
else:
    import torch

    torch.set_num_threads(1)
