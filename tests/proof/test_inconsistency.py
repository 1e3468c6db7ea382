"""Attacked means below a certified bound: real inconsistencies are found, honest pairs and other setups are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from surefoot import certify
from surefoot.episodes import Episodes
from surefoot.proof import inconsistency
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.inconsistency import INCONSISTENCY_ALPHA, inconsistencies


def attacked_record(returns, budget, sigma=0.2, **more):
    facts = {"task": "t", "agent": "a", "agent_sha256": "h", "budget": budget, "attacker": {"name": "x"}, **more}
    return Episodes(np.asarray(returns, float), sigma, 0.0, 1.0, metadata=facts)


def certificate_of(returns, sigma=0.2, claimed=0.2, budgets=(0.0, 0.1, 0.2, 0.4)):
    facts = {"task": "t", "agent": "a", "agent_sha256": "h", "method": "binary"}
    episodes = Episodes.from_returns(returns, sigma=sigma, floor=0.0, ceiling=1.0, **facts)
    return replace(certify(episodes, budgets, method="paper"), sigma=claimed)


def test_a_certificate_with_twice_the_sigma_is_contradicted_by_the_worst_attack():
    """The structured adversary attains the bound; a certificate computed with sigma 0.4 claims more than that."""
    rng = np.random.default_rng(0)
    clean, budget = (rng.random(10_000) < 0.9).astype(float), 0.4
    attacked = attacked_record(rng.random(2_000) < float(shift_down(0.9, budget / 0.2)), budget)
    assert inconsistencies(certificate_of(clean), [attacked]) == []
    (found,) = inconsistencies(certificate_of(clean, sigma=0.4), [attacked])
    assert found.attacked_upper < found.certified
    assert "was certified" in str(found)


def test_the_next_larger_budget_counts_between_those_listed():
    clean = np.ones(10_000)
    document = certificate_of(clean)
    dead = attacked_record(np.zeros(2_000), 0.15)
    (found,) = inconsistencies(document, [dead])
    assert found.certified == document.lower[2]
    assert inconsistencies(document, [attacked_record(np.zeros(2_000), 0.5)]) == []  # nothing was certified there


def test_budgets_may_be_listed_in_any_order():
    """The bound of a larger budget is lower: an attack may be above it and contradict the one that is due."""
    document = certificate_of(np.ones(10_000), budgets=(0.4, 0.0, 0.2, 0.1))
    (found,) = inconsistencies(document, [attacked_record(np.zeros(2_000), 0.1)])
    assert found.certified == document.lower[3] > document.lower[0]


def test_other_setups_are_passed_over():
    dead = np.zeros(2_000)
    assert inconsistencies(certificate_of(np.ones(10_000)), [attacked_record(dead, 0.1, sigma=0.3)]) == []
    other = attacked_record(dead, 0.1)
    object.__setattr__(other, "metadata", {**other.metadata, "agent_sha256": "another"})
    assert inconsistencies(certificate_of(np.ones(10_000)), [other]) == []


def test_noise_per_feature_is_another_setup_even_if_the_least_sigma_agrees():
    plain, dead = certificate_of(np.ones(10_000)), np.zeros(2_000)
    features = certificate_of(np.ones(10_000), sigma=(0.2, 0.3))
    assert inconsistencies(plain, [attacked_record(dead, 0.1, sigma_per_feature=[0.2, 0.3])]) == []
    assert inconsistencies(features, [attacked_record(dead, 0.1)]) == []
    assert inconsistencies(features, [attacked_record(dead, 0.1, sigma_per_feature=[0.2, 0.4])]) == []
    assert len(inconsistencies(features, [attacked_record(dead, 0.1, sigma_per_feature=[0.2, 0.3])])) == 1


@pytest.mark.parametrize("budgets", [(0.1, 0.3), (0.1, 0.3, 0.6)])
def test_a_budget_that_is_listed_but_for_rounding_is_compared_with_that_one(budgets):
    """0.1 + 0.2 > 0.3: the next larger budget would certify less, and none is listed at the end."""
    document = certificate_of(np.ones(10_000), budgets=budgets)
    assert 0.1 + 0.2 > 0.3
    (found,) = inconsistencies(document, [attacked_record(np.zeros(2_000), 0.1 + 0.2)])
    assert found.certified == document.lower[1]


def test_honest_pairs_raise_no_alarm():
    """200 attacks that attain the bound exactly: an alarm has probability at most 200 x (1e-6 + the certificate's)."""
    rng = np.random.default_rng(1)
    worst = float(shift_down(0.9, 1.0))
    document = certificate_of((rng.random(10_000) < 0.9).astype(float))
    records = [attacked_record(rng.random(500) < worst, 0.2) for _ in range(200)]
    assert inconsistencies(document, records) == []
    assert INCONSISTENCY_ALPHA == 1e-6


def test_agents_without_a_hash_are_not_compared_by_their_names():
    """Two modules called Agent: a correct pair of certificate and attack must not be called inconsistent."""
    dead, whole = np.zeros(2_000), certificate_of(np.ones(10_000))
    assert len(inconsistencies(whole, [attacked_record(dead, 0.1)])) == 1  # with the same hash they are
    nameless = replace(whole, metadata={**whole.metadata, "agent_sha256": None})
    for digest in (None, "", "other"):
        assert inconsistencies(nameless, [attacked_record(dead, 0.1, agent_sha256=digest)]) == []
        assert inconsistencies(whole, [attacked_record(dead, 0.1, agent_sha256=digest)]) == []
    empty = replace(whole, metadata={**whole.metadata, "agent_sha256": ""})
    assert inconsistencies(empty, [attacked_record(dead, 0.1, agent_sha256="")]) == []


def test_both_ways_to_bound_the_attacked_mean_share_one_alpha(monkeypatch):
    """The lower of two bounds holds only with what both may err."""
    spent = []
    for name in ("worst_means", "tail_tight"):
        own = getattr(inconsistency, name)

        def spy(*given, own=own, place=2 if name == "worst_means" else 1):
            spent.append(given[place])
            return own(*given)

        monkeypatch.setattr(inconsistency, name, spy)
    assert len(inconsistencies(certificate_of(np.ones(10_000)), [attacked_record(np.zeros(2_000), 0.1)])) == 1
    assert len(spent) == 2
    assert sum(spent) <= INCONSISTENCY_ALPHA


@pytest.mark.parametrize("more", [1e-9, 1e-6, 1e-4])
def test_an_attack_with_a_little_more_than_a_listed_budget_is_compared_with_the_next(more):
    """The bound at the smaller budget does not hold against it: an honest pair would be called inconsistent."""
    document = certificate_of(np.ones(10_000))
    (found,) = inconsistencies(document, [attacked_record(np.zeros(2_000), 0.1 + more)])
    assert found.certified == document.lower[2]
