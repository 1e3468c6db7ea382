"""Which tests need a package that not everyone has: without it they are not collected."""

NEEDS = {
    "ray": ("play/test_ray.py",),
    "selenium": ("report/test_browser.py", "test_site.py"),  # ``make test`` always has it
    # What is left tests the proving half, which works without torch.
    "torch": (
        "agents",
        "api",
        "attacks",
        "cli",
        "play",
        "proof/bounds/test_step_scores.py",
        "proof/test_query.py",
        "proof/test_step_budget.py",
        "proof/test_stopping.py",
        "report/test_browser.py",
        "report/test_exports.py",
        "report/test_offsets.py",
        "runs",
        "study",
        "test_drone_case.py",
        "test_errors.py",
        "test_fuzz.py",
        "test_gpu.py",
        "test_pancreas_case.py",
        "test_site.py",
        "train",
        "verification",
    ),
}
