"""The checkers on wrong forms: every mutant is refuted by a small example, and nobody proves what is refuted."""

import mutants
import pytest
from redfuser_algebra.prove import by_examples
from redfuser_algebra.prove.by_distribution import DISTRIBUTED
from redfuser_algebra.prove.by_egraph import derived
from redfuser_algebra.prove.by_sympy import simplified
from redfuser_algebra.prove.obligations import obligations
from redfuser_algebra.prove.trials.sampling import LONGEST, space

EXAMPLES = 40


def checked(name, form):
    """The first refuted obligation of a form, and all its obligations."""
    fused = mutants.fused(name)
    cascade = fused.decision.main.cascade
    asked = [o for o in obligations(fused.operator, cascade, form) if o.kind not in DISTRIBUTED]
    return by_examples.refutation(space(fused.operator, cascade, form), asked, EXAMPLES, seed=0), asked


def test_there_are_mutants_of_every_kind():
    assert len(mutants.ALL) >= 40 and len({mutant.of for mutant in mutants.ALL}) >= 20
    assert len({str(mutant) for mutant in mutants.ALL}) == len(mutants.ALL)


@pytest.mark.parametrize("mutant", mutants.ALL, ids=str)
def test_a_mutant_is_refuted_by_a_small_example(mutant):
    found, _ = checked(mutant.of, mutant.spoilt(mutants.fused(mutant.of).form))
    assert found is not None
    assert 1 <= sum(map(len, found["parts"].values())) <= LONGEST


# Proofs are over the reals, where no divisor is 0: what lacks only a guard there is right.
@pytest.mark.parametrize("mutant", [m for m in mutants.ALL if m.spoilt is not mutants.without_guards], ids=str)
def test_nobody_proves_that_a_wrong_component_moves_rightly(mutant):
    fused = mutants.fused(mutant.of)
    form, cascade = mutant.spoilt(fused.form), fused.decision.main.cascade
    asked = [o for o in obligations(fused.operator, cascade, form) if o.kind in ("rebase", "endomorphism", "cocycle", "order")]
    tried = dict(by_examples.tested(space(fused.operator, cascade, form), asked, EXAMPLES, 0))
    refuted = {id for id, e in tried.items() if e.verdict == "refuted" and "is needed" not in e.detail["counterexample"]["where"]}
    if refuted:
        for proofs in (dict(simplified(fused.operator, form, asked)), dict(derived(cascade, fused.operator.assume, form, asked, []))):
            assert not refuted & {id for id, evidence in proofs.items() if evidence.verdict == "proved"}


@pytest.mark.parametrize("name", sorted({mutant.of for mutant in mutants.ALL}))
def test_the_form_as_found_passes(name):
    assert checked(name, mutants.fused(name).form)[0] is None
