"""What is handed in as an adapter is seen to be one before anything runs, and takes nobody's name unasked."""

from __future__ import annotations

import pytest

from lastword import UsageError
from lastword.runtime._handed_in import with_ours
from lastword.transports.providers import ADAPTERS
from lastword.transports.providers.memory import MemoryAdapter


class Pigeon(MemoryAdapter):
    name, transport = "pigeon", "pigeon"


class Named(MemoryAdapter):
    name = ""


class Stranger:
    """All that an adapter has, and of another family."""

    name = "memory"

    def __getattr__(self, name):
        return getattr(ADAPTERS["memory", "memory"], name)


class Own(MemoryAdapter):
    name = "own"


WRONG = {
    "transport": ((Pigeon(),), "'pigeon', which is none"),
    "class": ((Own,), "Own is a class"),
    "object": ((object(),), "a object is no adapter: it has no "),
    "nothing": ((None,), "no adapter"),
    "name": ((Named(),), "printable str"),
    "twice": ((Own(), Own()), "two adapters are called 'own'"),
    "taken": ((Stranger(),), "the name of a built-in adapter"),
}


@pytest.mark.contract("C21")
@pytest.mark.parametrize(("adapters", "said"), WRONG.values(), ids=WRONG.keys())
def test_c21_what_is_no_adapter_or_takes_a_name_is_refused_before_anything_is_made(tmp_path, make, adapters, said):
    with pytest.raises(UsageError) as caught:
        make(adapters=adapters)
    assert caught.value.kind == "usage"
    assert said in caught.value.reason
    assert not (tmp_path / "state").exists()


@pytest.mark.contract("C21")
@pytest.mark.parametrize("part", ["signals", "landed", "identify", "oracle", "matches"])
def test_c21_an_adapter_without_a_method_of_its_transport_names_what_it_lacks(part):
    class Whole:
        name, transport = "whole", "tmux"

    kept = [each for each in dir(MemoryAdapter) if not each.startswith("_") and each not in (part, "name", "transport")]
    for each in kept:
        setattr(Whole, each, vars(MemoryAdapter).get(each))
    with pytest.raises(UsageError) as caught:
        with_ours([Whole()])
    assert part in caught.value.reason
    setattr(Whole, part, vars(MemoryAdapter)[part])
    assert ("whole", "tmux") in with_ours([Whole()])


@pytest.mark.contract("C21")
def test_c21_one_that_is_derived_from_a_built_in_one_replaces_it_and_the_built_in_one_itself_is_no_stranger(make):
    class Mine(MemoryAdapter):
        def clear_draft_keys(self, draft):
            return ("C-x",)

    assert with_ours([ADAPTERS["memory", "memory"]]) == dict(ADAPTERS)
    assert with_ours([Mine()])["memory", "memory"].clear_draft_keys("") == ("C-x",)
    assert make(adapters=[Mine()]).session().run("go").answer == "echo: go"


def test_every_built_in_adapter_would_pass_were_it_handed_in():
    for adapter in ADAPTERS.values():
        with_ours([adapter])
